"""The capacity in what is asked for: a request rate, requests in flight, or open sessions."""

from planner.planning.capacity_answer import CapacityAnswer
from planner.planning.highest_rate import capacity as highest_rate
from planner.planning.most_users import most_users
from planner.planning.search_options import Search
from planner.planning.users_answer import UsersAnswer
from planner.settings.objectives import Objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace


def capacity_of(trace: Trace, scenario: Scenario, objectives: Objectives,
                search: Search) -> CapacityAnswer | UsersAnswer:
    """Find the largest load of `search.of` with which a deployment keeps its objectives.

    Parameters
    ----------
    trace, scenario, objectives, search : as of `highest_rate.capacity`.
    """
    find = most_users if search.of in ("concurrency", "sessions") else highest_rate
    return find(trace, scenario, objectives, search)
