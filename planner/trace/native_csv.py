"""The planner's own CSV: a header with our column names."""

from planner.schema import REQUIRED_TRACE_COLUMNS, TRACE_COLUMNS
from planner.trace.reader import Head, Reader, as_it_is


def _matches(head: Head) -> bool:
    return head.layout == "csv" and set(REQUIRED_TRACE_COLUMNS) <= set(head.columns)


NATIVE_CSV = Reader(
    name="csv",
    meaning="the planner's own CSV: arrival_s,input_tokens,output_tokens and optional columns",
    layout="csv",
    columns={column.name: column.name for column in TRACE_COLUMNS},
    matches=_matches,
    native=as_it_is,
    block_tokens=None,
    exact_ids=False,
)
