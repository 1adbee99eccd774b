"""Text Embeddings Inference's scheduler, written from its rules: a queue, and two tasks that compose batches.

core/src/queue.rs: a batch is the first requests of the queue, while their tokens fit into `max_batch_tokens` and there
are fewer than `max_batch_requests`. core/src/infer.rs: each of two tasks composes a batch, hands it to the one backend,
waits until it is through, and composes the next; if the queue is empty it sleeps until a request arrives. So one batch
is composed while another runs, and no third. A request is refused if `max_concurrent_requests` are in the server.
Requests of one instant are in the queue together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

TASKS = 2


@dataclass
class Batch:
    """The requests of a batch by number, its tokens, and its end once it has started [s]."""

    requests: list[int] = field(default_factory=list)
    tokens: int = 0
    end_s: float = math.nan


@dataclass
class Server:
    """The queue and the batches in flight, of which the first runs.

    Parameters
    ----------
    tokens : of each request's prompt.
    counts_flight : whether the requests in flight are among the concurrent ones, as in the server. The replay limits
        waiting requests alone.
    """

    tokens: Sequence[int]
    max_batch_tokens: int
    max_batch_requests: float = math.inf
    max_concurrent_requests: float = math.inf
    counts_flight: bool = True
    queue: list[int] = field(default_factory=list)
    flight: list[Batch] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    def add(self, request: int) -> None:
        inside = len(self.queue)
        if self.counts_flight:
            inside += sum(len(batch.requests) for batch in self.flight)
        (self.queue if inside < self.max_concurrent_requests else self.refused).append(request)

    def next_batch(self) -> Batch:
        batch = Batch()
        while self.queue and batch.tokens + self.tokens[self.queue[0]] <= self.max_batch_tokens:
            batch.tokens += self.tokens[self.queue[0]]
            batch.requests.append(self.queue.pop(0))
            if len(batch.requests) == self.max_batch_requests:
                break
        return batch

    def compose(self, now_s: float) -> None:
        """Let the tasks that are free compose batches."""
        while len(self.flight) < TASKS and self.queue:
            self.flight.append(self.next_batch())
            self.batches.append(self.flight[-1])
            self.start(now_s)

    def start(self, now_s: float) -> None:
        """Let the first batch in flight start, unless it runs."""
        if self.flight and math.isnan(self.flight[0].end_s):
            self.flight[0].end_s = now_s + (0.01 + 0.0001 * self.flight[0].tokens)


def replay(arrivals: Sequence[float], server: Server) -> list[float]:
    """Serve requests, and return the end of each; NaN if it is refused [s]."""
    ends, arrived = [math.nan] * len(arrivals), 0
    while arrived < len(arrivals) or server.flight:
        end_s = server.flight[0].end_s if server.flight else math.inf
        now_s = min(end_s, arrivals[arrived] if arrived < len(arrivals) else math.inf)
        while arrived < len(arrivals) and arrivals[arrived] <= now_s:
            server.add(arrived)
            arrived += 1
        if now_s == end_s:
            for request in server.flight.pop(0).requests:
                ends[request] = now_s
            server.start(now_s)
        server.compose(now_s)
    return ends
