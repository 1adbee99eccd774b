"""The public names for autoscaler files of users; defined in `policies/autoscaler.py`."""

from planner.policies.autoscaler import Autoscaler, FleetLoad

__all__ = ["Autoscaler", "FleetLoad"]
