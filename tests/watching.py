"""A display for tests: it keeps the stages that were announced."""

from planner.progress import Stage


class Recorded:
    """Keeps each stage that ended, and how much of it was done when it began."""

    def __init__(self) -> None:
        self.begun: list[Stage] = []
        self.ended: list[Stage] = []
        self._first: dict[str, float] = {}

    def begin(self, stage: Stage) -> None:
        assert not callable(stage.done) or stage.done() >= 0
        self.begun.append(stage)
        self._first.setdefault(stage.what, 0.0 if callable(stage.done) else stage.done)

    def end(self, stage: Stage) -> None:
        self.ended.append(stage)

    def first(self, what: str) -> float:
        """Return how much of the first stage of this name was done when it began."""
        return self._first[what]
