"""The twin: a server that answers as the planned deployment would, in real time or faster."""

from planner.settings.scenario import LOAD_OPTIONS, names_in

NOT_LIVE = (*LOAD_OPTIONS, *names_in("Overload"), *names_in("Cache tiers"))  # clients decide, or the twin has no rule
