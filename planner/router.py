"""The public names for router files of users; defined in `policies/router.py`."""

from planner.policies.router import ReplicaLoad, Router

__all__ = ["ReplicaLoad", "Router"]
