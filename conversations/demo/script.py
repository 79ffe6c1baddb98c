# ruff: noqa: S608  statements of this module, no input
"""The conversation: what Ana asks over two mornings, and how the agent answers.

An answer is a template over the query's result: `{first[region]}`, `{rows[1][revenue]:,.0f}`,
`{last[month]:%B}`, `{count}`. Nothing in it is made up: the figures come from the database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One turn: what is asked, what is queried, what is drawn or made, what is answered.

    `made` are artifacts beside the query's and the chart's; `then` completes a pending turn.
    """

    query: str
    answer: str
    sql: str = ""
    title: str | None = None
    chart: Mapping[str, Any] | None = None
    made: Sequence[Mapping[str, Any]] = ()
    agent_type: str = "chat"
    status: str = "complete"
    waiting_for: str | None = None
    then: Step | None = None


THIS_YEAR = "ordered_on >= DATE '2026-01-01'"
SOLD = f"{THIS_YEAR} AND status IN ('paid', 'shipped')"

FIRST_MORNING: Sequence[Step] = (
    Step(
        "What is our revenue in 2026 so far?",
        "It comes to {first[revenue]:,.0f} EUR from {first[orders]:,} orders.",
        f"SELECT SUM(revenue) AS revenue, COUNT(DISTINCT order_id) AS orders\n"
        f"FROM sales\nWHERE {THIS_YEAR}",
        "Revenue 2026",
    ),
    Step(
        "Break that down by region",
        "{first[region]} leads with {first[revenue]:,.0f} EUR; {last[region]} is last with "
        "{last[revenue]:,.0f} EUR.",
        f"SELECT region, SUM(revenue) AS revenue\nFROM sales\nWHERE {THIS_YEAR}\n"
        "GROUP BY region\nORDER BY revenue DESC",
        "Revenue 2026 by region",
    ),
    Step(
        "Only what is really sold, please: paid and shipped. Keep it that way from now on",
        "Without open and cancelled orders {first[region]} has {first[revenue]:,.0f} EUR and "
        "{last[region]} {last[revenue]:,.0f} EUR. I keep to paid and shipped orders.",
        f"SELECT region, SUM(revenue) AS revenue\nFROM sales\nWHERE {SOLD}\n"
        "GROUP BY region\nORDER BY revenue DESC",
        "Revenue 2026 by region, paid and shipped",
    ),
    Step(
        "Make that a bar chart",
        "Here it is, one bar for each of the {count} regions, the longest first.",
        f"SELECT region, SUM(revenue) AS revenue\nFROM sales\nWHERE {SOLD}\n"
        "GROUP BY region\nORDER BY revenue DESC",
        "Revenue 2026 by region",
        {"chart_type": "bar", "x": "region", "y": ["revenue"], "sort": "-revenue"},
    ),
    Step(
        "Now by month",
        "From {first[revenue]:,.0f} EUR in {first[month]:%B} to {last[revenue]:,.0f} EUR in "
        "{last[month]:%B}, which is not over yet in the data.",
        f"SELECT month, SUM(revenue) AS revenue\nFROM sales\nWHERE {SOLD}\n"
        "GROUP BY month\nORDER BY month",
        "Revenue 2026 by month",
        {"chart_type": "line", "x": "month", "y": ["revenue"]},
    ),
    Step(
        "One line per region",
        "The same months, split into the regions: {count} points on four lines.",
        f"SELECT month, region, SUM(revenue) AS revenue\nFROM sales\nWHERE {SOLD}\n"
        "GROUP BY month, region\nORDER BY month, region",
        "Revenue 2026 by month and region",
        {"chart_type": "line", "x": "month", "y": ["revenue"], "series": "region"},
    ),
    Step(
        "For us an active customer is one who has ordered within the last 90 days",
        "Noted. Until you say otherwise, active customer means that.",
        made=(
            {
                "kind": "definition",
                "term": "active customer",
                "meaning": "has placed an order within the last 90 days",
                "sql": "ordered_on > CURRENT_DATE - 90",
            },
        ),
    ),
    Step(
        "How many of those did we have on 31 October?",
        "On 31 October 2026 there were {first[active]} active customers.",
        "SELECT COUNT(DISTINCT customer) AS active\nFROM sales\n"
        "WHERE ordered_on > DATE '2026-10-31' - 90 AND ordered_on <= DATE '2026-10-31'\n"
        "  AND status IN ('paid', 'shipped')",
        "Active customers on 31 October 2026",
    ),
    Step(
        "By segment",
        "{first[segment]} comes first with {first[active]}, {last[segment]} last with "
        "{last[active]}.",
        "SELECT segment, COUNT(DISTINCT customer) AS active\nFROM sales\n"
        "WHERE ordered_on > DATE '2026-10-31' - 90 AND ordered_on <= DATE '2026-10-31'\n"
        "  AND status IN ('paid', 'shipped')\nGROUP BY segment\nORDER BY active DESC",
        "Active customers by segment",
    ),
    Step(
        "Which enterprise customers have gone quiet?",
        "{count} enterprise customers have no order in those 90 days; the one that has been "
        "silent longest is {first[customer]}, last seen on {first[last_order]:%d %B %Y}.",
        "SELECT customer, MAX(ordered_on) AS last_order\nFROM sales\n"
        "WHERE segment = 'Enterprise' AND status IN ('paid', 'shipped')\nGROUP BY customer\n"
        "HAVING MAX(ordered_on) <= DATE '2026-10-31' - 90\nORDER BY last_order",
        "Quiet enterprise customers",
    ),
    Step(
        "What are our margins by product category this year?",
        "{first[category]} is best with {first[margin_percent]} %, {last[category]} worst with "
        "{last[margin_percent]} %.",
        "SELECT category,\n"
        "  ROUND(100 * (SUM(list_amount) - SUM(cost)) / SUM(list_amount), 1) AS margin_percent\n"
        f"FROM sales\nWHERE {SOLD}\nGROUP BY category\nORDER BY margin_percent DESC",
        "Margin by category",
    ),
    Step(
        "That can't be right, we hardly earn anything on accessories. You forgot the discounts",
        "You are right, I had taken list prices. After discounts {first[category]} is best with "
        "{first[margin_percent]} % and {last[category]} worst with {last[margin_percent]} %. "
        "I use discounted revenue for margins from here on.",
        "SELECT category,\n"
        "  ROUND(100 * (SUM(revenue) - SUM(cost)) / SUM(revenue), 1) AS margin_percent\n"
        f"FROM sales\nWHERE {SOLD}\nGROUP BY category\nORDER BY margin_percent DESC",
        "Margin by category, after discounts",
        made=(
            {
                "kind": "definition",
                "term": "margin",
                "meaning": "(revenue after discounts - cost) / revenue after discounts",
            },
        ),
    ),
    Step(
        "List every order line of the last two years with customer, product and margin",
        "Order 1, Desk Oslo … (stopped by the user)",
        status="stopped",
    ),
    Step(
        "No, too much. Just the ten products with the most revenue, with their margin",
        "{first[product]} is first with {first[revenue]:,.0f} EUR at {first[margin_percent]} %, "
        "then {rows[1][product]} and {rows[2][product]}.",
        "SELECT product, SUM(revenue) AS revenue,\n"
        "  ROUND(100 * (SUM(revenue) - SUM(cost)) / SUM(revenue), 1) AS margin_percent\n"
        f"FROM sales\nWHERE {SOLD}\nGROUP BY product\nORDER BY revenue DESC\nLIMIT 10",
        "Top ten products",
    ),
    Step(
        "And how many of each are in the warehouse?",
        "I could not look that up: this database has no table of stock.",
        "SELECT product, SUM(on_hand) AS on_hand\nFROM stock\nGROUP BY product",
        "Stock of the top ten products",
        status="failed",
    ),
    Step(
        "Then skip that. Put the bar chart and the lines per region on a dashboard for Monday",
        "Shall I call it “Monday sales” and share it with your team?",
        agent_type="copilot",
        status="pending",
        waiting_for="the dashboard's name",
        then=Step(
            "Then skip that. Put the bar chart and the lines per region on a dashboard for Monday",
            "Done: “Monday sales” shows the revenue by region and by month and region.",
            agent_type="copilot",
            made=(
                {
                    "kind": "visualization",
                    "id": "v-1",
                    "title": "Revenue 2026 by region",
                    "visualization_type": "bar",
                    "columns": ["region", "revenue"],
                },
                {
                    "kind": "visualization",
                    "id": "v-2",
                    "title": "Revenue 2026 by month and region",
                    "visualization_type": "line",
                    "columns": ["month", "region", "revenue"],
                },
                {
                    "kind": "dashboard",
                    "id": "d-1",
                    "title": "Monday sales",
                    "items": ["v-1", "v-2"],
                },
            ),
        ),
    ),
)

