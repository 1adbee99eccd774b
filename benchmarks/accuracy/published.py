"""Runs that others publish one by one, and that no table or fit here has."""

from collections.abc import Sequence

import numpy as np

from benchmarks.accuracy.published_benchmarks import read_benchmarks
from benchmarks.accuracy.section import (
    Section,
    Verdict,
    ape,
    beside,
    error_row,
    grouped,
    measured_and_predicted,
    run_by_run,
    scatter,
)
from benchmarks.accuracy.unmeasured import unmeasured_coverage, unmeasured_residuals, unmeasured_runs
from benchmarks.fit_engines import PUBLISHED_RUNS, is_newest
from planner.catalog.catalog_files import load_gpu
from planner.measured.run_table import METRICS, read_measured
from planner.measured.validate import Prediction, predict_all
from planner.report.content import Listing

COMPARED = {"TPOT": "tpot_ms", "TTFT": "ttft_ms", "duration": "makespan_s"}


def published() -> Section:
    """Return the section on them."""
    tickets, benchmarks = predict_all(read_measured(PUBLISHED_RUNS)), predict_all(read_benchmarks())
    amd = [p for p in tickets if _vendor(p) == "AMD"]
    nvidia = [p for p in tickets if _vendor(p) == "NVIDIA"]
    fitted = [p for p in nvidia if is_newest(p.measurement)]
    parts = {"InferenceX on H200": [p for p in nvidia if not is_newest(p.measurement)],
             "InferenceX on B200 and B300, in a fit": fitted,
             "InferenceX on AMD Instinct": amd, "benchmarks": benchmarks}
    values = {f"{name}, {metric[:4].upper()}": measured_and_predicted(predictions, metric)
              for name, predictions in parts.items() for metric in METRICS}
    unmeasured = unmeasured_runs([*tickets, *benchmarks])
    durations = {"benchmarks, duration": measured_and_predicted(benchmarks, "makespan_s")}
    return Section(
        title="Runs published elsewhere",
        lead=f"{len(tickets)} runs whose means InferenceX's tickets and posts state, {len(amd)} of them on AMD's GPUs, "
             f"and {len(benchmarks)} benchmarks of vLLM, SGLang and TensorRT-LLM that threads and pages print with "
             f"their commands. No table and no fit here has one of them, but for {len(fitted)} of SGLang 0.5.12 that "
             "say what its newest releases take, nor any closed-loop run on A100 or H200 or of AMD's, nor most of the "
             "models.",
        verdicts=[Verdict(name=f"{name} median APE", limit=None, value=float(np.median(ape(predicted, measured))))
                  for name, (measured, predicted) in (values | durations).items()],
        figures={"published": scatter(values, "Runs published elsewhere", "a point is a run", "ms")},
        tables=[grouped("InferenceX, by GPU, model and version", "kind", tickets, _kind),
                run_by_run("InferenceX, measured → predicted [ms]", tickets), unmeasured_coverage(unmeasured),
                _benchmark_groups(benchmarks), _benchmark_runs(benchmarks),
                Listing(title="Benchmarks without a prediction", columns=("row", "why"),
                        rows=[[p.measurement.id, p.status] for p in benchmarks if p.status != "ok"])],
        notes=["The tickets' runs of 0.5.7 open cold: the first tenth of their requests waits some 2 s.",
               "AMD's runs are those that state GPU, version and layout; kernels are AITER's, tuned shape by shape, "
               "but SGLang's of FP8 in blocks on MI300X and MI325X is its Triton kernel, of which a profile of "
               "DeepSeek-R1 with 64 in flight under 0.5.9 has five times. Kimi-K2.5 under vLLM 0.16 and Qwen3.5 under "
               "SGLang 0.5.8 ran what the posts call fallbacks, 7 and 2 times slower than what came after. SGLang's "
               "image for AMD sends large all-reduces in 8 bit, which was measured on two GPUs and is left out on "
               "more.",
               "Benchmarks' settings are the engines' own for the GPU where a command gives none. Prompts that are all "
               "there at once wait for most of their TTFT: duration and TPOT say more.",
               "Qwen3-14B and 32B in FP8 on one H100 take 1.6 times as long as predicted under each of three engines, "
               "and gpt-oss-120b on two with long prompts; 8B there, 235B on eight and gpt-oss-120b on one do not. Why "
               "was not found.",
               "Sixteen of the benchmarks are not unseen: nine decided that SGLang's 16-bit experts ran Triton's "
               "kernel on B200, which is taken for the other models of that series as well, one what widening weights "
               "costs, and six of Qwen3-8B and 32B in 16 bit how many rows a tile has on H20. Those without CUDA "
               "graphs decided what launching decodes takes. Of SGLang's on H100, which ran under a profiler, two are "
               "left out: eight equal prompts ask for the same experts.",
               "SGLang's cookbook prints medians of TTFT and TPOT, which are left out, and throughput, from which "
               "durations follow: 106 runs of 0.5.13 to 0.5.16. Those with 100 requests in flight and more showed that "
               "its radix cache keeps recurrent states of prefixes in the pool of the sequences' own, a rule of its "
               "source: without it Qwen3.5's and 3.6's with 1,024 and more were 16 % off in the median, and nothing "
               "was fitted. Gemma 4's on B300, which ran Triton's attention, are left out. Kimi-K2.5's on H200 "
               "under 0.5.6 slow down with the context by up to 2.7 times, one at a time, as no later version does.",
               "tt-inference-server's TTFT is left out: its prompts of 4,096 tokens are read faster than at the GPUs' "
               "peak, as cached ones are.",
               "ShareGPT's lengths are taken as exponential, cut at 1,024 tokens, with the totals that were printed; "
               "GLM-4.6 as GLM-4.5, whose layers it has. That MXFP8 is widened to 16 bit before Blackwell was decided "
               "with MiniMax-M3's ten runs on H200 in view.",
               "Intervals of a deployment with a prior among its kernels rest on such runs "
               "(hardware_db/residuals/unmeasured_kernels.toml): each GPU's median error is one draw of what one more "
               "GPU's may be, by Student's t, and each run's own error comes on top."],
        data={"unmeasured": unmeasured_residuals(unmeasured)})


