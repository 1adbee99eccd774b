"""Steps that we timed ourselves: vLLM's, one by one, and the runs that they are of as its client saw them."""

import json
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.accuracy.published_benchmarks import read_benchmarks
from benchmarks.accuracy.section import (
    ERROR_COLUMNS,
    Section,
    Verdict,
    ape,
    error_row,
    measured_and_predicted,
    run_by_run,
    scatter,
)
from planner.catalog.catalog_files import data_dir
from planner.deployment.deploy import deploy
from planner.loop.rows import STEP_ROW
from planner.loop.state import engine_state as st
from planner.measured.run_table import METRICS
from planner.measured.steplog import StepLog
from planner.measured.validate import predict_all
from planner.report.content import Listing
from planner.settings.scenario import Scenario

# One row a kind of step of a run: the median one of `num_steps`, with what it held, from the end of the step before it
# to its own end by CUDA events, the GPU's wait for the host in it unless the engine had nothing to do.
STEPS = Path(__file__).with_name("own_steps.csv")
RUNS = Path(__file__).with_name("own_runs.csv")  # as published_benchmarks.csv
GPU, VERSION = "h100-sxm", "0.20.2"
HELD = ("num_prompts", "num_prompt_tokens", "prompt_context_tokens", "prompt_pairs", "num_decodes",
        "decode_context_tokens", "num_sampled")


def own() -> Section:
    """Return the section on them."""
    steps = predicted_steps()
    runs = predict_all(read_benchmarks(RUNS))
    values = {metric[:4].upper(): measured_and_predicted(runs, metric) for metric in METRICS}
    groups = steps.group_by("what", "kind", maintain_order=True)
    return Section(
        title=f"Steps timed one by one: vLLM {VERSION} on an H100 of ours",
        lead=f"{steps['num_steps'].sum():,} steps under `vllm bench serve`, with dummy weights: {steps.height} kinds "
             "of them, each by its median step, and what the client saw of the runs. No fit has seen one of them.",
        verdicts=[Verdict(name="steps, median APE", limit=None,
                          value=float(np.median(ape(steps["predicted_ms"], steps["duration_ms"])))),
                  *(Verdict(name=f"runs' {name}, median APE", limit=None,
                            value=float(np.median(ape(predicted, measured))))
                    for name, (measured, predicted) in values.items())],
        figures={"own": scatter({str(what): (part["duration_ms"], part["predicted_ms"])
                                 for (what,), part in steps.group_by("what", maintain_order=True)},
                                "Steps, one by one", "a point is the median step of a kind", "ms")},
        tables=[Listing(title="Steps, by model and kind", columns=("model", "kind", *ERROR_COLUMNS),
                        rows=[[what, kind, *error_row(part["predicted_ms"], part["duration_ms"])]
                              for (what, kind), part in groups]),
                Listing(title="Steps, measured → predicted [ms]",
                        columns=("model", "prompts", "prompt tokens", "decodes", "their context", "of", "ms"),
                        rows=[_shown(row) for row in steps.iter_rows(named=True)]),
                run_by_run("Runs, measured → predicted [ms]", runs)],
        notes=["The host was a virtual machine that launches kernels and handles requests at some 0.6 of the speed of "
               "the hosts that the fit has seen, and is taken as one of those: Qwen3's steps of 500 to 4,000 tokens, "
               "which wait for its launches, and TTFT at 64 and 256 at once are short for it. Qwen3's runs also have "
               "steps that compiled, of up to 1.2 s.",
               "gpt-oss-120b was timed as well, cut to 12 layers, and is left out: 64 decodes took less than reading "
               "the experts that an even routing picks, so dummy weights send most to a few. Llama-3.1-70B in FP8 is "
               "cut to 8 of its 80 layers, and is not among the runs. Steps of which a run has fewer than five are "
               "left out: first ones compile."])


def predicted_steps() -> pl.DataFrame:
    """Return the steps, each with what model it is of (`what`), its kind, and `predicted_ms`."""
    parts = []
    tokens = pl.col("num_prompt_tokens") + pl.col("num_decodes")
    with tempfile.TemporaryDirectory() as folder:
        for (model, num_layers, quantization), part in pl.read_csv(STEPS).group_by(
                "model", "num_layers", "quantization", maintain_order=True):
            deployment = deploy(Scenario(model=_cut(model, num_layers, Path(folder)), gpu=GPU, engine="vllm",
                                         quantization=quantization, engine_version=VERSION))
            graph_tokens = int(deployment.step_time.terms.graph_tokens)  # up to here all but attention is graphs
            steps = st.records(part.height, STEP_ROW)
            for name in HELD:
                steps[name] = part[name].to_numpy()
            log = StepLog(steps=steps, measured_ms=part["duration_ms"].to_numpy())
            parts.append(part.with_columns(
                predicted_ms=pl.Series(log.predicted_ms(deployment)),
                what=pl.lit(f"{model}, {num_layers} layers" + (f" in {quantization}" if quantization else "")),
                kind=pl.when(pl.col("num_prompts") == 0).then(pl.lit("decodes"))
                .when(tokens <= graph_tokens).then(pl.lit(f"with prompts, up to {graph_tokens} tokens"))
                .otherwise(pl.lit("with prompts"))))
    return pl.concat(parts)


def _cut(model: str, num_layers: int, folder: Path) -> str:
    """Return the name of a model, or of a file with its config.json where it has fewer layers."""
    entry = tomllib.loads((data_dir("hardware_db") / "models" / f"{model}.toml").read_text(encoding="utf-8"))
    if entry["config"]["num_hidden_layers"] == num_layers:
        return model
    path = folder / f"{model}-{num_layers}" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(entry["config"] | {"num_hidden_layers": num_layers}), encoding="utf-8")
    return str(path)


def _shown(row: Mapping[str, Any]) -> list[Any]:
    return [row["what"], row["num_prompts"], row["num_prompt_tokens"], row["num_decodes"],
            row["decode_context_tokens"], row["num_steps"], f"{row['duration_ms']:.4g} → {row['predicted_ms']:.4g}"]
