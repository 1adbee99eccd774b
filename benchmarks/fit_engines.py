"""Fits the bundled constants of each engine to published closed-loop runs, and writes `hardware_db/engines/*.toml`.

    python benchmarks/fit_engines.py [vllm sglang trtllm]

Every fit starts from PRIORS, which know none of the runs, and moves the times alone: kernels take what their benchmarks
say. Runs whose protocol is not stated (`client` = internal) are left out: they show another load than they name.
"""

import argparse
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from planner.catalog.catalog_files import load_gpu, load_model
from planner.engines import ENGINES
from planner.files.writing import write_text
from planner.measured.calibration.constant_fit import LOOSE, Calibration, fit
from planner.measured.calibration.observations import Runs, prepare
from planner.measured.run_table import Measurement, read_measured
from planner.steptime.engine_constants import bounds
from planner.steptime.step_context import runs_flashinfer

ROOT = Path(__file__).resolve().parents[1]
RUNS = Path(os.environ.get("PLANNER_SHARED", ROOT.parent / "shared")) / "measured" / "closed_loop_means.csv"
# Its `source` is the ticket, or the post, that states what a run's means were; posts' TPOT may be medians.
PUBLISHED_RUNS = ROOT / "benchmarks" / "accuracy" / "published_runs.csv"
SOURCE = ("InferenceX runs and others in NVIDIA AIConfigurator's published silicon sample (Apache-2.0), 2025-10 to "
          "2026-04")
NEWEST_SOURCE = "22 of SGLang 0.5.12 that InferenceX's tickets state (benchmarks/accuracy/published_runs.csv)"

# Start of a fit, and the value of a constant that the runs cannot determine. Sources:
# - Kernels run as in their benchmarks, without the benchmark's launch of about 3 µs each.
# - A layer's small kernels (norms, rotary, activation) took 8 to 10 µs on two consumer GPUs (LLMServingSim's tables).
#   An MoE layer has a few more. Large ones reach the bandwidth of GEMMs.
# - Python launches a layer's kernels in about 0.3 ms, and those of routed experts in 0.5 ms more (Qwen3-8B and
#   Qwen3-30B-A3B without graphs, docs/lab/hosts.md). With prompts, MLA adds 0.8 ms (SGLang: 83 ms for a token of
#   DeepSeek-V3, sgl-project/sglang#12160; 123 ms for 998 tokens of Kimi-K2.6 on GB300, 51 ms with a graph, #32655 and
#   #35807). Linear attention adds 1.0 ms (74 ms for 1,024 decodes of Qwen3-Next, vllm-project/vllm#27222).
# - FlashInfer's share is a guess.
# - A host's millisecond on one GPU is from rising rates on vLLM 0.11. The wait for worker processes without async
#   scheduling is from runs of vLLM 0.8 and 0.12 (docs/lab/hosts.md).
# - The time of sampling without reading logits is from two single cards (docs/lab/hosts.md).
# - A layer of an older release adds three kernels, a guess.
# - All others are orders of magnitude from the engine makers' published profiles.
PRIORS = {
    "linear_ratio": 1.0, "experts_ratio": 1.0, "compute_ratio": 1.0, "prompt_attention_ratio": 1.1,
    "decode_attention_ratio": 1.0, "collective_wait_s": 6e-6, "kernel_floor_s": 3e-6, "layer_s": 10e-6,
    "moe_layer_s": 5e-6, "activation_bandwidth_frac": 0.8, "sampling_s_per_seq": 2e-7, "host_s": 1e-3,
    "host_s_per_seq": 15e-6, "workers_s": 2e-3, "serial_workers_s": 0.5e-3, "serial_workers_s_per_seq": 15e-6,
    "launch_s_per_layer": 300e-6, "launch_s_per_moe_layer": 500e-6, "launch_s_per_mla_layer": 0.8e-3,
    "launch_s_per_linear_layer": 1e-3, "launch_s_per_flashinfer_layer": 200e-6, "decode_launch_s_per_layer": 0.3e-3,
    "decode_launch_s_per_part": 0.5e-3, "overhead_s": 0.3e-3, "overhead_s_per_seq": 4e-6, "frontend_s": 1e-3,
    "frontend_s_per_token": 2e-6, "latency_s": 8e-3, "latency_s_per_token": 1e-6, "latency_s_per_seq": 1e-4,
    "index_layer_s": 60e-6, "older_layer_s": 10e-6,
}
# What is fitted. Ratios to the kernels' benchmarks and fractions of a peak stay: with them, runs fit a little better,
# and a GPU or model that none of them has comes out far worse, since they make up for one another. So do the times that
# a sequence adds: that beside both GPU and host is 4 to 12 µs by fits without one GPU or another, which err no less
# with its prior, and two single cards, whose kernels are known, leave nothing for more. What launching decodes takes
# stays as well, since nearly all that these runs have are graphs; and so does what is in series without asynchronous
# scheduling, since all of them have it.
TIMES = tuple(name for name in bounds() if not name.endswith(("_ratio", "_frac")) and name != "overhead_s_per_seq"
              and not name.startswith(("decode_launch", "serial_workers")))
