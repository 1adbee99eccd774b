"""Time for schedulers written from their rules: steps take their time, and with overlap one is composed ahead."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Timed(Protocol):
    """A request with its name and its time of arrival [s]."""

    name: str
    arrival_s: float


class Composed(Protocol):
    """A step: the tokens of each of its requests, and the requests that yielded for it."""

    @property
    def rows(self) -> Mapping[Any, int]: ...

    @property
    def preempted(self) -> Sequence[Any]: ...


class Scheduler(Protocol):
    """What a scheduler does from step to step; with `composes_ahead` before the results of the step that runs."""

    @property
    def composes_ahead(self) -> bool: ...

    @property
    def has_requests(self) -> bool: ...

    def add(self, request: Any) -> None: ...

    def schedule(self) -> Composed: ...

    def send(self, step: Any) -> None: ...

    def take_results(self, step: Any, now_s: float) -> None: ...


def replay(requests: Sequence[Timed], scheduler: Scheduler, base_s: float, per_token_s: float) -> tuple[Any, Any]:
    """Return (step, request, tokens) of all steps and (step, request) of all preemptions; requests keep their times."""
    now_s, num_steps, num_idle, steps, preemptions = 0.0, 0, 0, set(), set()
    pending, flight = list(requests), list[Composed]()
    while pending or flight or scheduler.has_requests:
        while pending and pending[0].arrival_s <= now_s:
            scheduler.add(pending.pop(0))
        if not flight and not scheduler.has_requests:
            now_s = pending[0].arrival_s
            continue
        step = scheduler.schedule()
        preemptions |= {(num_steps, r.name) for r in step.preempted}
        if step.rows:
            steps |= {(num_steps, r.name, n) for r, n in step.rows.items()}
            num_steps += 1
            scheduler.send(step)
            flight.append(step)
        if step.rows and len(flight) == 1 and scheduler.composes_ahead:
            continue  # the next step is composed at once
        num_idle = 0 if flight else num_idle + 1
        assert num_idle < 10, "the rules themselves do not get on"
        if flight:
            done = flight.pop(0)
            now_s = now_s + (base_s + per_token_s * sum(done.rows.values()))
            scheduler.take_results(done, now_s)
    return steps, preemptions
