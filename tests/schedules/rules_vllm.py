"""vLLM V1's scheduler from its rules alone: every request, block and token by itself, in the order of the engine.

Slow and plain on purpose: recordings prove it, and it proves the replay loop on random cases. Asynchronous scheduling
has no rules of its own here. The next step is composed before the results of the one in flight are taken, a token in
flight is a placeholder, and what is named A1 to A5 below follows from that order.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

Token = tuple[Any, ...]
NO_LIMIT = 2**60


@dataclass(eq=False)
class Request:
    """A request in the scheduler's view, with its output."""

    name: str
    arrival_s: float
    prompt: list[Token]
    num_outputs: int
    max_tokens: int  # those asked for; where they are num_outputs the end is by length, else by end-of-sequence
    priority: float = 0.0
    emitted: int = 0
    computed: int = 0  # tokens with KV, those of the step in flight included
    drafts: int = 0  # drafted tokens that its next row may check
    placeholders: int = 0  # tokens that the step in flight may bring
    blocks: list[int] = field(default_factory=list)
    is_prefill: bool = True  # until a row ends with a token
    num_entered: int = 0  # blocks in the table of contents
    contents: list[int] = field(default_factory=list)
    num_cached: int | None = None
    first_token_s: float | None = None
    finished_s: float | None = None

    @property
    def known(self) -> int:
        return len(self.prompt) + self.emitted

    @property
    def urgency(self) -> tuple[float, float, str]:
        return self.priority, self.arrival_s, self.name


@dataclass
class Step:
    """What one step runs, and who had to yield for it."""

    rows: dict[Request, int] = field(default_factory=dict)
    drafts: dict[Request, int] = field(default_factory=dict)
    told: set[Request] = field(default_factory=set)  # rows that end with a token
    preempted: list[Request] = field(default_factory=list)
    has_prompt: bool = False


