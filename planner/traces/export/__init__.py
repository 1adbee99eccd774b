"""Traces written for other tools, and made anonymous: `convert`."""

from planner.traces.export.convert import Account, convert
from planner.traces.export.export_formats import TARGETS

__all__ = ["TARGETS", "Account", "convert"]