TIGHT = dataclasses.replace(LOOSE, weight=2.0, time=0.6)  # of many deployments, and for those that none of them is


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", choices=[*ENGINES, []], help="all of them unless some are named")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; as many as there are cores")
    options = parser.parse_args()
    runs = [*read_measured(RUNS), *newest_runs()]
    for engine in options.engines or ENGINES:
        found = fit_runs(usable([run for run in runs if run.groups["engine"] == engine]), jobs=options.jobs)
        write_text(ROOT / "hardware_db" / "engines" / f"{engine}.toml", toml(engine, found, len(found.log_errors)))
        print(f"{engine}: {len(found.log_errors)} runs")


def newest_runs() -> list[Measurement]:
    """Return the runs that show the newest releases, of which the published sample has none: SGLang's on Blackwell."""
    return list(filter(is_newest, read_measured(PUBLISHED_RUNS)))


def is_newest(run: Measurement) -> bool:
    """Tell whether a published run is one of those."""
    return run.groups["engine"] == "sglang" and run.groups["gpu"] in ("b200-sxm", "b300-sxm")


def usable(runs: Sequence[Measurement]) -> list[Measurement]:
    """Return the runs as a fit takes them: of the stated protocol, at the load that they state.

    Of those with speculation only where the host does not work beside the GPU. What is accepted is known roughly, and
    what drafting adds is no constant here, but the host's time for a token is seen nowhere else: the GPU's hides it.
    """
    return [run for run in runs if run.status == "ok" and run.groups["client"] == "inferencex"
            and not is_mislabelled(run) and (not speculates(run) or shows_the_host(run))]


def speculates(run: Measurement) -> bool:
    """Tell whether tokens were drafted in a run."""
    return bool(run.scenario and run.scenario.num_speculative_tokens)


def shows_the_host(run: Measurement) -> bool:
    """Tell whether steps of a run took the host's time on top of the GPU's."""
    return bool(run.scenario and run.scenario.async_scheduling is False)


def is_mislabelled(run: Measurement) -> bool:
    """Tell whether a run cannot have had the concurrency that it states.

    gpt-oss-120b on H100 under vLLM at "512" concurrent: TPOT is that of 4 to 64 running, and TTFT 4.5 service times, as
    when 10 · c prompts all wait at once for an engine that runs c.
    """
    assert run.scenario is not None
    return ("gpt-oss" in run.groups["model"] and run.scenario.gpu == "h100-sxm" and run.scenario.engine == "vllm"
            and (run.scenario.max_concurrency or 0) >= 512)


def has_plain_layers(run: Measurement) -> bool:
    """Tell whether a run's model has no experts: elsewhere a layer's small kernels are not told from an MoE layer's."""
    return run.scenario is not None and load_model(str(run.scenario.model)).num_moe_layers == 0


def has_flashinfer(run: Measurement) -> bool:
    """Tell whether a run's attention is FlashInfer's under vLLM."""
    assert run.scenario is not None
    return runs_flashinfer(run.scenario.engine, load_gpu(str(run.scenario.gpu)))


def releases_shown(runs: Sequence[Measurement]) -> set[bool]:
    """Return whether releases before an engine's newest line and of it ran models whose layers differ between them."""
    return {ENGINES[each.engine].is_older(each.engine_version) for each in (run.scenario for run in runs)
            if each is not None and ENGINES[each.engine].kernels.older_layers(load_model(str(each.model)))}


def is_shown(name: str, runs: Sequence[Measurement]) -> bool:
    """Tell whether runs show a time apart from others.

    The host's for a sequence by speculation, a layer's by models without experts, FlashInfer's by runs with it and
    without, an older release's layers by runs of both kinds.
    """
    if name == "older_layer_s":
        return len(releases_shown(runs)) == 2
    if name == "launch_s_per_flashinfer_layer":
        return len(set(map(has_flashinfer, runs))) == 2
    if name in ("host_s_per_seq", "sampling_s_per_seq"):
        return any(map(speculates, runs))
    return name != "layer_s" or any(map(has_plain_layers, runs))


def fit_runs(runs: Sequence[Measurement], *, jobs: int, max_steps: int = 8) -> Calibration:
    """Fit the times that runs of one engine show."""
    observed = Runs(prepared=prepare(runs, PRIORS))
    names = [name for name in TIMES if is_shown(name, runs)]
    with observed.evaluator(jobs) as evaluate:
        return fit(observed, PRIORS, names, evaluate=evaluate, prior=TIGHT, max_steps=max_steps)


def toml(engine: str, found: Calibration, num_runs: int) -> str:
    """Return the text of an engine's file."""
    lines = [f"# Constants of {engine}; written by benchmarks/fit_engines.py, not by hand. "
             "Names: planner/steptime/engine_constants.py.",
             f"# Fitted to {num_runs} runs; those without an interval are priors.", "", "[constants]"]
    lines += [f"{name} = {value:.4g}" for name, value in found.constants.items()]
    lines += ["", "[intervals]  # 80 %, by the curvature of the fit at its minimum"]
    lines += [f"{name} = [{low:.4g}, {high:.4g}]" for name, (low, high) in found.intervals.items()]
    runs = SOURCE + (f"; {NEWEST_SOURCE}" if engine == "sglang" else "")
    lines += ["", "[source]", f'engine = "{engine}"', f'runs = "{runs}"', f"num_runs = {num_runs}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
