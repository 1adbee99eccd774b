"""Spans of time: the states of each request over time, from the tables of requests, steps and the schedule."""

import polars as pl

from planner.results.phases import optional_s


def spans(requests: pl.DataFrame, steps: pl.DataFrame, schedule: pl.DataFrame) -> pl.DataFrame:
    """Return the states of each request in order: one row a span.

    Each prompt chunk is a span of its own, as is a run of decode steps, without prompts or with. A request
    waits until it is first scheduled, then for its load from a KV tier, and is left out while it runs or was
    preempted and has no token in the steps.

    Parameters
    ----------
    requests, steps, schedule : as the tables of `ReplayResult`; spans cover the given requests.

    Returns
    -------
    polars.DataFrame
        `request_id, kind, start_s, end_s, num_tokens`.
    """
    planned = schedule if "replica" in schedule.columns else schedule.with_columns(replica=pl.lit(0, pl.Int32))
    known = requests.select("request_id", "first_token_at_s")
    rows = planned.join(known, on="request_id").join(
        steps.select("step", pl.col("replica").cast(pl.Int32), "start_s", "duration_s", "num_prompts"),
        on=["step", "replica"]).sort("request_id", "start_s")
    kind = (pl.when(pl.col("first_token_at_s").is_null() | (pl.col("start_s") < pl.col("first_token_at_s")))
            .then(pl.lit("prompt chunk")).when(pl.col("num_scheduled_tokens") > 1).then(pl.lit("recompute"))
            .when(pl.col("num_prompts") > 0).then(pl.lit("decode beside prompts")).otherwise(pl.lit("decode")))
    rows = rows.with_columns(kind=kind, end_s=pl.col("start_s") + pl.col("duration_s"))
    breaks = (~pl.col("kind").str.starts_with("decode") | (pl.col("kind") != pl.col("kind").shift().over("request_id"))
              | (pl.col("start_s") > pl.col("end_s").shift().over("request_id") + 1e-9)).fill_null(value=True)
    worked = rows.with_columns(place=breaks.cum_sum()).group_by("request_id", "place", maintain_order=True).agg(
        pl.col("kind").first(), pl.col("start_s").first(), pl.col("end_s").last(),
        num_tokens=pl.col("num_scheduled_tokens").sum()).drop("place")
    waits = requests.filter(pl.col("first_scheduled_at_s").is_not_null()).select(
        "request_id", kind=pl.lit("waiting"), start_s="arrival_s", end_s="first_scheduled_at_s",
        num_tokens=pl.lit(0, pl.Int64))
    loads = worked.group_by("request_id").agg(pl.col("start_s").min().alias("end_s")).join(
        requests.filter(optional_s(requests, "load_s") > 0.0).select("request_id", start_s="first_scheduled_at_s"),
        on="request_id").select(
        "request_id", "start_s", "end_s", kind=pl.lit("loading"), num_tokens=pl.lit(0, pl.Int64)).select(waits.columns)
    gaps = worked.with_columns(before=pl.col("end_s").shift().over("request_id")).filter(
        pl.col("start_s") > pl.col("before") + 1e-9).select(
        "request_id", kind=pl.lit("left out"), start_s="before", end_s="start_s", num_tokens=pl.lit(0, pl.Int64))
    whole = pl.concat([part.with_columns(pl.col("num_tokens").cast(pl.Int64)) for part in (waits, loads, worked, gaps)])
    return whole.filter(pl.col("end_s") > pl.col("start_s")).sort("request_id", "start_s")
