"""Fits the bundled constants of each engine to published closed-loop runs, and writes `hardware_db/engines/*.toml`.

    python benchmarks/fit_engines.py [vllm sglang trtllm]

Every fit starts from PRIORS, which know none of the runs. Of runs whose protocol is not stated (`client` = internal)
every fourth counts, with its TPOT only: their TTFT shows another load than the one that they name.
"""

import argparse
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from planner.calibrate import Calibration, Prepared, Prior, evaluator, fit, prepare
from planner.engines import bounds
from planner.files import write_text
from planner.measured import Measurement, read_measured
from planner.projections import projections
from planner.roofline import gemm_kernel, moe_kernel, projection_format

ROOT = Path(__file__).resolve().parents[1]
RUNS = Path(os.environ.get("PLANNER_SHARED", ROOT.parent / "shared")) / "measured" / "closed_loop_means.csv"
ENGINES = ("vllm", "sglang", "trtllm")
SOURCE = ("InferenceX runs and others in NVIDIA AIConfigurator's published silicon sample (Apache-2.0), 2025-10 to "
          "2026-04")

THINNING = 4  # of the runs whose protocol is not stated: many loads of few deployments
# Where a fit starts, and what it stays at where runs do not tell. Kernels run as in their benchmarks, but for what
# launching them one by one takes there; a small kernel takes some 3 µs and a layer has six; Python launches a layer's
# kernels in some 0.3 ms; the rest are the orders of magnitude of profiles that the engines' makers have shown.
PRIORS = {
    "linear_ratio": 1.0, "experts_ratio": 1.0, "compute_ratio": 1.1, "prompt_attention_ratio": 1.1,
    "decode_attention_ratio": 1.0, "collective_wait_s": 6e-6, "kernel_floor_s": 3e-6, "layer_s": 20e-6,
    "moe_layer_s": 15e-6, "activation_bandwidth_frac": 0.6, "sampling_s_per_seq": 1e-6, "host_s": 3e-3,
    "host_s_per_seq": 15e-6, "launch_s_per_layer": 300e-6, "launch_s_per_mla_layer": 1e-3, "overhead_s": 0.3e-3,
    "overhead_s_per_seq": 4e-6, "frontend_s": 1e-3, "frontend_s_per_token": 0.5e-6, "latency_s": 8e-3,
    "latency_s_per_token": 1e-6, "index_layer_s": 60e-6,
}
# Kernels were measured on their own, so their ratios stay near 1: what whole runs take longer is looked for in what the
# benchmarks leave out. Looser ratios fit the runs as well and predict a GPU that no run was on far worse.
TIGHT = Prior(weight=2.0, ratio=0.08, frac=0.3, time=1.0, floor=0.4, kernel=0.08, gpu=0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", default=ENGINES, choices=[*ENGINES, []])
    parser.add_argument("--jobs", type=int, default=-1, help="processes; as many as there are cores")
    options = parser.parse_args()
    runs = read_measured(RUNS)
    for engine in options.engines:
        found = fit_runs(usable([run for run in runs if run.groups["engine"] == engine]), jobs=options.jobs)
        write_text(ROOT / "hardware_db" / "engines" / f"{engine}.toml", toml(engine, found, len(found.log_errors)))
        print(f"{engine}: {len(found.log_errors)} runs")


def usable(runs: Sequence[Measurement]) -> list[Measurement]:
    """Return the runs as a fit takes them: none that ran at another load than they state, nor such runs' TTFTs."""
    kept = [run for run in runs if run.status == "ok" and not is_mislabelled(run)]
    stated = [run for run in kept if run.groups["client"] == "inferencex"]
    others = [run for run in kept if run.groups["client"] != "inferencex"][::THINNING]
    return stated + [dataclasses.replace(run, measured={"tpot_ms": run.measured["tpot_ms"]}) for run in others]


def is_mislabelled(run: Measurement) -> bool:
    """Tell whether a run cannot have had the concurrency that it states.

    gpt-oss-120b on H100 under vLLM at "512" concurrent: TPOT is that of 4 to 64 running, and TTFT 4.5 service times, as
    when 10 · c prompts all wait at once for an engine that runs c.
    """
    assert run.scenario is not None
    return ("gpt-oss" in run.groups["model"] and run.scenario.gpu == "h100-sxm" and run.scenario.engine == "vllm"
            and (run.scenario.max_concurrency or 0) >= 512)


def fit_runs(runs: Sequence[Measurement], *, jobs: int, max_steps: int = 16) -> Calibration:
    """Fit all constants to runs of one engine, with a factor for each kernel and each GPU's clocks under load."""
    prepared = prepare(runs, PRIORS)
    gpus = sorted({run.scenario.gpu for run, _ in prepared if run.scenario and run.scenario.gpu})
    names = [*bounds(), *kernel_factors(prepared), *(f"compute_ratio@{gpu}" for gpu in gpus)]
    with evaluator(prepared, jobs=jobs) as evaluate:
        return fit(prepared, PRIORS, names, evaluate=evaluate, prior=TIGHT, max_steps=max_steps)


def kernel_factors(prepared: Prepared) -> list[str]:
    """Return the names of the factors for the kernels of some deployments.

    Dense 16-bit GEMMs have none: they are cuBLAS's in every version of every engine.
    """
    found = set()
    for _, deployment in prepared:
        stack = deployment.stack
        assert stack is not None
        formats = {projection_format(stack, gemm.quantized) for gemm in projections(stack.arch, 1)}
        found |= {f"linear_ratio.{gemm_kernel(stack, name)[0]}" for name in formats}
        if stack.arch.num_moe_layers:
            found.add(f"experts_ratio.{moe_kernel(stack)[0]}")
    return sorted(found - {"linear_ratio.bfloat16"})


def toml(engine: str, found: Calibration, num_runs: int) -> str:
    """Return the text of an engine's file."""
    lines = [f"# Constants of {engine}; written by benchmarks/fit_engines.py, not by hand. Names: planner/engines.py.",
             f"# A dotted name is a factor for one kernel. Fitted to {num_runs} runs.", "", "[constants]"]
    lines += [f"{_key(name)} = {value:.4g}" for name, value in found.constants.items()]
    lines += ["", "[intervals]  # 80 %, by the curvature of the fit at its minimum"]
    lines += [f"{_key(name)} = [{low:.4g}, {high:.4g}]" for name, (low, high) in found.intervals.items()]
    lines += ["", "[source]", f'engine = "{engine}"', f'runs = "{SOURCE}"', f"num_runs = {num_runs}"]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return f'"{name}"' if "." in name or "@" in name else name


if __name__ == "__main__":
    main()
