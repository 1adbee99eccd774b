"""A change of any of ATOM's rules, as they are written out plainly, changes the schedule of a random case.

The loop is equal to these rules on cases of the same kinds. Seven changes are left out, because they change no
schedule: `break` and `continue` for a cut prompt without room and the seats of cut prompts (cut prompts have had their
room in an earlier step), the earliest arrival of the waiting instead of the first's (they stand in that order), a lone
prompt without chunks that is longer than the budget (it was dropped before), `is_cut` of a request that yields (cut
prompts do not decode), and the order of equal steps of bookkeeping.
"""

import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_loop_atom import ID_TOKENS, RARE

SOURCE = (Path(__file__).parent / "rules_atom.py").read_text().replace("100_000", "3_000")
MOST = 4_000  # random cases
RULES = [  # name, text, changed text
    ("cut prompts: threshold",
     "n = self.cut(self.capped(request.known - request.computed))",
     "n = self.cut(request.known - request.computed)"),
    ("cut prompts: prompt only",
     "self.capped(request.known - request.computed)",
     "self.capped(len(request.prompt) - request.computed)"),
    ("cut prompts before new ones",
     "        for request in self.running:\n            if len(self.step.rows) == self.max_num_seqs",
     "        for request in reversed(self.running):\n            if len(self.step.rows) == self.max_num_seqs"),
    ("budget full",
     "sum(self.step.rows.values()) < self.max_num_batched_tokens):",
     "sum(self.step.rows.values()) <= self.max_num_batched_tokens):"),
    ("dropped: not looked behind",
     "dropped.finished_s, dropped.is_dropped = now_s, True\n",
     "dropped.finished_s, dropped.is_dropped = now_s, True\n                break\n"),
    ("blocked head is passed over",
     "            elif not self.admit(self.waiting[0]):\n                break",
     "            elif not self.admit(self.waiting[0]):\n                if len(self.waiting) < 2 or n"
     "ot self.admit(self.waiting[1]):\n                    break"),
    ("decodes with prompts",
     "        if not self.step.rows:\n            self.schedule_decodes()",
     "        if not self.waiting:\n            self.schedule_decodes()"),
    ("threshold none", "return min(n, self.long_prefill_token_threshold) if", "return n if"),
    ("cut: exact fit", "        if n <= left:", "        if n < left:"),
    ("cut: unit 64", "unit = max(self.block_size, 64)", "unit = self.block_size"),
    ("cut: unit none", "return left // unit * unit or (0 if self.step.rows else left)", "return left"),
    ("cut: lone prompt", "or (0 if self.step.rows else left)", "or 0"),
    ("cut: any prompt", "or (0 if self.step.rows else left)", "or left"),
    ("delay: none", "if self.scheduler_delay_factor <= 0:", "if True:"),
    ("delay: latency", "            self.latency_s = now_s - self.asked_s", "            self.latency_s = now_s"),
    ("delay: clock", "self.asked_s, self.had_prompts = now_s, False", "self.had_prompts = False"),
    ("delay: had prompts stays", "self.asked_s, self.had_prompts = now_s, False", "self.asked_s = now_s"),
    ("delay: idle", "if not self.waiting or not self.running:", "if not self.waiting:"),
    ("delay: latest", "min(r.arrival_s for r in self.waiting)", "max(r.arrival_s for r in self.waiting)"),
    ("delay: equal", "for r in self.waiting) > self", "for r in self.waiting) >= self"),
    ("impossible: budget",
     "is_long = not self.enable_chunked_prefill and request.known > self.max_num_batched_tokens",
     "is_long = False"),
    ("impossible: budget with chunks", "is_long = not self.enable_chunked_prefill and request", "is_long = request"),
    ("impossible: model length equal", "request.known > self.max_model_len", "request.known >= self.max_model_len"),
    ("impossible: model length none", "request.known > self.max_model_len", "False"),
    ("impossible: prompt",
     "self.blocks_for(request.known) > self.num_blocks",
     "self.blocks_for(len(request.prompt)) > self.num_blocks"),
    ("impossible: blocks equal",
     "self.blocks_for(request.known) > self.num_blocks",
     "self.blocks_for(request.known) >= self.num_blocks"),
    ("seats of running", "if len(self.running) >= self.max_num_seqs:", "if len(self.step.rows) >= self.max_num_seqs:"),
    ("idle hits cost", "num_used = sum(self.memory.users[b] > 0 for b in hits)", "num_used = len(hits)"),
    ("used hits cost", "num_used = sum(self.memory.users[b] > 0 for b in hits)", "num_used = 0"),
    ("admission: a block of reserve",
     "- num_used > self.memory.num_free:\n            return False\n        n =",
     "- num_used >= self.memory.num_free:\n            return False\n        n ="),
    ("admission: room for the chunk only",
     "if self.blocks_for(request.known) - num_used > self.memory.num_free:",
     "if self.blocks_for(min(request.known, len(hits) * self.block_size + self.max_num_batched_tokens"
     ")) - num_used > self.memory.num_free:"),
    ("new prompts: threshold", "            n = self.cut(self.capped(n))", "            n = self.cut(n)"),
    ("no chunks: waits",
     "        elif self.step.rows and n > self.max_num_batched_tokens - sum(self.step.rows.values()):",
     "        elif False:"),
    ("num_cached of the last admission",
     "        if request.num_cached is None:\n            request.num_cached = request.computed",
     "        request.num_cached = request.computed"),
    ("last block is hit", "range(self.blocks_for(request.known) - 1):", "range(request.known // self.block_size):"),
    ("hits: no chain", "content = self.content(request, k, content)", "content = self.content(request, k, None)"),
    ("hits of the prompt only",
     "range(self.blocks_for(request.known) - 1):",
     "range(self.blocks_for(len(request.prompt)) - 1):"),
    ("take: cached first",
     "        if self.empty:\n            b = heappop(self.empty)",
     "        if self.empty and not self.cached:\n            b = heappop(self.empty)"),
    ("take: most recent", "popitem(last=False)", "popitem(last=True)"),
    ("take: own entry only",
     "            if self.table.get(self.contents[b]) == b:\n                del self.table[self.contents[b]]",
     "            self.table.pop(self.contents[b], None)"),
    ("take: entry stays",
     "            if self.table.get(self.contents[b]) == b:\n                del self.table[self.contents[b]]\n",
     ""),
    ("table: the first stays", "        self.table[content] = b", "        self.table.setdefault(content, b)"),
    ("release in order", "for b in reversed(request.blocks):", "for b in request.blocks:"),
    ("decodes: victim is the first",
     "victim = ahead.pop() if ahead else request",
     "victim = ahead.pop(0) if ahead else request"),
    ("decodes: itself first", "victim = ahead.pop() if ahead else request", "victim = request"),
    ("decodes: victim may have had a turn",
     "victim = ahead.pop() if ahead else request",
     "victim = ahead.pop() if ahead else (done.pop() if done else request)"),
    ("decodes: exact room",
     "self.blocks_for(request.known + n) - len(request.blocks)",
     "self.blocks_for(request.known + n - 1) - len(request.blocks)"),
    ("decodes: room for the known tokens",
     "self.blocks_for(request.known + n) - len(request.blocks)",
     "self.blocks_for(request.known) - len(request.blocks)"),
    ("decodes: room for one token",
     "self.blocks_for(request.known + n) - len(request.blocks)",
     "self.blocks_for(request.known + 1) - len(request.blocks)"),
    ("decodes: budget", "and (len(done) + 1) * n <= self.max_num_batched_tokens:", "and True:"),
    ("decodes: budget of requests", "(len(done) + 1) * n <=", "(len(done) + 1) <="),
    ("decodes: order", "self.running = done + ahead", "self.running = ahead + done"),
    ("preempt: drafts stay",
     "num_extra = self.num_speculative_tokens + request.rejected if",
     "num_extra = request.rejected if"),
    ("preempt: all placeholders go",
     "num_extra = self.num_speculative_tokens + request.rejected if self.num_speculative_tokens else 0",
     "num_extra = 1 + self.num_speculative_tokens"),
    ("preempt: rejected counted out",
     "num_extra = self.num_speculative_tokens + request.rejected if",
     "num_extra = self.num_speculative_tokens if"),
    ("preempt: rejected stays", "request.rejected, request.is_cut = 0, False", "request.is_cut = False"),
    ("preempt: to the end of the queue", "self.waiting.insert(0, request)", "self.waiting.append(request)"),
    ("results: cut before", "and request not in were_cut:", "and True:"),
    ("results: cut now", "if request in late.rows and not request.is_cut and", "if request in late.rows and"),
    ("results: through with all",
     "request.is_cut = request.computed < len(request.prompt)",
     "request.is_cut = request.computed < request.known"),
    ("results: preempted rows keep tokens",
     "for request in self.running if late is not None else ():",
     "for request in ([*self.running, *(r for r in self.waiting if late is not None and r in late.row"
     "s)]) if late is not None else ():"),
    ("results: placeholders without rejected",
     "[END] * (1 + self.num_speculative_tokens - request.rejected)",
     "[END] * (1 + self.num_speculative_tokens)"),
    ("publish: when read",
     "            self.publish(request, request.computed + n)\n            request.computed += n",
     "            request.computed += n"),
    ("publish: partial blocks",
     "min(num_tokens // self.block_size, len(request.blocks))",
     "min(-(-num_tokens // self.block_size), len(request.blocks))"),
    ("publish: outputs not", "        self.publish(request, real)\n", ""),
    ("publish: outputs at the end not",
     "        self.publish(request, real)\n",
     "        if request.finished_s is None:\n            self.publish(request, real)\n"),
    ("emit: rejected after prefill",
     "request.rejected = 0 if late.is_prefill else k - self.num_accepted",
     "request.rejected = k - self.num_accepted"),
    ("emit: first token each time", "if request.first_token_s is None:", "if True:"),
    ("emit: limit at the token",
     "            real = real if request.ends_by_length else max(last, first + 1)",
     "            real = last"),
    ("emit: end hidden", "            real = real if request.ends_by_length else max(last, first + 1)\n", ""),
    ("emit: end one early", "if real >= last:", "if real >= last - 1:"),
    ("emit: end one late", "if real >= last:", "if real > last:"),
    ("clock: has_output any",
     "        if has_output and late is not None:\n            now_s = max(now_s, late_s)",
     "        if late is not None:\n            now_s = max(now_s, late_s)"),
    ("clock: late stays",
     "        if has_output:\n            late, late_s = step, end_s",
     "        late, late_s = step, end_s"),
    ("clock: middle chunks bring tokens", "late if has_output else None, now_s)", "late, now_s)"),
    ("clock: waits for own step", "now_s = max(now_s, start_s)\n", "now_s = max(now_s, end_s)\n"),
    ("clock: no start", "        now_s = max(now_s, start_s)\n", ""),
    ("output: of a recomputed prompt", "r.computed + n >= len(r.prompt) for r", "r.computed + n >= r.known for r"),
    ("output: all", "return any(not self", "return all(not self"),
    ("claim: stays free", "        self.cached.pop(b, None)\n        self.users[b] += 1", "        self.users[b] += 1"),
]


