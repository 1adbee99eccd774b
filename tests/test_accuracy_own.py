"""Steps that were timed one by one: all are there, and a GPU that the host does not hold up is told from them."""

from functools import cache

import polars as pl
from helpers import number

from benchmarks.accuracy.own import RUNS, STEPS, own, predicted_steps


@cache
def steps() -> pl.DataFrame:
    return predicted_steps()


def off(part: pl.DataFrame) -> float:
    return number((part["predicted_ms"] / part["duration_ms"] - 1).abs().median())


def test_every_kind_of_step_is_a_median_of_five_or_more_and_holds_what_it_says() -> None:
    found = pl.read_csv(STEPS)
    assert found["num_steps"].min() == 5
    assert (found["shortest_ms"] <= found["duration_ms"]).all()
    assert ((found["num_prompts"] == 0) == (found["num_prompt_tokens"] == 0)).all()
    tokens, context = found["num_prompt_tokens"], found["prompt_context_tokens"]
    assert (found["prompt_pairs"] >= tokens).all()
    assert (found["prompt_pairs"] <= tokens * (context + tokens)).all()
    assert (found["num_sampled"] <= found["num_prompts"] + found["num_decodes"]).all()


def test_steps_that_the_host_does_not_hold_up_are_predicted_to_a_tenth() -> None:
    decodes = steps().filter(kind="decodes")
    assert off(decodes.filter(model="llama-3.1-8b")) < 0.05
    assert off(decodes) < 0.1
    full = steps().filter(pl.col("num_prompt_tokens") + pl.col("num_decodes") == 8192)
    assert full["model"].n_unique() == 3
    assert off(full) < 0.1


def test_no_step_is_off_by_more_than_a_slow_host_explains() -> None:
    ratio = steps()["predicted_ms"] / steps()["duration_ms"]
    assert 0.4 < number(ratio.min()) < number(ratio.max()) < 1.25


def test_the_section_has_all_steps_and_runs() -> None:
    section = own()
    by_kind, one_by_one, runs = section.tables
    assert sum(row[2] for row in by_kind.rows) == len(one_by_one.rows) == pl.read_csv(STEPS).height
    assert len(runs.rows) == pl.read_csv(RUNS).height
    assert all(verdict.value is not None for verdict in section.verdicts)
