"""The options, failures and rules that a live fleet follows; all others are refused with a remedy."""

from collections.abc import Sequence

from planner.deployment.deploy import Deployment
from planner.errors import UsageError
from planner.loop.state import engine_state as st
from planner.replays.fleet.failures import Failure
from planner.settings.scenario import OPTION_DEFAULTS, Scenario
from planner.twin import NOT_LIVE

KILL = "--kill-replica"
# Options of a scenario that a live fleet does not follow yet, or that a client decides.
REFUSED = (*NOT_LIVE, "fleet", "prefill_replicas", "autoscale")


def check_options(scenario: Scenario) -> None:
    """Raise UsageError if an option is set that a client decides, or that a live fleet does not follow."""
    for name in REFUSED:
        value = getattr(scenario, name)
        if value != OPTION_DEFAULTS[name]:
            raise UsageError(f"{name} = {value}: a live server does not follow it; leave it out")


def check_replicas(failures: Sequence[Failure], max_replicas: int, scenario: Scenario) -> None:
    """Raise UsageError if replicas are to come and go in a way that a live fleet does not follow."""
    num_replicas = scenario.data_parallel_size
    if max_replicas < num_replicas:
        raise UsageError(f"--max-replicas {max_replicas}: is below --data-parallel-size {num_replicas}; give at least "
                         f"{num_replicas}")
    said = ([f"{KILL} {failures[0].text}"] if failures else
            [f"--max-replicas {max_replicas}"] if max_replicas > num_replicas else [])
    if said and scenario.data_parallel_attention:
        raise UsageError(f"{said[0]} and --data-parallel-attention: ranks start and stop together, which is not "
                         f"modelled; leave one of them out")


def check_rules(deployment: Deployment, state: st.State) -> None:
    """Raise UsageError if a rule needs to know requests that have not arrived, or columns that clients do not send."""
    settings, router = deployment.settings, deployment.router
    if len(state.ranks) > 1:
        raise UsageError(f"policy = {deployment.policy.name}, schedule_policy = {settings.schedule_policy}, victim = "
                         f"{settings.victim}: a live server keeps no order by keys or prefixes; give --policy fcfs, or "
                         f"leave out --schedule-policy, --victim, --max-wait-s, --max-decode-only-steps and "
                         f"--enable-priority-scheduling")
    if router.is_sticky:
        raise UsageError(f"router = {router.name}: a live server does not know sessions; give another --router")
    if deployment.pooling is not None:
        raise UsageError("a model that generates no tokens is not served live; give a model that generates text")
