"""Roles of an engine that passes requests on: prefill or decode, in a pool of a fleet."""

from planner.errors import UsageError
from planner.launch.taken import Taken

REMEDY = ('give the commands of both roles to a fleet\'s file: from_command of a [[pool]] with role = "prefill", and '
          'of another with role = "decode"')


def take_role(taken: Taken, flag: str, role: str | None) -> None:
    """Check a role that a flag gives an engine against the pool that it is in; None is no role.

    Raises
    ------
    UsageError : the engine is to serve requests whole, or has the other role.
    """
    if role is None or taken.role == role:
        return
    if taken.role == "both":
        raise UsageError(f"--from-command: {flag} makes the engine a part of a deployment with separate prefill and "
                         f"decode, and one engine for both is predicted; {REMEDY}")
    raise UsageError(f"--from-command: {flag} makes the engine one for {role}, and its pool has role = "
                     f"{taken.role!r}; give the command to the other pool")
