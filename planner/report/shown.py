"""Answers for a reader in Python: each kind's text, first lines and table."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from planner.planning.capacity_answer import CapacityAnswer
from planner.planning.check_answer import CheckAnswer
from planner.planning.probe_answer import ProbeAnswer
from planner.planning.share_answer import ShareAnswer
from planner.planning.size_answer import SizeAnswer
from planner.planning.sweep_answer import SweepAnswer
from planner.report.gate_tables import gate_headline, gate_table
from planner.report.plan_tables import capacity_table, capacity_words, sizing_table, sizing_words
from planner.report.probe_table import probe_table
from planner.report.share_table import share_table
from planner.report.sweep_tables import sweep_headline, sweep_table
from planner.report.text import Text
from planner.results.answers import Shown, shown

FLEET = ("gpu", "tensor_parallel_size", "quantization", "num_replicas", "num_gpus", "cost_usd_per_hour",
         "cost_usd_per_million_output_tokens", "attainment", "p99_ttft_ms", "p99_tpot_ms", "headroom",
         "limiting_metric", "reason")


@shown.register
def _capacity(answer: CapacityAnswer) -> Shown:
    return _shown(capacity_table(answer), [*capacity_words(answer), *answer.notes], answer["probes"])


@shown.register
def _size(answer: SizeAnswer) -> Shown:
    rows = [{key: fleet.get(key) for key in FLEET} for fleet in answer["alternatives"]]
    return _shown(sizing_table(answer), [*sizing_words(answer), *answer.notes], rows)


@shown.register
def _sweep(answer: SweepAnswer) -> Shown:
    columns = (*answer.axes, *answer.pareto)
    return _shown(sweep_table(answer), [sweep_headline(answer)], [{name: row[name] for name in columns}
                                                                  for row in answer.front])


@shown.register
def _check(answer: CheckAnswer) -> Shown:
    return _shown(gate_table(answer), [gate_headline(answer), *answer.notes], answer["checks"])


@shown.register
def _share(answer: ShareAnswer) -> Shown:
    rows = [{"deployment": each.deployment, "rate_rps": each.rate_rps,
             **{key: fleet[key] for key in FLEET if key in fleet}}
            for each, fleet in zip(answer.deployments, (row["fleet"] for row in answer["deployments"]), strict=True)]
    return _shown(share_table(answer), [share_table(answer).lines()[0], *answer.notes], rows)


@shown.register
def _probe(answer: ProbeAnswer) -> Shown:
    rows = [{"name": each.name, "max_concurrency": each.max_concurrency, "num_prompts": each.num_prompts,
             "random_input_len": each.random_input_len, "random_output_len": each.random_output_len, **each.expected}
            for each in answer.benchmarks]
    return _shown(probe_table(answer), [probe_table(answer).splitlines()[0], *answer.notes], rows)


def _shown(text: str | Text, headline: Sequence[str], rows: Sequence[dict[str, Any]]) -> Shown:
    return Shown(text=str(text), headline="\n".join(headline), table=pl.DataFrame(rows, strict=False,
                                                                             infer_schema_length=None))
