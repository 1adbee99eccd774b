"""SGLang's scheduler from its rules alone: no aggregation, every page, node and row by itself.

Slow and plain on purpose: `test_rules_sglang.py` holds it against recordings, and the replay loop against it.
"""

from typing import Any

from rules_sglang_memory import Batch, Request
from rules_sglang_order import Queue

CLIP, STEPS_AHEAD, DECAY_STEPS = 4096, 20, 600


class Scheduler(Queue):
    """The rules of SGLang 0.5.23.

    With `ends_wait` those up to 0.5.16: who has ended leaves the running batch when a decode step is composed. With
    `strict_prefill` those up to 0.5.9: a further prompt must be shorter than what is left of max_prefill_tokens.
    """

    def add(self, request: Request, now_s: float) -> None:
        """Set the limit of the output; refuse what is too long."""
        room = min(self.context, self.num_pages * self.page_size)
        length = len(request.prompt)
        asked = request.asked if request.asked is not None else 2**30
        most = min(room - 2 - length, self.num_pages * self.page_size - self.paged(length) - self.page_size - 1)
        request.limit = max(min(asked, most), 0)
        if length >= room - 6:
            request.finished_s = now_s
        else:
            self.enter(request)

    def enter(self, request: Request) -> None:
        self.num_entered += 1
        request.entered = self.num_entered
        self.waiting.append(request)

    def compose(self) -> Batch | None:
        """Return the next step's batch."""
        self.preempted = []
        if self.cut is not None and self.caching and self.last is not None and self.cut in self.last.rows:
            self.keep(self.cut, self.cut.computed)
        if self.last is not None and self.last.is_prefill:
            staying = [r for r in self.last.requests if not r.finished and r is not self.cut]
            if len(staying) < len(self.last.requests):
                self.running.full = False
            if staying and self.running.requests:
                self.running.requests += staying
            elif staying:
                self.running = Batch(staying)
        if not self.ends_wait:
            self.drop_ended()
        batch = None
        if self.to_hold > 0:
            self.to_hold -= 1
        else:
            batch = self.compose_prompts()
        if batch is not None:
            self.to_hold = self.interval
        batch = batch or self.compose_decodes()
        if batch is not None:
            batch.emitting = {r: r.computed for r in batch.rows if r is not self.cut}
        return batch

    def drop_ended(self) -> None:
        staying = [r for r in self.running.requests if not r.finished]
        if len(staying) < len(self.running.requests):
            self.running.requests = staying
            self.running.full = False

    def leave_known_ends(self) -> bool:
        """Take out who has ended or will have, by length, with the step in flight; tell whether there were any."""
        before = len(self.running.requests)
        self.running.requests = [r for r in self.running.requests if not r.finished and not self.ends_in_flight(r)]
        if len(self.running.requests) < before:
            self.running.full = False
            return True
        return False

    def ends_in_flight(self, request: Request) -> bool:
        in_flight = self.overlap and not self.ends_wait and self.last is not None and request in self.last.emitting
        return in_flight and request.emitted + 1 >= request.limit

    def promised(self, request: Request) -> float:
        return min(request.limit - request.emitted, CLIP) * self.ratio

    def compose_prompts(self) -> Batch | None:
        if self.by_priority:
            self.running.full = False
        if self.cut is None and (self.running.full or not self.waiting):
            return None
        if self.cut is None and not self.by_priority and len(self.running.requests) >= self.seats:
            self.running.full = True
            return None
        self.sort_waiting()
        num_mixed = len(self.running.requests) if self.mixed else 0
        self.left_input = self.max_prefill_tokens - num_mixed
        self.left_chunk = None if self.chunk is None else self.chunk - num_mixed
        promised = 0.0
        for request in self.running.requests:  # one by one: the sum of floats depends on the order
            promised += self.promised(request)
        self.offset: float = num_mixed + promised
        batch = Batch(is_prefill=True)
        self.yielded: list[Request] = []
        if self.cut is not None:
            self.cut = self.go_on(self.cut, batch)
        for request in list(self.waiting) if self.has_budget() or self.is_out_of_memory() else []:
            if len(batch.rows) >= self.seats - len(self.running.requests):
                self.running.full = True
            if self.running.full and not (self.by_priority and self.displace(request)):
                break
            if not self.admit(request, batch):
                break
        for request in self.yielded:
            self.enter(request)
        return self.compute(batch) if batch.rows else None

    def is_out_of_memory(self) -> bool:
        return self.left_memory() <= 0

    def has_budget(self) -> bool:
        return self.left_input > 0 and (self.left_chunk is None or self.left_chunk > 0)

    def compute(self, batch: Batch) -> Batch:
        """Take the memory of a step with prompts."""
        self.waiting = [r for r in self.waiting if r not in batch.rows]
        batch.requests = list(batch.rows)
        spare = len(batch.rows) * self.page_size if self.page_size > 1 else 0
        self.make_free(sum(batch.rows.values()) + spare)
        for request, n in batch.rows.items():
            self.hold(request, n)
        if self.mixed and self.running.requests:
            self.take_along(batch)
        return batch

    def take_along(self, batch: Batch) -> None:
        """A mixed step: the decodes go along, if their pages are free."""
        self.leave_known_ends()
        running = self.running.requests
        if running and self.can_decode(running):
            self.make_free(len(running) * self.page_size)
            for request in running:
                self.hold(request, 1)
                batch.rows[request] = 1
            batch.requests += running
            batch.num_decodes = len(running)
            self.running = Batch([], self.running.full)

    def left_memory(self) -> float:
        return self.free * self.page_size + self.evictable - self.offset

    def charge(self, tokens: int, promise: int) -> None:
        tokens = self.paged(tokens)
        self.offset += tokens + self.page_size + promise
        self.left_input -= tokens
        if self.left_chunk is not None:
            self.left_chunk -= tokens

    def go_on(self, request: Request, batch: Batch) -> Request | None:
        """The next chunk of the prompt that was cut comes first. Return it if it is cut again."""
        assert self.left_chunk is not None
        most = min(self.left_chunk, int(self.left_memory()))
        most = most if most > 0 else self.left_chunk
        rest = request.known - request.computed
        batch.rows[request] = min(rest, most)
        self.charge(batch.rows[request], 0 if rest > most else min(request.limit, CLIP))
        return request if rest > most else None

    def admit(self, request: Request, batch: Batch) -> bool:
        """Take a request from the queue; tell whether the next may be looked at."""
        node, hit = self.tree.root, 0
        if self.caching:
            node = self.tree.match(request.content(request.known - 1, self.page_size))
            hit = node.depth * self.page_size
        self.tree.lock(node, 1)
        n = self.fitting(request, hit, batch)
        self.tree.lock(node, -1)
        if n == 0:
            return False
        request.computed, request.in_tree = hit, hit // self.page_size
        if self.caching:
            self.stand_on(request, node)
        if request.num_cached is None:
            request.num_cached = hit
        batch.rows[request] = n
        is_cut = n < request.known - hit
        if is_cut:
            assert self.cut is None
            self.cut = request
        self.charge(n, 0 if is_cut else min(request.limit, CLIP))
        if self.is_out_of_memory():
            self.running.full = True
            return False
        return self.has_budget()

    def fitting(self, request: Request, hit: int, batch: Batch) -> int:
        rest = request.known - hit
        if rest + min(max(request.limit - request.emitted, 0), CLIP) + self.page_size >= self.left_memory():
            self.running.full = True
            return 0
        is_strict = self.strict_prefill or self.left_chunk is None
        if is_strict and batch.rows and self.paged(rest) >= self.left_input:
            return 0
        if self.left_chunk is None:
            return rest
        if self.paged(rest) > self.left_chunk:
            return max((hit + self.left_chunk // self.page_size * self.page_size)
                       // self.page_size * self.page_size - hit, 0)
        return rest

    def displace(self, request: Request) -> bool:
        """Let running requests of less urgency yield, until the request fits."""
        sign = 1 if self.low_first else -1
        candidates = sorted((r for r in self.running.requests if not r.finished and r not in self.yielded),
                            key=lambda r: (-sign * r.priority, -r.entered))
        missing = request.known + min(request.limit, CLIP) - self.left_memory()
        chosen = []
        for other in candidates:
            if (request.priority - other.priority) * -sign <= self.gap:
                break
            chosen.append(other)
            missing -= self.promised(other)
            if missing <= 0:
                break
        if not chosen or missing > 0:
            return False
        for other in [r for r in self.running.requests if r in chosen]:
            self.offset -= self.promised(other)
            self.running.requests.remove(other)
            self.give_up(other, len(self.running.requests))
        self.yielded += chosen  # SGLang queues a set, in no order; here the least urgent is queued first
        return True

    def give_up(self, request: Request, num_staying: int) -> None:
        self.release(request, keeps=False)
        if self.last is not None:
            self.last.emitting.pop(request, None)
        self.make_free(num_staying * STEPS_AHEAD)
        self.preempted.append(request)

    def compose_decodes(self) -> Batch | None:
        if not self.running.requests:
            return None
        someone_left = self.leave_known_ends()
        running = self.running.requests
        if not running:
            self.running.full = False
            return None
        if not self.can_decode(running):
            if self.overlap and someone_left and not self.ends_wait:
                return None
            self.retract()
        else:
            self.ratio = max(self.ratio - (self.first_ratio - self.lowest) / DECAY_STEPS, self.lowest)
        self.make_free(len(self.running.requests) * self.page_size)
        batch = Batch(list(self.running.requests), rows=dict.fromkeys(self.running.requests, 1),
                      num_decodes=len(self.running.requests))
        for request in batch.requests:
            self.hold(request, 1)
        return batch

    def can_decode(self, requests: list[Request]) -> bool:
        needed = sum(r.computed % self.page_size == 0 for r in requests) * self.page_size
        self.make_free(needed)
        return self.free * self.page_size >= needed

    def retract(self) -> None:
        """Those with the fewest tokens yield, the longest prompts first, until a decode step fits."""
        staying = sorted(self.running.requests, key=lambda r: (r.emitted, -len(r.prompt)), reverse=True)
        first = True
        while (first or not self.can_decode(staying)) and len(staying) > 1:
            first = False
            request = staying.pop()
            self.give_up(request, len(staying))
            self.enter(request)
        self.running.requests = staying
        self.running.full = False
        done = sum(r.emitted for r in staying) + STEPS_AHEAD * len(staying)
        self.ratio = min(done / (sum(r.limit for r in staying) + 1), 1.0)

    def finish(self, batch: Batch, now_s: float) -> None:
        prompts = list(batch.rows)[: len(batch.rows) - batch.num_decodes]
        for request, computed in batch.emitting.items():
            if request.finished:
                continue
            request.emitted += 1
            if request.first_token_s is None:
                request.first_token_s = now_s
            if request.emitted >= request.ends_at:
                request.finished_s = now_s
                self.release(request, keeps=True)
            elif self.caching and request in prompts:
                self.keep(request, computed)


def replay(requests: list[Request], scheduler: Scheduler, base_s: float, per_token_s: float) -> tuple[Any, Any]:
    """Return (step, request, tokens) of all steps in batch order, and (step, request) of all preemptions.

    The requests keep their times.
    """
    now_s, free_s, step, steps, preemptions = 0.0, 0.0, 0, [], set()
    pending = list(requests)
    while pending or scheduler.waiting or scheduler.running.requests or scheduler.last or scheduler.cut:
        while pending and pending[0].arrival_s <= now_s:
            scheduler.add(pending.pop(0), now_s)
        batch = scheduler.compose()
        if batch is not None:
            assert step < 20_000, "the rules themselves do not get on"
            preemptions |= {(step, r.name) for r in scheduler.preempted}
            free_s = free_s if scheduler.last is not None and scheduler.overlap else now_s
            ends_s = free_s + (base_s + per_token_s * sum(batch.rows.values()))
            steps += [(step, r.name, n) for r, n in batch.rows.items()]
            step += 1
        if scheduler.overlap:
            if scheduler.last is not None:
                now_s = free_s
                scheduler.finish(scheduler.last, now_s)
            elif batch is None:
                scheduler.ratio = scheduler.first_ratio
        elif batch is not None:
            now_s = ends_s
            scheduler.finish(batch, now_s)
        else:
            scheduler.ratio = scheduler.first_ratio
        is_idle = batch is None and scheduler.last is None and scheduler.cut is None and not scheduler.waiting
        if is_idle and pending:
            now_s = max(now_s, pending[0].arrival_s)
            scheduler.to_hold = 0  # an idle engine passes again and again
        if batch is not None:
            free_s = ends_s
        scheduler.last = batch
    return steps, preemptions
