"""The order of SGLang's waiting requests, from its rules alone."""

from typing import Any

from rules_sglang_memory import Memory, Request

LOOK_EVERY, LOOK_AT = 32, 128
LPM_MOST, LPM_SAME = 128, 32


class Queue(Memory):
    """The waiting requests in the order in which they are looked at."""

    def sort_waiting(self) -> None:
        if self.lpm and self.caching and len(self.waiting) <= LPM_MOST:
            self.sort_by_prefix()
            return
        sign = (1 if self.low_first else -1) if self.by_priority else 0
        if self.lof:
            self.waiting.sort(key=lambda r: (sign * r.priority, -r.limit))
        elif self.by_priority:
            self.waiting.sort(key=lambda r: (sign * r.priority, r.entered))
        if self.caching and self.waiting and self.num_looks % LOOK_EVERY == 0:
            for request in reversed(self.waiting[:LOOK_AT]):
                self.tree.match(request.content(request.known, self.page_size))
        self.num_looks += bool(self.waiting)

    def sort_by_prefix(self) -> None:
        key: dict[Request, float] = {}
        seen: list[list[Any]] = []
        for request in self.waiting:
            tokens = [request.token(k) for k in range(request.known)]
            hit = self.tree.match(request.content(request.known, self.page_size)).depth * self.page_size
            key[request] = float(-min(hit, request.known - 1))
            if hit <= LPM_SAME:
                if any(shared(tokens, other) >= LPM_SAME for other in seen):
                    key[request] = float("inf")
                else:
                    seen.append(tokens)
        self.waiting.sort(key=lambda r: key[r])


def shared(one: list[Any], other: list[Any]) -> int:
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return same