def _vendor(prediction: Prediction) -> str:
    return load_gpu(prediction.measurement.groups["gpu"]).vendor


def _kind(prediction: Prediction) -> str:
    gpu, version, *_ = prediction.measurement.id.split("-")
    groups = prediction.measurement.groups
    return f"{gpu}, {groups['model'].partition('/')[2]}, {groups['engine']} {version}"


def _benchmark_groups(benchmarks: Sequence[Prediction]) -> Listing:
    """Return the errors in TPOT, TTFT and duration, by load and engine, and by load and GPU."""
    rows = []
    for by in ("engine", "gpu"):
        for load, value in sorted({_load_and(by, p) for p in benchmarks}):
            part = [p for p in benchmarks if _load_and(by, p) == (load, value)]
            cells = []
            for metric in COMPARED.values():
                measured, predicted = measured_and_predicted(part, metric)
                runs, median, _, bias = error_row(predicted, measured)
                cells += [runs, median, bias]
            rows.append([load, value, *cells])
    kinds = [f"{name} {column}" for name in COMPARED for column in ("runs", "median", "bias")]
    return Listing(title="Benchmarks, by load", columns=("load", "of", *kinds), rows=rows)


def _load_and(group: str, prediction: Prediction) -> tuple[str, str]:
    return prediction.measurement.groups["load"], prediction.measurement.groups[group]


def _benchmark_runs(benchmarks: Sequence[Prediction]) -> Listing:
    rows = [[p.measurement.id, p.measurement.groups["load"], *(beside(p, metric) for metric in COMPARED.values())]
            for p in benchmarks]
    return Listing(title="Benchmarks, measured → predicted [ms, duration in s]",
                   columns=("row", "load", *COMPARED), rows=rows)
