"""TensorRT-LLM's schedulers from their rules alone: capacity first, then the batch within its tokens, each step anew.

Slow and plain on purpose: recordings prove it, and it proves the replay loop on random cases. With overlap, the next
step is composed before the results of the one in flight are taken; what follows for ends comes from that order.
"""

from dataclasses import dataclass, field

NO_LIMIT = 2**60


@dataclass(eq=False)
class Request:
    """A request in the scheduler's view, with its output. It is a context, then a generation."""

    name: str
    arrival_s: float
    num_prompt: int
    num_outputs: int
    max_tokens: int  # those asked for; where they are num_outputs the end is by length, else by end-of-sequence
    emitted: int = 0
    computed: int = 0  # tokens with KV, those of the step in flight included
    in_flight: int = 0  # tokens that the step in flight brings
    num_context: int = 0  # tokens that its context computes: after a pause those emitted too, not the one in flight
    held: int = 0  # blocks
    is_generation: bool = False
    num_cached: int | None = None
    first_token_s: float | None = None
    finished_s: float | None = None

    @property
    def known(self) -> int:
        return self.num_prompt + self.emitted + self.in_flight

    @property
    def is_started(self) -> bool:
        return self.computed > 0


@dataclass
class Step:
    """What one step runs, and who was paused for it."""

    rows: dict[Request, int] = field(default_factory=dict)
    told: set[Request] = field(default_factory=set)  # rows that end with a token
    preempted: list[Request] = field(default_factory=list)


