"""The turns of sessions: which request each one waited for, and how long its user thought."""

import polars as pl

from planner.traces.reader import SENT

SLACK_S = 0.002  # by which an end may seem later than the request that waited for it: clocks of 1 ms


def with_turns(table: pl.DataFrame) -> pl.DataFrame:
    """Name each request's parent, and the pause after it, from sessions and measured ends.

    The parent is the session's request that ended last before this one came; one that came while all before it were
    still running has none. Tables without sessions or measured ends stay as they are.

    Parameters
    ----------
    table : sorted by arrival, with `request_id`, and with `sent_at_s` if that may be later.
    """
    if not {"session_id", "e2e_s"} <= set(table.columns) or "parent_id" in table.columns:
        return table
    begin_s = pl.col(SENT).fill_null(pl.col("arrival_s")) if SENT in table.columns else pl.col("arrival_s")
    ends = (
        table.filter((pl.col("e2e_s") > SLACK_S) & pl.col("session_id").is_not_null())
        .select("session_id", parent_id="request_id", ended_s=begin_s + pl.col("e2e_s"))
        .sort("ended_s")
    )
    joined = (
        table.with_row_index("row").with_columns(by_s=pl.col("arrival_s") + SLACK_S).sort("by_s")
        .join_asof(ends, left_on="by_s", right_on="ended_s", by="session_id", check_sortedness=False)
        .sort("row")
    )
    think_s = (pl.col("arrival_s") - pl.col("ended_s")).clip(lower_bound=0.0)  # the slack lets negative pauses pass
    turns = joined.with_columns(think_time_s=think_s).drop("row", "by_s", "ended_s")
    return turns if turns["parent_id"].null_count() < turns.height else turns.drop("parent_id", "think_time_s")


def with_sequence(table: pl.DataFrame) -> pl.DataFrame:
    """Let requests of a session that have the arrival of the one before them wait for it, in the file's order.

    Parameters
    ----------
    table : sorted by arrival, equal arrivals in the file's order; `think_time_s` is the delay after the one before.
    """
    if "session_id" not in table.columns:
        return table
    before = pl.col("request_id").shift(1).over("session_id")
    follows = (pl.col("arrival_s").diff().over("session_id") == 0) & pl.col("session_id").is_not_null()
    think_s = pl.col("think_time_s") if "think_time_s" in table.columns else pl.lit(0.0)
    return table.with_columns(parent_id=pl.when(follows).then(before),
                              think_time_s=pl.when(follows).then(think_s.fill_null(0.0)))


def with_roots(table: pl.DataFrame) -> pl.DataFrame:
    """Name the session of each request after the first of its chain of parents, if only parents are named.

    Parameters
    ----------
    table : sorted by arrival; a parent comes before its children.
    """
    if "parent_id" not in table.columns or "session_id" in table.columns:
        return table
    roots: dict[str, str] = {}
    for request, parent in table.select("request_id", "parent_id").iter_rows():
        roots[request] = request if parent is None else roots.get(parent, parent)
    return table.with_columns(pl.Series("session_id", [roots[name] for name in table["request_id"]]))
