"""ATOM's scheduler from its rules alone: every token, placeholder and block by itself, in the order of the engine.

Slow and plain on purpose: recordings prove it, and it proves the replay loop on random cases. A step's tokens arrive
one call late. Until then each row has placeholders, which count as tokens of its request.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

END = ("end",)  # the end of a sequence, and the placeholder of a token that is not there yet


@dataclass(eq=False)
class Request:
    """A request in the scheduler's view, with its output."""

    name: str
    arrival_s: float
    prompt: list[Any]
    num_outputs: int
    ends_by_length: bool
    tokens: list[Any] = field(default_factory=list)  # with placeholders
    computed: int = 0
    is_cut: bool = False
    rejected: int = 0  # drafts of the last row that is known
    blocks: list[int] = field(default_factory=list)
    num_hashed: int = 0  # blocks in the table of contents, or before one that is
    num_cached: int | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    is_dropped: bool = False

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt)

    @property
    def known(self) -> int:
        return len(self.tokens)


@dataclass
class Step:
    """The rows of a step, prompts or decodes, and the requests that yielded for it."""

    rows: dict[Request, int] = field(default_factory=dict)
    preempted: list[Request] = field(default_factory=list)
    is_prefill: bool = False

    @property
    def has_output(self) -> bool:
        return any(not self.is_prefill or r.computed + n >= len(r.prompt) for r, n in self.rows.items())


class Memory:
    """KV blocks: empty ones go first, the lowest number first; then the least recently freed."""

    def __init__(self, num_blocks: int) -> None:
        self.empty = list(range(num_blocks))
        heapify(self.empty)
        self.cached: OrderedDict[int, None] = OrderedDict()
        self.users = [0] * num_blocks
        self.contents: list[Any] = [None] * num_blocks
        self.table: dict[Any, int] = {}

    @property
    def num_free(self) -> int:
        return len(self.empty) + len(self.cached)

    def take(self) -> int:
        if self.empty:
            b = heappop(self.empty)
        else:
            b, _ = self.cached.popitem(last=False)
            if self.table.get(self.contents[b]) == b:
                del self.table[self.contents[b]]
            self.contents[b] = None
        self.users[b] = 1
        return b

    def claim(self, b: int) -> None:
        self.cached.pop(b, None)
        self.users[b] += 1

    def release(self, b: int) -> None:
        self.users[b] -= 1
        if self.users[b] == 0 and self.contents[b] is None:
            heappush(self.empty, b)
        elif self.users[b] == 0:
            self.cached[b] = None

    def publish(self, b: int, content: Any) -> None:
        self.contents[b] = content
        self.table[content] = b


