"""SGLang's requests and KV memory from its rules alone, page by page."""

from dataclasses import dataclass, field
from typing import Any

from rules_sglang_tree import Node, Tree

FIRST_RATIO, LOWEST = 0.7, 0.14


@dataclass(eq=False)
class Request:
    """A request in the scheduler's view, with its output. `asked` is None where no limit was given."""

    name: str
    arrival_s: float
    prompt: list[Any]
    num_outputs: int
    asked: int | None = None
    priority: float = 0.0
    emitted: int = 0
    computed: int = 0
    limit: int = 0
    entered: int = 0
    in_tree: int = 0
    node: Node | None = None
    pages: list[Any] = field(default_factory=list)
    num_cached: int | None = None
    first_token_s: float | None = None
    finished_s: float | None = None

    @property
    def known(self) -> int:
        return len(self.prompt) + self.emitted

    @property
    def finished(self) -> bool:
        return self.finished_s is not None

    @property
    def ends_at(self) -> int:
        return min(self.num_outputs, self.limit)

    def token(self, k: int) -> Any:
        return self.prompt[k] if k < len(self.prompt) else ("generated", self.whole, k)

    @property
    def whole(self) -> Any:
        return tuple(self.prompt)

    def content(self, num_tokens: int, page_size: int) -> list[Any]:
        """Return the whole pages up to a place; generated tokens follow from the whole prompt."""
        num_pages = num_tokens // page_size
        for k in range(len(self.pages), num_pages):
            at = k * page_size
            if at + page_size <= len(self.prompt):
                self.pages.append(tuple(self.prompt[at : at + page_size]))
            else:
                self.pages.append(tuple(self.token(j) for j in range(at, at + page_size)))
        return self.pages[:num_pages]


@dataclass(eq=False)
class Batch:
    """Requests that decode together, with the flag that shuts the queue; or a step's prompts."""

    requests: list[Request] = field(default_factory=list)
    full: bool = False
    is_prefill: bool = False
    rows: dict[Request, int] = field(default_factory=dict)
    emitting: dict[Request, int] = field(default_factory=dict)
    num_decodes: int = 0


@dataclass(kw_only=True)
class Memory:
    """Settings, the queue, and the pages: free, in the tree, or held by a request outside it."""

    num_pages: int
    page_size: int = 1
    chunk: int | None = None
    max_prefill_tokens: int = 16384
    seats: int = 2048
    context: int = 2**40
    conservativeness: float = 1.0
    caching: bool = False
    mixed: bool = False
    by_priority: bool = False
    low_first: bool = False
    lpm: bool = False
    lof: bool = False
    gap: int = 10
    interval: int = 0
    overlap: bool = False
    ends_wait: bool = False
    strict_prefill: bool = False

    def __post_init__(self) -> None:
        self.first_ratio = min(FIRST_RATIO * self.conservativeness, 1.0)
        self.lowest = self.first_ratio * LOWEST
        self.ratio = self.first_ratio
        self.waiting: list[Request] = []
        self.running = Batch()
        self.last: Batch | None = None
        self.cut: Request | None = None
        self.free = self.num_pages
        self.tree = Tree()
        self.num_entered = self.num_looks = self.to_hold = 0
        self.preempted: list[Request] = []

    def paged(self, tokens: int) -> int:
        return -(-tokens // self.page_size) * self.page_size

    @property
    def evictable(self) -> int:
        return self.tree.num_evictable * self.page_size if self.caching else 0

    def make_free(self, tokens: int) -> None:
        if self.caching and self.free * self.page_size < tokens:
            self.free += self.tree.evict(-(-(tokens - self.free * self.page_size) // self.page_size))

    def hold(self, request: Request, tokens: int) -> None:
        """Take the pages for more tokens."""
        self.free -= -(-(request.computed + tokens) // self.page_size) - -(-request.computed // self.page_size)
        request.computed += tokens
        assert self.free >= 0, "out of memory"

    def stand_on(self, request: Request, node: Node) -> None:
        if request.node is not None:
            self.tree.lock(request.node, -1)
        self.tree.lock(node, 1)
        request.node = node

    def keep(self, request: Request, num_tokens: int) -> None:
        """Put what is computed into the tree; pages that it has already are free at once.

        An output that a retraction made known goes into a node of its own too.
        """
        pages = request.content(num_tokens, self.page_size)
        _, num_known = self.tree.insert(pages)
        if 0 < len(request.prompt) // self.page_size < len(pages):
            self.tree.insert(pages[: len(request.prompt) // self.page_size])
        self.free += num_known - request.in_tree
        request.in_tree = len(pages)
        self.stand_on(request, self.tree.match(pages))

    def release(self, request: Request, *, keeps: bool) -> None:
        if self.caching and keeps:
            self.keep(request, request.computed)
        self.free += -(-request.computed // self.page_size) - request.in_tree
        request.computed = request.in_tree = 0
        if request.node is not None:
            self.tree.lock(request.node, -1)
            request.node = None
