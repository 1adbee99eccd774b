"""The report of autoscaled fleets: every change of the number of replicas, and its reason."""

from collections.abc import Sequence

from planner.report.content import Listing
from planner.report.figures.scaling_figures import is_autoscaled
from planner.report.figures.style import labels
from planner.report.summary_tables import SCALE_COLUMNS, scale_cells
from planner.results.saved import SavedResult

MOST_EVENTS = 200  # of a list; the summary has the others


def scale_listings(results: Sequence[SavedResult]) -> list[Listing]:
    """Return the scale events of each autoscaled result."""
    listings = []
    for name, result in zip(labels(results), results, strict=True):
        if not is_autoscaled(result):
            continue
        events = result.summary["autoscale"]["events"]
        shown = f", the first {MOST_EVENTS:,} of {len(events):,}" if len(events) > MOST_EVENTS else ""
        of = f" of {name}" if len(results) > 1 else ""
        listings.append(Listing(title=f"Scale events{of}{shown}", columns=SCALE_COLUMNS,
                                rows=[scale_cells(event) for event in events[:MOST_EVENTS]]))
    return listings