SECOND_MORNING: Sequence[Step] = (
    Step(
        "Good morning! Where were we?",
        "We had 2026 revenue of paid and shipped orders by region and month, active customers, "
        "margins after discounts, and “Monday sales” with two charts.",
    ),
    Step(
        "",
        "I have read the file: {count} budget figures, from {first[region]} {first[quarter]} on.",
        "SELECT region, quarter, amount\nFROM budget\nORDER BY region, quarter",
        "budget_2026.xlsx",
        made=(
            {
                "kind": "file",
                "file_id": "f-2026",
                "name": "budget_2026.xlsx",
                "columns": ["region", "quarter", "amount"],
                "row_count": 16,
            },
        ),
    ),
    Step(
        "How do we stand against it, by region, through September?",
        "{first[region]} is furthest ahead with {first[percent]} % of its budget, {last[region]} "
        "furthest behind with {last[percent]} %.",
        "WITH sold AS (\n  SELECT region, SUM(revenue) AS revenue\n  FROM sales\n"
        f"  WHERE {SOLD}\n    AND ordered_on < DATE '2026-10-01'\n  GROUP BY region)\n"
        "SELECT region, revenue, SUM(amount) AS budget, ROUND(100 * revenue / SUM(amount), 1) AS "
        "percent\nFROM sold JOIN budget USING (region)\nWHERE quarter < '2026-Q4'\n"
        "GROUP BY region, revenue\nORDER BY percent DESC",
        "Revenue against budget by region",
    ),
    Step(
        "As a grouped bar chart",
        "Two bars a region, revenue beside budget.",
        "WITH sold AS (\n  SELECT region, SUM(revenue) AS revenue\n  FROM sales\n"
        f"  WHERE {SOLD}\n    AND ordered_on < DATE '2026-10-01'\n  GROUP BY region)\n"
        "SELECT region, revenue, SUM(amount) AS budget\nFROM sold JOIN budget USING (region)\n"
        "WHERE quarter < '2026-Q4'\nGROUP BY region, revenue\nORDER BY region",
        "Revenue and budget by region",
        {"chart_type": "bar", "x": "region", "y": ["revenue", "budget"]},
    ),
    Step(
        "In which quarter did we miss it most?",
        "In {first[quarter]}: {first[gap]:,.0f} EUR below budget over all regions.",
        "WITH sold AS (\n  SELECT quarter, SUM(revenue) AS revenue\n  FROM sales\n"
        f"  WHERE {SOLD}\n  GROUP BY quarter)\n"
        "SELECT quarter, SUM(amount) - revenue AS gap\nFROM sold JOIN budget USING (quarter)\n"
        "WHERE quarter < '2026-Q4'\nGROUP BY quarter, revenue\nORDER BY gap DESC",
        "Gap to budget by quarter",
    ),
    Step(
        "Only the north, by category",
        "In the north {first[category]} brings most, {first[revenue]:,.0f} EUR; {last[category]} "
        "least, {last[revenue]:,.0f} EUR.",
        "SELECT category, SUM(revenue) AS revenue\nFROM sales\n"
        f"WHERE {SOLD} AND region = 'North'\nGROUP BY category\nORDER BY revenue DESC",
        "Revenue 2026 in the north by category",
    ),
    Step(
        "Let us call an order of more than 5,000 EUR a large order",
        "Noted: a large order is one of more than 5,000 EUR after discounts.",
        made=(
            {
                "kind": "definition",
                "term": "large order",
                "meaning": "an order of more than 5,000 EUR after discounts",
                "sql": "HAVING SUM(revenue) > 5000",
            },
        ),
    ),
    Step(
        "How many of them came through each channel?",
        "Most came by {first[channel]}: {first[large_orders]}; the fewest by {last[channel]}: "
        "{last[large_orders]}.",
        "SELECT channel, COUNT(*) AS large_orders\nFROM (\n"
        f"  SELECT order_id, channel\n  FROM sales\n  WHERE {SOLD}\n"
        "  GROUP BY order_id, channel\n  HAVING SUM(revenue) > 5000) AS large\n"
        "GROUP BY channel\nORDER BY large_orders DESC",
        "Large orders by channel",
    ),
    Step(
        "As a share of all orders there",
        "By {first[channel]} {first[percent]} % of the orders are large, by {last[channel]} "
        "{last[percent]} %.",
        "SELECT channel, ROUND(100.0 * COUNT(*) FILTER (WHERE total > 5000) / COUNT(*), 1) "
        "AS percent\nFROM (\n"
        f"  SELECT order_id, channel, SUM(revenue) AS total\n  FROM sales\n  WHERE {SOLD}\n"
        "  GROUP BY order_id, channel) AS placed\nGROUP BY channel\nORDER BY percent DESC",
        "Share of large orders by channel",
    ),
    Step(
        "Make it a pie",
        "A pie of shares that do not add up to a whole would mislead, so these are its slices of "
        "the large orders themselves: {count} channels.",
        "SELECT channel, COUNT(*) AS large_orders\nFROM (\n"
        f"  SELECT order_id, channel\n  FROM sales\n  WHERE {SOLD}\n"
        "  GROUP BY order_id, channel\n  HAVING SUM(revenue) > 5000) AS large\n"
        "GROUP BY channel\nORDER BY large_orders DESC",
        "Large orders by channel",
        {"chart_type": "pie", "x": "channel", "y": ["large_orders"]},
    ),
    Step(
        "Then rather bars",
        "The same figures as bars.",
        "SELECT channel, COUNT(*) AS large_orders\nFROM (\n"
        f"  SELECT order_id, channel\n  FROM sales\n  WHERE {SOLD}\n"
        "  GROUP BY order_id, channel\n  HAVING SUM(revenue) > 5000) AS large\n"
        "GROUP BY channel\nORDER BY large_orders DESC",
        "Large orders by channel",
        {"chart_type": "bar", "x": "channel", "y": ["large_orders"], "sort": "-large_orders"},
    ),
    Step(
        "Who places the most of them?",
        "{first[customer]} with {first[large_orders]}, then {rows[1][customer]} with "
        "{rows[1][large_orders]}.",
        "SELECT customer, COUNT(*) AS large_orders\nFROM (\n"
        f"  SELECT order_id, customer\n  FROM sales\n  WHERE {SOLD}\n"
        "  GROUP BY order_id, customer\n  HAVING SUM(revenue) > 5000) AS large\n"
        "GROUP BY customer\nORDER BY large_orders DESC, customer\nLIMIT 5",
        "Customers with the most large orders",
    ),
    Step(
        "Are they all active?",
        "{first[active]} of the five are active customers, by our 90 days.",
        "WITH top AS (\n  SELECT customer, COUNT(*) AS large_orders\n  FROM (\n"
        f"    SELECT order_id, customer\n    FROM sales\n    WHERE {SOLD}\n"
        "    GROUP BY order_id, customer\n    HAVING SUM(revenue) > 5000) AS large\n"
        "  GROUP BY customer\n  ORDER BY large_orders DESC, customer\n  LIMIT 5)\n"
        "SELECT COUNT(DISTINCT customer) AS active\nFROM sales JOIN top USING (customer)\n"
        "WHERE ordered_on > DATE '2026-10-31' - 90 AND status IN ('paid', 'shipped')",
        "Active among the top customers",
    ),
    Step(
        "Add the channel bars to the Monday dashboard",
        "“Monday sales” now shows three charts.",
        agent_type="copilot",
        made=(
            {
                "kind": "visualization",
                "id": "v-3",
                "title": "Large orders by channel",
                "visualization_type": "bar",
                "columns": ["channel", "large_orders"],
            },
            {
                "kind": "dashboard",
                "id": "d-1",
                "title": "Monday sales",
                "items": ["v-1", "v-2", "v-3"],
            },
        ),
    ),
    Step(
        "Thanks! One sentence for the meeting, please",
        "Paid and shipped revenue is highest in {first[region]}, {first[revenue]:,.0f} EUR this "
        "year; the charts on “Monday sales” tell the rest.",
        f"SELECT region, SUM(revenue) AS revenue\nFROM sales\nWHERE {SOLD}\n"
        "GROUP BY region\nORDER BY revenue DESC\nLIMIT 1",
        "Leading region",
    ),
)
