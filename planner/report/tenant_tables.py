"""Figures of tenants side by side, as text."""

from collections.abc import Mapping
from typing import Any

from planner.report.cells import cell_text
from planner.report.text import Grid
from planner.report.verdicts import NO_TENANT

SHOWN_TENANTS = 12  # the tenants with the most requests; the JSON has all
COLUMNS = {"num_requests": "requests", "completed": "completed", "rejected": "rejected", "slo_attainment": "attainment",
           "mean_ttft_ms": "TTFT mean", "p99_ttft_ms": "TTFT p99", "mean_tpot_ms": "TPOT mean",
           "p99_tpot_ms": "TPOT p99", "output_throughput": "tokens/s"}


def tenant_lines(tenants: Mapping[str, Mapping[str, Any]]) -> list[str | Grid]:
    """Return a row for each of the tenants with the most requests; times are in milliseconds."""
    if not tenants:
        return []
    keys = [key for key in COLUMNS if any(figures[key] is not None for figures in tenants.values())]
    shown = list(tenants.items())[:SHOWN_TENANTS]
    rows = [[name or NO_TENANT, *(cell_text(figures[key], key) for key in keys)] for name, figures in shown]
    others = len(tenants) - len(shown)
    grid = Grid(heads=("", *(COLUMNS[key] for key in keys)), rows=rows, indent=2)
    return ["Tenants [ms]", grid, *([f"  … {others:,} more tenants; --json has all"] if others else [])]