def random_case(rng: random.Random) -> dict[str, Any]:
    """Return a small case in little memory; equal prompts end by length, as their tokens are equal."""
    drafts = rng.choice((0, 0, 1, 3))
    prompts = [(rng.randint(2, rng.choice((20, 80))), k) for k in range(rng.randint(1, 3))]
    chosen = [rng.choice(prompts) for _ in range(rng.randint(2, 5))]
    lengths = [(length, rng.randint(1, 16)) for length, _ in chosen]
    size = rng.choice((1, 1, 2, 4)) if drafts == 0 else 8
    longest = max(length + output for length, output in lengths)
    return {
        "arrivals": sorted(rng.choice((0.0, 0.0, 0.003, 0.012, 0.02, 0.05, 0.1, 0.3)) for _ in chosen),
        "lengths": lengths,
        "limits": [output if chosen.count(prompt) > 1 or rng.random() < 0.5 else output + 5
                   for prompt, (_, output) in zip(chosen, lengths, strict=True)],
        "ids": [[first] + [0] * 29 for _, first in chosen], "accepted": rng.randint(0, drafts), "drafts": drafts,
        "block_size": size, "num_gpu_blocks": max(longest + rng.choice((-10, 0, 2, 4, 8, 30)), 0) // size + 2,
        "max_num_seqs": rng.randint(1, 4), "max_num_batched_tokens": rng.choice((4, 8, 16, 30, 70, 100)),
        "max_model_len": rng.choice((4096, 4096, *(length for length, _ in prompts))),
        "long_prefill_token_threshold": rng.choice((0, 3, 16, 30)),
        "scheduler_delay_factor": rng.choice((0.0, 0.0, 1.0, 2.0)),
        "enable_chunked_prefill": rng.random() < 0.8, "enable_prefix_caching": rng.random() < 0.7}


