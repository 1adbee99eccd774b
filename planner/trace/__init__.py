"""Reading recorded traces: `read_trace` turns a file of any format in `FORMATS` into a `Trace`."""

from planner.trace.formats import FORMATS
from planner.trace.prefix import PrefixIds
from planner.trace.read import read_trace
from planner.trace.table import ReadAccount, Trace

__all__ = ["FORMATS", "PrefixIds", "ReadAccount", "Trace", "read_trace"]
