"""Count the lines of the loop that each load executes, uncompiled, and print them as JSON; run as a script by the test.

The count does not depend on the machine. It follows the instructions that the compiled loop executes, and so the time.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers import trace_of

import planner
from planner.deployment.deploy import resolve
from planner.deployment.shaped_load import shape_load
from planner.loop.state.engine_settings import Recording
from planner.replays.fleet.replicas import serve
from planner.settings.scenario import Scenario
from planner.traces import Trace

LOOP = str(Path(planner.__file__).parent / "loop")
FAST: dict[str, Any] = {"rate_scale": 8.0}
LOADS: dict[str, tuple[bool, dict[str, Any]]] = {  # whether requests have prefixes, and options
    "chat": (False, {}),
    "chat, 8 times the rate": (False, FAST),
    "chat, little memory": (False, FAST | {"num_gpu_blocks": 1200}),
    "chat, 32 at once": (False, {"max_concurrency": 32}),
    "chat, SGLang": (False, {"engine": "sglang"}),
    "chat, TensorRT-LLM": (False, {"engine": "trtllm"}),
    "chat, drafts": (False, {"num_speculative_tokens": 3, "speculative_acceptance": "0.8,0.6,0.4"}),
    "chat, four replicas": (False, FAST | {"data_parallel_size": 4, "router": "round-robin"}),
    "turns, prefix caching": (True, {}),
    "turns, prefix caching, little memory": (True, FAST | {"num_gpu_blocks": 2500}),
    "turns, SGLang's tree": (True, {"engine": "sglang"}),
}


def load(has_prefixes: bool, num_requests: int = 75) -> Trace:
    """Return requests at 5 a second, a thousand prompt tokens and a hundred output tokens in the median."""
    random = np.random.default_rng(7)
    arrival_s = np.cumsum(random.exponential(0.2, num_requests))
    inputs = np.clip(random.lognormal(np.log(1000), 0.8, num_requests), 16, 8000).astype(int)
    outputs = np.clip(random.lognormal(np.log(100), 0.8, num_requests), 1, 1000).astype(int)
    rows = [(float(at_s), int(given), int(out)) for at_s, given, out in zip(arrival_s, inputs, outputs, strict=True)]
    if not has_prefixes:
        return trace_of(rows)
    contents = [[10_000 * (k % 40) + place for place in range(given // 16)] for k, (_, given, _) in enumerate(rows)]
    return trace_of(rows, hash_ids=contents)


def lines_executed(run: Callable[[], Any]) -> int:
    """Return how many lines of the loop a call executes."""
    count = 0

    def on_line(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "line"
        return on_line

    def on_call(frame: FrameType, _: str, __: Any) -> Any:
        return on_line if frame.f_code.co_filename.startswith(LOOP) else None

    sys.settrace(on_call)
    try:
        run()
    finally:
        sys.settrace(None)
    return count


def costs() -> dict[str, float]:
    """Return the lines of the loop a request, for each load [1]."""
    found = {}
    for name, (has_prefixes, options) in LOADS.items():
        scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", **options)
        trace = shape_load(scenario, load(has_prefixes))
        deployment = resolve(scenario, trace)
        count = lines_executed(lambda t=trace, d=deployment: serve(t, d, recording=Recording()))  # type: ignore[misc]
        found[name] = round(count / trace.num_requests, 1)
    return found


if __name__ == "__main__":
    print(json.dumps(costs(), indent=1))