def module_of(source: str) -> ModuleType:
    module = ModuleType("changed_rules")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(source, module.__name__, "exec"), module.__dict__)
    return module


def outcome(rules: ModuleType, case: dict[str, Any]) -> Any:
    """Return the steps, preemptions and times of a case; None if a request goes round for ever."""
    own = {name: case[name] for name in case if name not in {
        "arrivals", "lengths", "limits", "ids", "accepted", "drafts", "num_gpu_blocks"}}
    prompts = [[("id", *ids[: j // ID_TOKENS + 1], j) for j in range(length)]
               for ids, (length, _) in zip(case["ids"], case["lengths"], strict=True)]
    requests = [rules.Request(str(k), case["arrivals"][k], prompts[k], output, case["limits"][k] == output)
                for k, (_, output) in enumerate(case["lengths"])]
    scheduler = rules.Scheduler(num_blocks=case["num_gpu_blocks"], num_speculative_tokens=case["drafts"],
                                num_accepted=case["accepted"], **own)
    try:
        steps = rules.replay(requests, scheduler, 0.01, 0.0001)
    except (AssertionError, IndexError, KeyError):
        return None
    return None if scheduler.num_kept_drafts else (steps, [
        (r.first_token_s, r.finished_s, r.is_dropped, r.num_cached) for r in requests])


@pytest.fixture(scope="module")
def cases() -> list[tuple[dict[str, Any], Any]]:
    """Return the cases, the rare ones first, each with the outcome by the rules."""
    rules, rng = module_of(SOURCE), random.Random(0)
    drawn = [*RARE.values(), *(random_case(rng) for _ in range(MOST))]
    return [(case, said) for case in drawn if (said := outcome(rules, case)) is not None]


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES])
def test_a_changed_rule_changes_a_schedule(old: str, new: str, cases: list[tuple[dict[str, Any], Any]]) -> None:
    assert old in SOURCE
    changed = module_of(SOURCE.replace(old, new))
    assert any(outcome(changed, case) != said for case, said in cases)