@dataclass(kw_only=True)
class Scheduler:
    """The rules of vLLM's V1 scheduler, under its names."""

    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int = 262_144
    max_num_active_seqs: int | None = None
    max_num_scheduled_tokens: int | None = None
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    prefill_schedule_interval: int = 0
    watermark: float = 0.0
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = False
    policy: str = "fcfs"
    scheduler_reserve_full_isl: bool = True
    async_scheduling: bool = False
    num_speculative_tokens: int = 0
    spec_lookahead: int = 0  # KV slots for drafts: 0 for n-gram
    hashes_next_token: bool = False  # EAGLE and MTP
    num_accepted: int = 0  # of the drafts of each row, as far as it has so many

    def __post_init__(self) -> None:
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.free = OrderedDict.fromkeys(range(self.num_blocks))
        self.users = [0] * self.num_blocks
        self.holds: list[int | None] = [None] * self.num_blocks
        self.table: dict[int, list[int]] = {}
        self.names: dict[Any, int] = {}
        self.seats = min(self.max_num_active_seqs or NO_LIMIT, self.max_num_seqs)
        self.budget = min(self.max_num_scheduled_tokens or NO_LIMIT, self.max_num_batched_tokens)
        self.steps_since_prompt = NO_LIMIT
        self.left_waiting = False
        self.num_rows_after_the_end = 0

    @property
    def composes_ahead(self) -> bool:
        return self.async_scheduling

    @property
    def has_requests(self) -> bool:
        return bool(self.waiting or self.running)

    def add(self, request: Request) -> None:
        self.waiting.append(request)
        if self.policy == "priority":
            self.waiting.sort(key=lambda r: r.urgency)

    def schedule(self) -> Step:
        """Compose the next step: first what runs (A), then what waits (B)."""
        self.step = Step()
        self.left = self.budget
        self.cap = self.prefill_cap()
        is_held = self.holds_prompts()
        for request in list(self.running):
            if request in self.running and not self.is_sure_to_end(request) and not (is_held and request.is_prefill):
                self.continue_running(request)
        if not is_held and not self.step.preempted:
            is_decode_step = not self.step.has_prompt
            while self.left > 0 and self.waiting and len(self.running) < self.seats:
                if not self.admit(self.waiting[0], is_decode_step):
                    break
            self.left_waiting = bool(self.waiting)
        return self.step

    def prefill_cap(self) -> int:
        """Return the largest share of a prompt in a step: none where it is alone."""
        num_requests = len(self.running) + len(self.waiting)
        if not self.long_prefill_token_threshold or num_requests <= 1:
            return NO_LIMIT
        fair = self.max_num_batched_tokens // num_requests if self.long_prefill_token_threshold_adaptive else 0
        return max(self.long_prefill_token_threshold, fair)

    def holds_prompts(self) -> bool:
        """Tell whether prompts wait for the interval between steps with prompts; they do only beside a decode."""
        is_early = self.steps_since_prompt < self.prefill_schedule_interval
        return is_early and not self.left_waiting and any(not r.is_prefill for r in self.running)

    def is_sure_to_end(self, request: Request) -> bool:
        """Tell whether the step in flight reaches the length limit, all drafts refused (A2: no other end is known)."""
        limit = min(len(request.prompt) + request.max_tokens, self.max_model_len)
        return request.placeholders > 0 and request.computed + 2 - request.placeholders >= limit

    def continue_running(self, request: Request) -> None:
        n = request.known + request.drafts + request.placeholders - request.computed
        n = min(n, self.cap, self.left, self.max_model_len - 1 - request.computed)
        if n > 0 and self.make_room(request, self.slots(request.computed + n) - len(request.blocks)):
            self.step.has_prompt |= request.is_prefill
            self.grant(request, n)

    def slots(self, num_tokens: int) -> int:
        """Return the blocks for so many tokens and for the drafts after them."""
        return -(-min(num_tokens + self.spec_lookahead, self.max_model_len) // self.block_size)

    def make_room(self, request: Request, needed: int) -> bool:
        """Preempt until so many blocks are free; the request itself may have to go."""
        while needed > len(self.free):
            victim = self.running[-1]
            if self.policy == "priority":
                victim = max(self.running, key=lambda r: (r.priority, r.arrival_s))
            self.left += self.step.rows.pop(victim, 0)
            self.step.drafts.pop(victim, None)
            self.preempt(victim)
            if victim is request:
                return False
        return True

    def preempt(self, victim: Request) -> None:
        """Take all KV back; a row in flight still brings its token (A3)."""
        self.running.remove(victim)
        self.release(victim)
        victim.computed, victim.drafts, victim.is_prefill = 0, 0, True
        self.step.preempted.append(victim)
        if self.policy == "priority":
            self.add(victim)
        else:
            self.waiting.insert(0, victim)

    def admit(self, request: Request, is_decode_step: bool) -> bool:
        hits = self.hits(request)
        computed = len(hits) * self.block_size
        n = min(request.known - computed, self.cap)
        if n > self.left and not self.enable_chunked_prefill:
            return False
        n = min(n, self.left)
        if request.known - computed == 1 and is_decode_step and (hits or self.step.rows):
            n = 1 + self.num_speculative_tokens  # padded to the decodes' shape
            if n > self.left:
                return False
        needed = self.slots(computed + n)
        if self.scheduler_reserve_full_isl:
            needed = max(needed, -(-min(request.known, self.max_model_len) // self.block_size))
        reserve = int(self.watermark * (self.num_blocks + 1)) if self.running else 0
        unused = sum(self.users[b] == 0 for b in hits)
        if needed - len(hits) + unused + reserve > len(self.free):
            return False
        for b in hits:
            self.free.pop(b, None)
            self.users[b] += 1
        self.waiting.pop(0)
        self.running.append(request)
        request.blocks, request.computed, request.num_entered = hits, computed, len(hits)
        if request.num_cached is None:
            request.num_cached = computed
        self.grant(request, n)
        self.step.has_prompt = True
        return True

    def hits(self, request: Request) -> list[int]:
        """Return the blocks of the longest known prefix; the last known token is computed again."""
        found: list[int] = []
        if self.enable_prefix_caching:
            for k in range((request.known - 1) // self.block_size):
                same = self.table.get(self.content(request, k))
                if not same:
                    break
                found.append(same[0])
        return found

    def content(self, request: Request, k: int) -> int:
        """Return the number of the content up to the end of a request's k-th block, or up to the token after it."""
        while len(request.contents) <= k:
            start = len(request.contents) * self.block_size
            tokens = [self.token(request, j) for j in range(start, start + self.block_size + self.hashes_next_token)]
            before = request.contents[-1] if request.contents else None
            request.contents.append(self.names.setdefault((before, *tokens), len(self.names)))
        return request.contents[k]

    def token(self, request: Request, j: int) -> Token:
        """Return a token: generated ones follow from the whole prompt."""
        if j < len(request.prompt):
            return request.prompt[j]
        return "generated", self.names.setdefault(tuple(request.prompt), len(self.names)), j

    def grant(self, request: Request, n: int) -> None:
        """Put a row into the step: its blocks, which lose their contents, and what is known of its own contents."""
        while len(request.blocks) < self.slots(request.computed + n):
            b, _ = self.free.popitem(last=False)
            held = self.holds[b]
            if held is not None:
                self.table[held].remove(b)
                self.holds[b] = None
            self.users[b] = 1
            request.blocks.append(b)
        self.enter(request, request.computed + n)
        self.step.rows[request] = n
        self.step.drafts[request] = max(0, request.computed + n - request.known - request.placeholders)
        self.left -= n

    def enter(self, request: Request, num_tokens: int) -> None:
        """Make full blocks of known tokens findable (A4: a token in flight is not known)."""
        known = request.known - self.hashes_next_token
        while self.enable_prefix_caching and (request.num_entered + 1) * self.block_size <= min(num_tokens, known):
            b, content = request.blocks[request.num_entered], self.content(request, request.num_entered)
            self.holds[b] = content
            self.table.setdefault(content, []).append(b)
            request.num_entered += 1

    def release(self, request: Request) -> None:
        for b in reversed(request.blocks):
            self.users[b] -= 1
            if self.users[b] == 0:
                self.free[b] = None
                self.free.move_to_end(b, last=self.holds[b] is not None)
        request.blocks, request.num_entered = [], 0

    def send(self, step: Step) -> None:
        """Start a step: what it computes counts from here on."""
        self.steps_since_prompt = 1 if step.has_prompt else self.steps_since_prompt + 1
        for request, n in step.rows.items():
            request.computed += n
            request.drafts = 0
            request.is_prefill = request.computed < request.known + request.placeholders
            if not request.is_prefill:
                step.told.add(request)
                request.drafts = self.num_speculative_tokens
                request.placeholders += 1 + step.drafts[request]

    def take_results(self, step: Step, now_s: float) -> None:
        """Emit what a step brings, in batch order; who ends gives seat and blocks back only here (A1)."""
        for request in step.rows:
            if request.finished_s is not None:
                self.num_rows_after_the_end += 1  # A2: its token is dropped
            elif request in step.told:
                self.emit(request, step.drafts[request], now_s)

    def emit(self, request: Request, drafts: int, now_s: float) -> None:
        accepted = min(self.num_accepted, drafts)
        told = min(1 + accepted, request.num_outputs - request.emitted, self.max_model_len - request.known)
        if request in self.running:
            request.computed -= drafts - accepted
        request.placeholders -= drafts - accepted + told
        request.emitted += told
        if request.first_token_s is None:
            request.first_token_s = now_s
        if request in self.running and self.async_scheduling:
            self.enter(request, request.computed - request.placeholders)
        if request.emitted == request.num_outputs or request.known >= self.max_model_len:
            request.finished_s = now_s
            (self.running if request in self.running else self.waiting).remove(request)  # A3: it may wait
            self.release(request)