@dataclass(kw_only=True)
class Scheduler:
    """The rules of its capacity scheduler and its micro-batch scheduler, under their names."""

    capacity_scheduler_policy: str
    num_blocks: int
    block_size: int
    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    enable_chunked_prefill: bool = False
    chunking_policy: str = "FIRST_COME_FIRST_SERVED"
    batch_wait_timeout_iters: int = 0
    batch_wait_max_tokens_ratio: float = 0.0
    overlap: bool = False

    def __post_init__(self) -> None:
        self.active: list[Request] = []  # in order of arrival, who was paused too
        self.free = self.num_blocks
        self.num_waits = 0

    @property
    def composes_ahead(self) -> bool:
        return self.overlap

    @property
    def has_requests(self) -> bool:
        return bool(self.active)

    def add(self, request: Request) -> None:
        request.num_context = request.num_prompt
        self.active.append(request)

    def schedule(self) -> Step:
        """Compose the next step: what memory has room for, then of that what the budget has."""
        if self.capacity_scheduler_policy == "MAX_UTILIZATION":
            fitting, paused = self.use_memory()
        else:
            fitting, paused = self.reserve_memory(), []
        for request in paused:
            self.free += request.held
            request.computed, request.held, request.is_generation = 0, 0, False
            request.num_context = request.num_prompt + request.emitted
        rows = self.share_out(fitting)
        if self.waits_for_more(rows):
            rows = {request: n for request, n in rows.items() if request.is_generation}
        return Step(rows, {r for r, n in rows.items() if r.is_generation or r.computed + n == r.num_context}, paused)

    def reserve_memory(self) -> list[Request]:
        """GUARANTEED_NO_EVICT: generations, then contexts, while all can reach their largest outputs.

        STATIC_BATCH lets contexts in only where no generation is.
        """
        fitting = [r for r in self.active if r.is_generation]
        room = self.free - sum(self.rest(r) for r in fitting)
        if self.capacity_scheduler_policy == "STATIC_BATCH" and fitting:
            return fitting
        for request in [r for r in self.active if not r.is_generation]:
            if len(fitting) >= self.max_batch_size or self.rest(request) > room:
                break
            fitting.append(request)
            room -= self.rest(request)
        return fitting

    def use_memory(self) -> tuple[list[Request], list[Request]]:
        """MAX_UTILIZATION: in order of arrival, all that fits; for one that does not, the last started is paused."""
        fitting: list[Request] = []
        paused: list[Request] = []
        room, left = self.free, list(self.active)
        while left:
            needed = self.blocks(self.next_tokens(left[0])) - left[0].held
            if len(fitting) < self.max_batch_size and needed <= room:
                room -= needed
                fitting.append(left.pop(0))
                continue
            while left and not left[-1].is_started:
                left.pop()
            if left:
                paused.append(left.pop())
                room += paused[-1].held
        return fitting, paused

    def share_out(self, fitting: list[Request]) -> dict[Request, int]:
        """Give the budget to generations, then to contexts: whole ones up to the first that is too long, or chunks."""
        rows: dict[Request, int] = {}
        contexts: list[Request] = []
        left = self.max_num_tokens
        for request in sorted(fitting, key=lambda r: not r.is_generation):
            n = 1 if request.is_generation else request.num_context - request.computed
            if self.is_sure_to_end(request):
                continue
            if not request.is_generation and self.enable_chunked_prefill:
                contexts.append(request)
                continue
            if n > left:
                break
            rows[request] = n
            left -= n
        chunks = self.take_turns if self.chunking_policy == "EQUAL_PROGRESS" else self.take_first
        return rows | {r: n for r, n in chunks(contexts, left).items() if n > 0}

    def take_first(self, contexts: list[Request], left: int) -> dict[Request, int]:
        """FIRST_COME_FIRST_SERVED: all that is left; who is cut gets whole blocks, so one behind may get the rest."""
        chunks: dict[Request, int] = {}
        for request in contexts:
            wanted = request.num_context - request.computed
            chunks[request] = wanted if wanted <= left else left - left % self.block_size
            left -= chunks[request]
        return chunks

    def take_turns(self, contexts: list[Request], left: int) -> dict[Request, int]:
        """EQUAL_PROGRESS: a block each, in rounds, until nobody's next one fits."""
        chunks = dict.fromkeys(contexts, 0)
        while True:
            before = left
            for request in contexts:
                n = min(self.block_size, request.num_context - request.computed - chunks[request])
                if n <= left:
                    chunks[request] += n
                    left -= n
            if left == before:
                return chunks

    def waits_for_more(self, rows: dict[Request, int]) -> bool:
        """Tell whether contexts wait beside generations for a fuller step: batch_wait_timeout_iters times in a row."""
        num_generations = sum(r.is_generation for r in rows)
        if not self.batch_wait_timeout_iters or num_generations in (0, len(rows)):
            return False
        is_small = sum(rows.values()) < self.batch_wait_max_tokens_ratio * self.max_num_tokens
        waits = is_small and self.num_waits < self.batch_wait_timeout_iters
        self.num_waits = self.num_waits + 1 if waits else 0
        return waits

    def limit(self, request: Request) -> int:
        """Return the largest length that a request may reach."""
        return min(request.num_prompt + request.max_tokens, self.max_seq_len)

    def is_sure_to_end(self, request: Request) -> bool:
        """Tell whether the token in flight is the last by length; any other end is not known ahead."""
        return request.in_flight > 0 and request.known >= self.limit(request)

    def blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def rest(self, request: Request) -> int:
        """Return the blocks that a request may still take."""
        return self.blocks(self.limit(request)) - request.held

    def next_tokens(self, request: Request) -> int:
        """Return for how many tokens a request holds blocks in its next step: a context's for all of it at once."""
        return request.computed + 1 if request.is_generation else request.num_context

    def send(self, step: Step) -> None:
        """Start a step: what it computes counts from here on."""
        for request, n in step.rows.items():
            needed = self.blocks(self.next_tokens(request)) - request.held
            self.free -= needed
            request.held += needed
            request.computed += n
            request.num_cached = 0
        for request in step.told:
            request.is_generation = True
            request.in_flight += 1

    def take_results(self, step: Step, now_s: float) -> None:
        """Emit what a step brings; who ends gives seat and blocks back only here. A token after the end is dropped."""
        for request in step.told:
            request.in_flight -= 1
            if request.finished_s is not None:
                continue
            request.emitted += 1
            if request.first_token_s is None:
                request.first_token_s = now_s
            if request.emitted == request.num_outputs:
                request.finished_s = now_s
                self.active.remove(request)
                self.free += request.held