@dataclass(kw_only=True)
class Scheduler:
    """The rules of ATOM's scheduler, under its names."""

    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    long_prefill_token_threshold: int = 0
    scheduler_delay_factor: float = 0.0
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = False
    num_speculative_tokens: int = 0
    num_accepted: int = 0  # of the drafts of each row

    def __post_init__(self) -> None:
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.memory = Memory(self.num_blocks)
        self.names: dict[Any, int] = {}
        self.num_kept_drafts = 0  # rows with drafts whose tokens came after their request had yielded
        self.asked_s, self.latency_s, self.had_prompts = 0.0, 0.0, False

    @property
    def has_requests(self) -> bool:
        return bool(self.waiting or self.running)

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def schedule(self, now_s: float) -> Step:
        """Compose the next step: prompts, and if there are none, decodes."""
        self.step = Step()
        for request in self.running:
            if len(self.step.rows) == self.max_num_seqs:
                break
            if request.is_cut:
                n = self.cut(self.capped(request.known - request.computed))
                if n == 0:
                    break
                self.step.rows[request] = n
        while (self.may_admit(now_s) and self.waiting and len(self.step.rows) < self.max_num_seqs
               and sum(self.step.rows.values()) < self.max_num_batched_tokens):
            if self.is_impossible(self.waiting[0]):
                dropped = self.waiting.pop(0)
                dropped.finished_s, dropped.is_dropped = now_s, True
            elif not self.admit(self.waiting[0]):
                break
        self.step.is_prefill = self.had_prompts = bool(self.step.rows)
        if not self.step.rows:
            self.schedule_decodes()
        return self.step

    def capped(self, n: int) -> int:
        return min(n, self.long_prefill_token_threshold) if self.long_prefill_token_threshold else n

    def cut(self, n: int) -> int:
        """Return how many of a prompt's tokens the budget has room for: a multiple of 64, if it cuts the prompt."""
        left = self.max_num_batched_tokens - sum(self.step.rows.values())
        if n <= left:
            return n
        unit = max(self.block_size, 64)
        return left // unit * unit or (0 if self.step.rows else left)

    def may_admit(self, now_s: float) -> bool:
        """Ask whether new prompts may run; each question moves the clock of the delay."""
        if self.scheduler_delay_factor <= 0:
            return True
        if self.had_prompts:
            self.latency_s = now_s - self.asked_s
        self.asked_s, self.had_prompts = now_s, False
        if not self.waiting or not self.running:
            return True
        return now_s - min(r.arrival_s for r in self.waiting) > self.scheduler_delay_factor * self.latency_s

    def is_impossible(self, request: Request) -> bool:
        is_long = not self.enable_chunked_prefill and request.known > self.max_num_batched_tokens
        return is_long or request.known > self.max_model_len or self.blocks_for(request.known) > self.num_blocks

    def admit(self, request: Request) -> bool:
        if len(self.running) >= self.max_num_seqs:
            return False
        hits = self.hits(request)
        num_used = sum(self.memory.users[b] > 0 for b in hits)
        if self.blocks_for(request.known) - num_used > self.memory.num_free:
            return False
        n = request.known - len(hits) * self.block_size
        if self.enable_chunked_prefill:
            n = self.cut(self.capped(n))
        elif self.step.rows and n > self.max_num_batched_tokens - sum(self.step.rows.values()):
            n = 0
        if n == 0:
            return False
        for b in hits:
            self.memory.claim(b)
        request.blocks = list(hits)
        self.grow(request)
        request.computed, request.num_hashed = len(hits) * self.block_size, len(hits)
        if request.num_cached is None:
            request.num_cached = request.computed
        self.running.append(self.waiting.pop(0))
        self.step.rows[request] = n
        return True

    def hits(self, request: Request) -> list[int]:
        """Return the blocks of the longest prefix in the table; the last block is computed again."""
        found: list[int] = []
        if self.enable_prefix_caching:
            content = None
            for k in range(self.blocks_for(request.known) - 1):
                content = self.content(request, k, content)
                if content not in self.memory.table:
                    break
                found.append(self.memory.table[content])
        return found

    def content(self, request: Request, k: int, before: int | None) -> int:
        """Return the number of a block's content, with all before it."""
        tokens = tuple(request.tokens[k * self.block_size:(k + 1) * self.block_size])
        return self.names.setdefault((before, tokens), len(self.names))

    def grow(self, request: Request) -> None:
        while len(request.blocks) < self.blocks_for(request.known):
            request.blocks.append(self.memory.take())

    def schedule_decodes(self) -> None:
        """Give rows from the front; the last that has no turn yet yields, or at last the request itself."""
        n = 1 + self.num_speculative_tokens
        ahead, done = self.running, list[Request]()
        while ahead and len(done) < self.max_num_seqs and (len(done) + 1) * n <= self.max_num_batched_tokens:
            request = ahead.pop(0)
            while self.blocks_for(request.known + n) - len(request.blocks) > self.memory.num_free:
                victim = ahead.pop() if ahead else request
                self.preempt(victim)
                if victim is request:
                    break
            else:
                self.grow(request)
                done.append(request)
        self.running = done + ahead
        self.step.rows = dict.fromkeys(done, n)

    def preempt(self, request: Request) -> None:
        """Take all blocks back; the placeholder of the token in flight stays, with 1 + accepted of the last row."""
        num_extra = self.num_speculative_tokens + request.rejected if self.num_speculative_tokens else 0
        if num_extra:
            del request.tokens[-num_extra:]
        request.rejected, request.is_cut = 0, False
        self.release(request)
        self.step.preempted.append(request)
        self.waiting.insert(0, request)

    def release(self, request: Request) -> None:
        for b in reversed(request.blocks):
            self.memory.release(b)
        request.blocks, request.computed, request.num_hashed = [], 0, 0

    def take_results(self, step: Step, late: Step | None, now_s: float) -> None:
        """Process a call that launches `step` and brings the tokens of `late`."""
        were_cut = {r for r in self.running if r.is_cut}
        for request, n in step.rows.items() if step.is_prefill else ():
            self.publish(request, request.computed + n)
            request.computed += n
            request.is_cut = request.computed < len(request.prompt)
        ended = []
        for request in self.running if late is not None else ():
            assert late is not None
            if request in late.rows and not request.is_cut and request not in were_cut:
                self.num_kept_drafts += self.num_speculative_tokens > 0 and step.is_prefill and request in step.rows
                self.emit(request, late, now_s)
                if request.finished_s is not None:
                    ended.append(request)
        for request in step.rows:
            if not request.is_cut and request.finished_s is None:
                request.tokens += [END] * (1 + self.num_speculative_tokens - request.rejected)
        for request in ended:
            self.release(request)
            self.running.remove(request)

    def publish(self, request: Request, num_tokens: int) -> None:
        """Make the full blocks of so many tokens findable."""
        if not self.enable_prefix_caching:
            return
        for k in range(request.num_hashed, min(num_tokens // self.block_size, len(request.blocks))):
            before = self.memory.contents[request.blocks[k - 1]] if k else None
            self.memory.publish(request.blocks[k], self.content(request, k, before))
            request.num_hashed = k + 1

    def emit(self, request: Request, late: Step, now_s: float) -> None:
        """Write the tokens of a row over their placeholders; end the request if its last is among them."""
        k = self.num_speculative_tokens
        request.rejected = 0 if late.is_prefill else k - self.num_accepted
        num_new = 1 if late.is_prefill else 1 + self.num_accepted
        first = request.known - k - 1 - (0 if late.is_prefill else k)
        for j in range(first, first + num_new):
            request.tokens[j] = self.sampled(request, j)
        if request.first_token_s is None:
            request.first_token_s = now_s
        real, last = request.known - k - request.rejected, len(request.prompt) + request.num_outputs
        if real >= last:
            request.finished_s = now_s
            real = real if request.ends_by_length else max(last, first + 1)
        self.publish(request, real)

    def sampled(self, request: Request, j: int) -> Any:
        """Return a generated token: it follows from the whole prompt and its place."""
        if not request.ends_by_length and j >= len(request.prompt) + request.num_outputs - 1:
            return END
        return "generated", self.names.setdefault(tuple(request.prompt), len(self.names)), j


def replay(requests: list[Request], scheduler: Scheduler, base_s: float, per_token_s: float) -> tuple[Any, Any]:
    """Return (step, request, tokens) of all steps and (step, request) of all preemptions; requests keep their times."""
    steps, preemptions, num_steps, num_empty = set(), set(), 0, 0
    now_s, start_s, end_s, late, late_s = 0.0, 0.0, 0.0, None, 0.0
    pending = list(requests)
    while pending or scheduler.has_requests:
        while pending and pending[0].arrival_s <= now_s:
            scheduler.waiting.append(pending.pop(0))
        if not scheduler.has_requests:
            now_s = pending[0].arrival_s
            continue
        step = scheduler.schedule(now_s)
        preemptions |= {(num_steps, r.name) for r in step.preempted}
        num_empty = 0 if step.rows else num_empty + 1
        assert num_empty < 10, "the rules themselves do not get on"
        if not step.rows:
            continue
        steps |= {(num_steps, r.name, n) for r, n in step.rows.items()}
        num_steps += 1
        assert num_steps < 100_000, "a request goes round for ever"
        now_s = max(now_s, start_s)
        start_s = max(now_s, end_s)
        end_s = start_s + (base_s + per_token_s * sum(step.rows.values()))
        has_output = step.has_output
        if has_output and late is not None:
            now_s = max(now_s, late_s)
        scheduler.take_results(step, late if has_output else None, now_s)
        if has_output:
            late, late_s = step, end_s
    return steps, preemptions
