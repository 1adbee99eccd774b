"""Single-card runs request by request: makespan, end-to-end time, TPOT, client TTFT, and where errors come from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from benchmarks.accuracy.data import MEASURED, SHARED, load_of, replay, times, without
from benchmarks.accuracy.section import Section, Verdict, percent, scatter
from benchmarks.fit_engines import PRIORS
from planner.catalog.catalog_files import data_dir
from planner.deployment.deploy import Deployment, deploy, with_constants
from planner.measured.calibration.constant_fit import fit
from planner.measured.calibration.fit_target import BLOCKS_PER_FOLD
from planner.measured.calibration.observations import Runs
from planner.measured.recorded import time_blocks, with_times
from planner.measured.run_table import METRICS, Measurement
from planner.measured.statistics import measured_of
from planner.report.content import Listing
from planner.settings.scenario import Scenario
from planner.steptime.by_term import step_terms
from planner.steptime.engine_constants import bounds, constants_of, read_constants
from planner.traces import PrefixIds, Trace, read_trace

CARDS = {"rtx4090": "rtx-4090", "rtxpro6000": "rtx-pro-6000"}
# What a run of one dense 16-bit model on one card can tell apart.
FITTED = ("linear_ratio", "prompt_attention_ratio", "decode_attention_ratio", "overhead_s", "overhead_s_per_seq",
          "latency_s")
TARGETS = {"makespan": 0.01, "mean end to end": 0.015, "TPOT MAPE": 0.015, "client TTFT MAPE": 0.08}
# The workload that a run was sent, by the hash in its settings.
WORKLOADS = {"05e48b32da530d4a3dd77f3d47c6fe694ac8308d611aa088e38bb10fba2b3b3a":
             "llmservingsim_sharegpt_llama31_8b_300_sps10.jsonl.gz"}
FOLDS = 5  # those of `planner calibrate`: a run is cut into blocks of requests, whose means are fitted to
NUM_COLD = 12  # requests that a cold engine served
# The client was AsyncLLM's own process and gave it token ids (bench/core/runner.py of LLMServingSim): nothing was
# tokenised, and nothing streamed over HTTP.
NO_TEXT = ("frontend_s_per_token", "latency_s_per_token", "latency_s_per_seq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One measured run: its deployment, load, and what clients saw [s], in order of arrival."""

    name: str
    gpu: str
    deployment: Deployment
    load: Trace
    ttft_s: Any
    e2e_s: Any
    tpot_s: Any

    @property
    def makespan_s(self) -> float:
        """When the last request ended, after the run's start [s]."""
        return float((self.load.requests["arrival_s"].to_numpy() + self.e2e_s).max())


