"""Traces written for other tools, and made anonymous: `convert`."""

from planner.export.convert import Account, convert
from planner.export.targets import TARGETS

__all__ = ["TARGETS", "Account", "convert"]
