"""Reads a raw chart spec and says in a few words what it draws.

Vega-Lite, Plotly and ECharts are recognised by their shape:

    {"mark": "bar", "encoding": {"x": {"field": "region", "type": "nominal", "sort": "-y"},
     "y": {"field": "revenue", "type": "quantitative", "aggregate": "sum"}}}
    → chart_type "bar", x "region", y ("revenue",), aggregate "sum", sort "-revenue"

Names mean the same in every library and for every chart type, so that a pie can be redrawn as a
bar chart from its description: `x` is what the chart is broken down by, `y` what is measured,
`series` the second break-down. A horizontal bar chart therefore has its categories in `x` too, and
`horizontal` set; a heat map has its second axis in `series` and its colour in `y`. Scatter plots
keep their axes. Of data arrays at most the first row is looked at, for its column names.
"""

from __future__ import annotations

from dataclasses import replace

from conversations.chart_specs.description import CHART_TYPES, ChartDescription, one_line
from conversations.chart_specs.echarts import describe_echarts
from conversations.chart_specs.plotly import describe_plotly
from conversations.chart_specs.vega_lite import describe_vega_lite

__all__ = ["CHART_TYPES", "ChartDescription", "describe_chart", "one_line"]


def describe_chart(spec: object) -> ChartDescription | None:
    """Describe a spec; any JSON value may come, None when no library's spec is recognised."""
    if not isinstance(spec, dict):
        return None
    described = describe_vega_lite(spec) or describe_plotly(spec) or describe_echarts(spec)
    return described and replace(described, title=one_line(described.title))