def per_request() -> Section:
    """Return the section on the single-card runs."""
    cards = {name: card_of(name) for name in CARDS}
    bundled = read_constants(data_dir("hardware_db") / "engines" / "vllm.toml")
    priors = PRIORS
    halves = {name: fitted(card, priors, until=card.load.num_requests // 2) for name, card in cards.items()}
    wholes = {name: fitted(card, priors, until=card.load.num_requests) for name, card in cards.items()}
    rows, headline, series = [], {}, {}
    for name, card in cards.items():
        other = next(n for n in cards if n != name)
        cases = {"bundled constants": bundled, "priors, nothing fitted": priors,
                 f"fitted on {CARDS[other]}": wholes[other], "fitted on the run's first half": halves[name]}
        for case, constants in cases.items():
            found = scores(card, constants)
            rows.append([card.gpu, card.deployment.settings.num_gpu_blocks, case, *map(percent, found.values())])
            headline[name, case] = found
            if case == "fitted on the run's first half":
                series[card.gpu] = (1e3 * card.tpot_s, 1e3 * predicted(card, constants)["tpot_s"])
    planned = card_of("rtx4090", own_blocks=False)
    rows.append([planned.gpu, planned.deployment.settings.num_gpu_blocks, "bundled constants, memory model's blocks",
                 *map(percent, scores(planned, bundled).values())])
    return Section(
        title="Request by request: one card",
        lead="Llama-3.1-8B in 16 bit on vLLM 0.19, 300 requests with ShareGPT's lengths at 10/s, replayed with their "
             "exact arrivals and scored by the client's clock. Makespan and mean end-to-end are signed errors of the "
             "total; MAPE is over requests; the last column leaves out the first dozen requests, served cold.",
        verdicts=_verdicts(headline), figures={"per_request_tpot": scatter(
            series, "TPOT of each request", "fitted on the first half of the run, all requests shown", "ms")},
        tables=[Listing(title="Errors", rows=rows,
                        columns=("GPU", "KV blocks", "constants", *TARGETS, "TTFT MAPE, warm")),
                _constants_table({"bundled": bundled, "priors": priors,
                                  **{f"{CARDS[n]}, first half": c for n, c in halves.items()}}),
                _terms_table(cards, {"bundled": bundled, "priors": priors}), *_kernel_tables(cards, bundled)],
        notes=["Prompts share what their published tokens share: 32 are later turns of a dialogue. Caching, on in "
               "both, also lets preempted requests find their blocks again.",
               f"The fits are `planner calibrate`'s: to mean TPOT and TTFT of blocks of the named requests, without "
               f"the {NUM_COLD} cold ones, from the priors on, of {len(FITTED)} constants: {', '.join(FITTED)}."])


def card_of(name: str, *, own_blocks: bool = True) -> Card:
    """Read a run and make its deployment concrete.

    Parameters
    ----------
    own_blocks : take the measured number of KV blocks, where it is known, in place of the memory model's.
    """
    path = MEASURED / f"per_request_{name}_llama31_8b_tp1"
    meta = json.loads(path.with_suffix(".meta.json").read_text(encoding="utf-8"))
    table = pl.read_csv(path.with_suffix(".csv")).sort("arrival_s", maintain_order=True)
    deployment = deploy(Scenario(
        model="llama-3.1-8b", gpu=CARDS[name], max_num_seqs=meta["max_num_seqs"],
        max_num_batched_tokens=meta["max_num_batched_tokens"], max_model_len=meta["max_model_len"],
        gpu_memory_utilization=meta["gpu_memory_utilization"], block_size=meta["block_size"], async_scheduling=True,
        num_gpu_blocks=meta["measured_num_gpu_blocks"] if own_blocks else None), enable_prefix_caching=True)
    ttft_s, e2e_s = (table[f"{metric}_client_ms"].to_numpy() / 1e3 for metric in ("ttft", "e2e"))
    outputs = table["output_tokens"].to_numpy()
    return Card(name=name, gpu=CARDS[name], deployment=deployment, ttft_s=ttft_s, e2e_s=e2e_s,
                tpot_s=(e2e_s - ttft_s) / np.where(outputs > 1, outputs - 1, np.nan),
                load=load_of(name, table["arrival_s"], table["input_tokens"], outputs, prefix_of(meta, table)))


def prefix_of(meta: Mapping[str, Any], table: pl.DataFrame) -> PrefixIds:
    """Return what a run's prompts share: its workload is published with their tokens, several turns of 32 dialogues."""
    workload = read_trace(str(SHARED / "traces" / WORKLOADS[meta["dataset_sha256"]]))
    for column in ("input_tokens", "output_tokens"):
        assert workload.requests[column].to_list() == table[column].to_list(), f"{column} of another workload"
    assert workload.prefix is not None
    return workload.prefix


def predicted(card: Card, constants: Mapping[str, float]) -> dict[str, Any]:
    """Replay a run with an engine's constants by flat name."""
    return times(replay(_deployed(card, constants), card.load))


def _deployed(card: Card, constants: Mapping[str, float]) -> Deployment:
    return without(with_constants(card.deployment, constants_of(constants)), NO_TEXT)


def scores(card: Card, constants: Mapping[str, float]) -> dict[str, float]:
    """Return the errors by the names of TARGETS, then TTFT's without the cold requests."""
    found = predicted(card, constants)
    makespan_s = float((card.load.requests["arrival_s"].to_numpy() + found["e2e_s"]).max())
    ttft = np.abs(found["ttft_s"] / card.ttft_s - 1)
    return {"makespan": makespan_s / card.makespan_s - 1,
            "mean end to end": float(found["e2e_s"].mean() / card.e2e_s.mean() - 1),
            "TPOT MAPE": float(np.nanmean(np.abs(found["tpot_s"] / card.tpot_s - 1))),
            "client TTFT MAPE": float(ttft.mean()), "warm": float(ttft[NUM_COLD:].mean())}


def fitted(card: Card, start: Mapping[str, float], *, until: int) -> Mapping[str, float]:
    """Fit FITTED to the first requests of a run but for the cold ones, as `planner calibrate --fit` does."""
    is_seen = np.zeros(card.load.num_requests, bool)
    is_seen[NUM_COLD:until] = True
    load = with_times(card.load, *(np.where(is_seen, each, np.nan) for each in (card.ttft_s, card.e2e_s, card.tpot_s)))
    run = Measurement(id=card.name, groups={}, measured=measured_of(load, METRICS), load=load)
    observed = Runs(prepared=[(block, card.deployment) for block in time_blocks(run, BLOCKS_PER_FOLD * FOLDS)])
    silent = dict(start) | {name: bounds()[name][0] for name in NO_TEXT}
    with observed.evaluator(1) as evaluate:
        return fit(observed, silent, FITTED, evaluate=evaluate).constants


def _verdicts(headline: Mapping[Any, Mapping[str, float]]) -> list[Verdict]:
    return [Verdict(name=f"{CARDS[name]}, {case}: {metric}", value=abs(headline[name, case][metric]), limit=limit)
            for name in CARDS for case in ("bundled constants", "fitted on the run's first half")
            for metric, limit in TARGETS.items()]


def _constants_table(sets: Mapping[str, Mapping[str, float]]) -> Listing:
    rows = [[name, *(f"{values[name]:.3g}" for values in sets.values())] for name in FITTED]
    return Listing(title="Constants", columns=("constant", *sets), rows=rows)


def _terms_table(cards: Mapping[str, Card], sets: Mapping[str, Mapping[str, float]]) -> Listing:
    """Return how the time of all steps divides."""
    rows: list[list[Any]] = []
    columns: Sequence[str] = ()
    for card in cards.values():
        for label, constants in sets.items():
            deployment = _deployed(card, constants)
            steps = replay(deployment, card.load, steps=True).steps
            terms = {name: float(values.sum()) for name, values in step_terms(deployment.step_time, steps, 0.0).items()}
            columns = [name for name in terms if name not in ("experts_s", "collectives_s", "swap_s")]
            rows.append([card.gpu, label, len(steps), *(f"{terms[name]:.2f}" for name in columns)])
    return Listing(title="Where the steps' time goes [s]", columns=("GPU", "constants", "steps", *columns), rows=rows)


def _kernel_tables(cards: Mapping[str, Card], bundled: Mapping[str, float]) -> list[Listing]:
    """Return the step-time model's terms beside the profiles of the same cards."""
    from benchmarks.accuracy.profiles import kernel_tables

    return [table for card in cards.values() for table in kernel_tables(card.gpu, card.deployment, bundled)]
