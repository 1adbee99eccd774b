"""Request traces: `read_trace` turns a file of any format in `FORMATS` into a `Trace`."""

from planner.traces.formats.known import FORMATS
from planner.traces.prefix_ids import PrefixIds
from planner.traces.reading import read_trace
from planner.traces.table import ReadAccount, Trace

__all__ = ["FORMATS", "PrefixIds", "ReadAccount", "Trace", "read_trace"]
