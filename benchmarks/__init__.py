"""Measures Rethread against the least that the same work can cost: `python -m benchmarks`."""
