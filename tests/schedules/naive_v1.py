"""vLLM V1's scheduler from its rules alone: no aggregation, no integers for contents, every block and token by itself.

Slow and plain on purpose: `test_naive_v1.py` holds the replay loop against it on random cases.
"""

from dataclasses import dataclass, field
from typing import Any

Token = tuple[Any, ...]


@dataclass(eq=False)
class Request:
    """A request as the scheduler sees it, and what it will say."""

    name: str
    arrival_s: float
    prompt: list[Token]
    num_outputs: int
    priority: float
    emitted: int = 0
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    num_cached: int | None = None
    first_token_s: float | None = None
    finished_s: float | None = None

    @property
    def known(self) -> int:
        return len(self.prompt) + self.emitted

    def content(self, num_tokens: int) -> tuple[Token, ...]:
        """Return the tokens up to a place; generated ones follow from the whole prompt."""
        generated = (("generated", *self.prompt, k) for k in range(len(self.prompt), num_tokens))
        return (*self.prompt[:num_tokens], *generated)

    @property
    def urgency(self) -> tuple[float, float, str]:
        return self.priority, self.arrival_s, self.name


@dataclass(kw_only=True)
class Scheduler:
    """The rules of vLLM's V1 scheduler."""

    num_blocks: int
    block_size: int
    max_num_seqs: int
    budget: int
    threshold: int
    watermark: float
    chunked: bool
    caching: bool
    by_priority: bool
    reserves_full_isl: bool

    def __post_init__(self) -> None:
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.free = list(range(self.num_blocks))
        self.users = [0] * self.num_blocks
        self.holds: list[tuple[Token, ...] | None] = [None] * self.num_blocks
        self.table: dict[tuple[Token, ...], list[int]] = {}

    def add(self, request: Request) -> None:
        self.waiting.append(request)
        if self.by_priority:
            self.waiting.sort(key=lambda r: r.urgency)

    def schedule(self) -> tuple[dict[Request, int], list[Request]]:
        """Return the tokens of each request in the next step, and those preempted for it."""
        batch: dict[Request, int] = {}
        preempted: list[Request] = []
        self.left = self.budget
        self.cap = self.threshold if len(self.running) + len(self.waiting) > 1 and self.threshold else 2**60
        for request in list(self.running):
            n = min(request.known - request.computed, self.cap, self.left)
            if request in self.running and n > 0 and self.make_room(request, n, batch, preempted):
                self.grant(request, n, batch)
        while not preempted and self.left > 0 and self.waiting and len(self.running) < self.max_num_seqs:
            if not self.admit(self.waiting[0], batch):
                break
        return batch, preempted

    def make_room(self, request: Request, n: int, batch: dict[Request, int], preempted: list[Request]) -> bool:
        needed = -(-(request.computed + n) // self.block_size) - len(request.blocks)
        while needed > len(self.free):
            victim = self.running[-1]
            if self.by_priority:
                victim = max(self.running, key=lambda r: (r.priority, r.arrival_s))
            self.running.remove(victim)
            self.left += batch.pop(victim, 0)
            self.release(victim)
            victim.computed = 0
            preempted.append(victim)
            if self.by_priority:
                self.add(victim)
            else:
                self.waiting.insert(0, victim)
            if victim is request:
                return False
        return True

    def admit(self, request: Request, batch: dict[Request, int]) -> bool:
        hits = self.hits(request)
        n = min(request.known - len(hits) * self.block_size, self.cap)
        if n > self.left and not self.chunked:
            return False
        n = min(n, self.left)
        reserve = int(self.watermark * (self.num_blocks + 1)) if self.running else 0
        unused = sum(self.users[b] == 0 for b in hits)
        tested = request.known if self.reserves_full_isl else len(hits) * self.block_size + n
        if -(-tested // self.block_size) - len(hits) + unused + reserve > len(self.free):
            return False
        for b in hits:
            if self.users[b] == 0:
                self.free.remove(b)
            self.users[b] += 1
        self.waiting.pop(0)
        request.blocks = list(hits)
        request.computed = len(hits) * self.block_size
        if request.num_cached is None:
            request.num_cached = request.computed
        self.running.append(request)
        self.grant(request, n, batch)
        return True

    def hits(self, request: Request) -> list[int]:
        found: list[int] = []
        if self.caching:
            for k in range((request.known - 1) // self.block_size):
                same = self.table.get(request.content((k + 1) * self.block_size))
                if not same:
                    break
                found.append(same[0])
        return found

    def grant(self, request: Request, n: int, batch: dict[Request, int]) -> None:
        while len(request.blocks) < -(-(request.computed + n) // self.block_size):
            b = self.free.pop(0)
            held = self.holds[b]
            if held is not None:
                self.table[held].remove(b)
                self.holds[b] = None
            self.users[b] = 1
            request.blocks.append(b)
        if self.caching:
            for k in range(request.computed // self.block_size, (request.computed + n) // self.block_size):
                b, content = request.blocks[k], request.content((k + 1) * self.block_size)
                self.holds[b] = content
                self.table.setdefault(content, []).append(b)
        batch[request] = n
        self.left -= n

    def release(self, request: Request) -> None:
        for b in reversed(request.blocks):
            self.users[b] -= 1
            if self.users[b] == 0:
                self.free.insert(0 if self.holds[b] is None else len(self.free), b)
        request.blocks = []

    def finish_step(self, batch: dict[Request, int], now_s: float) -> None:
        for request in [r for r in self.running if r in batch]:
            request.computed += batch[request]
            if request.computed == request.known:
                request.emitted += 1
                if request.first_token_s is None:
                    request.first_token_s = now_s
                if request.emitted == request.num_outputs:
                    request.finished_s = now_s
                    self.running.remove(request)
                    self.release(request)


def replay(requests: list[Request], scheduler: Scheduler, base_s: float, per_token_s: float) -> tuple[Any, Any]:
    """Return (step, request, tokens) of all steps and (step, request) of all preemptions; requests keep their times."""
    now_s, step, steps, preemptions = 0.0, 0, set(), set()
    pending = list(requests)
    while pending or scheduler.waiting or scheduler.running:
        while pending and pending[0].arrival_s <= now_s:
            scheduler.add(pending.pop(0))
        if not scheduler.waiting and not scheduler.running:
            now_s = pending[0].arrival_s
            continue
        batch, preempted = scheduler.schedule()
        preemptions |= {(step, r.name) for r in preempted}
        if not batch:
            continue
        assert step < 10_000, "the rules themselves do not get on"
        now_s = now_s + (base_s + per_token_s * sum(batch.values()))
        steps |= {(step, r.name, n) for r, n in batch.items()}
        scheduler.finish_step(batch, now_s)
        step += 1
    return steps, preemptions
