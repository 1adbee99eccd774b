"""Descriptions of traffic as text tables for the terminal: of one trace, of a fitted model, and of how close it is."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.files.counts import change_text, count_text, figure_text, share_text
from planner.planning.synth_answer import ModelAnswer
from planner.report.text import Grid, Text
from planner.traces.shaping.description_answer import Description

SHOWN_PERCENTILES = ("mean", "p5", "p25", "p50", "p75", "p95", "p99", "max")
BAR = 40  # characters of the fullest part of the shape


def description_table(found: Description) -> Text:
    """Return a trace's description without the parts that do not exist for it."""
    lines: list[str | Grid] = [
        f"{found.source} ({found.format}): {count_text(found.num_requests, 'request')} over "
        f"{_seconds(found.span_s)}", *([f"assumed: {found.assumption}"] if found.assumption else [])]
    rates = {name: value for name, value in found.rates.items() if value is not None}
    if rates:
        lines.append("Rates: " + ", ".join(f"{figure_text(value)} {name.replace('_per_s', '/s').replace('_', ' ')}"
                                           for name, value in rates.items()))
    lines += _burstiness_lines(found.burstiness)
    lengths = found.lengths
    lines += _grid("Lengths [tokens]", SHOWN_PERCENTILES,
                   {name.removesuffix("_tokens"): [lengths[name][key] for key in SHOWN_PERCENTILES]
                    for name in ("input_tokens", "output_tokens") if lengths[name] is not None})
    if lengths["rank_correlation"] is not None:
        lines.append(f"  rank correlation  {lengths['rank_correlation']:.3f}")
    lines += _shape_lines(found.shape)
    if found.sharing is not None:
        lines += _sharing_lines(found.sharing)
    if found.sessions is not None:
        lines += _session_lines(found.sessions)
    if found.tenants is not None:
        lines += _tenant_lines(found.tenants)
    return Text([*lines, *_anomaly_lines(found.anomalies)])


def _seconds(span_s: float) -> str:
    return f"{span_s:,.6g} s" + (f" ({span_s / 3600:,.3g} h)" if span_s >= 3600 else "")


def _burstiness_lines(found: Mapping[str, Any]) -> list[str | Grid]:
    cv = "none" if found["gap_cv"] is None else f"{found['gap_cv']:.3f}"
    windows = list(found["dispersion"])
    return [f"Burstiness (a Poisson process has 1): variation of gaps {cv}",
            *_grid("over windows of", windows, {
                "variance over mean": [found["dispersion"][window] for window in windows],
                "peak over mean": [found["peak_over_mean"][window] for window in windows]})]


def _grid(title: str, heads: Sequence[str], rows: Mapping[str, Sequence[float]]) -> list[Grid]:
    cells = [(name, *map(_number, values)) for name, values in rows.items()]
    return [Grid(heads=(title, *heads), rows=cells, indent=2)] if heads else []


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _shape_lines(found: Mapping[str, Any]) -> list[str]:
    """Return the rate over the day or the record as bars."""
    rates = found["requests_per_s"]
    if not rates:
        return []
    unit, what = (3600.0, "hours since the first arrival, by day") if found["period"] == "day" else (1.0, "s")
    top = max(rates)
    return [f"Rate over time [requests/s], peak {found['peak_over_mean']:.3g} times the mean; parts from [{what}]",
            *(f"  {_number(start / unit):>8} {rate:>10,.4g} {'#' * round(BAR * rate / top)}".rstrip()
              for start, rate in zip(found["start_s"], rates, strict=True))]


def _sharing_lines(found: Mapping[str, Any]) -> list[str]:
    sets = ", ".join(f"{share.replace('%', ' %')} of it with {tokens:,}"
                     for share, tokens in found["working_set_tokens"].items())
    lines = [f"Prefix sharing ({found['block_tokens']} tokens an id): {share_text(found['infinite_hit_rate'])} of the "
             f"prompt tokens were seen before; {share_text(found['requests_with_a_hit'])} of the requests have a hit",
             f"  hit rate by cache size in tokens (LRU, requests one after the other): {sets}"]
    lines += [f"  {row['cache_tokens']:>14,} {share_text(row['hit_rate']):>8} "
              f"{'#' * round(BAR * row['hit_rate'])}".rstrip() for row in found["curve"]]
    if "hit_rate" in found:
        lines.append(f"  {found['cache_tokens']:>14,.0f} {share_text(found['hit_rate']):>8} (requested)")
    return lines


def _session_lines(found: Mapping[str, Any]) -> list[str | Grid]:
    lines: list[str | Grid] = [f"Sessions: {found['num_sessions']:,}, {share_text(found['requests_in_sessions'])} of "
                               f"the requests"]
    rows = {label: [found[name][key] for key in SHOWN_PERCENTILES] for name, label in (
        ("turns", "turns"), ("turn_gap_s", "between turns [s]"), ("prompt_growth_tokens", "prompt growth [tokens]"))
        if found[name] is not None}
    return lines + _grid("per session", SHOWN_PERCENTILES, rows)


def _tenant_lines(tenants: Sequence[Mapping[str, Any]]) -> list[Grid]:
    rows = [("(others)" if row["tenant"] is None else row["tenant"] or "(none)", f"{row['num_requests']:,}",
             share_text(row["share"]), "none" if row["gap_cv"] is None else f"{row['gap_cv']:.2f}",
             *(_number(row[key]) for key in ("input_tokens_p50", "input_tokens_p99", "output_tokens_p50",
                                             "output_tokens_p99"))) for row in tenants]
    return [Grid(heads=("Tenants", "requests", "share", "gap cv", "in p50", "in p99", "out p50", "out p99"), rows=rows,
                 indent=2)]


def _anomaly_lines(anomalies: Iterable[Mapping[str, Any]]) -> list[str]:
    lines = [f"  {odd['kind']}: {odd['text']}" for odd in anomalies]
    return ["Anomalies:", *lines] if lines else ["Anomalies: none found"]


def model_table(result: ModelAnswer) -> str:
    """Return a fitted model in a few lines: its parts, and which arrival processes were tried."""
    lines = [f"{result.meaning}, described by {result.num_numbers:,} numbers"]
    for tenant in result.tenants:
        kinds = ", ".join(f"{share_text(share)} {kind}" for kind, share in tenant["kinds"].items())
        lines.append(f"  {tenant['name']}: {tenant['rate_per_s']:.4g} requests/s, arrivals {tenant['process']}, "
                     f"{tenant['num_epochs']} epochs, {kinds}")
        tried = ", ".join(f"{each['process']} {each['deviation']:.2f} ({each['num_numbers']})"
                          for each in tenant["tried"])
        if tried:
            lines.append(f"    burstiness error in tolerances (and numbers): {tried}")
    return "\n".join(lines)


def closeness_table(found: Mapping[str, Any]) -> Text:
    """Return how close drawn traces are, in statistics and, if they were replayed, in predictions."""
    statistics, predictions = found["statistics"], found.get("predictions")
    pairs = {name.replace("_", " "): statistics[name] for name in (
        "request_rate", "mean_input_tokens", "mean_output_tokens", "gap_cv", "length_correlation")}
    pairs |= {f"variance over mean, {window}": pair for window, pair in statistics["dispersion"].items()}
    pairs |= {f"hit rate, cache {tokens}": pair for tokens, pair in statistics["hit_rate"].items()}
    rows = [(label, figure_text(pair["recorded"]), figure_text(pair["drawn"])) for label, pair in pairs.items()
            if pair["recorded"] is not None and pair["drawn"] is not None]
    return Text([
        Grid(heads=("how close", "recorded", "drawn"), rows=rows, indent=2),
        "  largest distance of distribution functions: " + ", ".join(
            f"{name} {value:.3f}" for name, value in statistics["ks"].items() if value is not None),
        *([] if predictions is None else [_predictions(predictions)])])


def _predictions(found: Mapping[str, Any]) -> Grid:
    rows = [] if found["capacity_rps"] is None else [_difference("capacity [requests/s]", found["capacity_rps"])]
    for load in found["loads"]:
        at = f"{load['request_rate']:.4g}"
        rows += [_difference(f"{name} at {at} requests/s", value) for name, value in load.items()
                 if isinstance(value, Mapping)]
    return Grid(heads=("predicted", "recorded", "drawn", "off", "draws from … to"), rows=rows, left=(0, -1), indent=2)


def _difference(label: str, row: Mapping[str, float | None]) -> tuple[str, ...]:
    if row["recorded"] is None or row["drawn"] is None or row["difference"] is None:
        return label, "none", "", "", ""
    ends = " … ".join("none" if end is None else change_text(end) for end in (row["low"], row["high"]))
    return label, figure_text(row["recorded"]), figure_text(row["drawn"]), change_text(row["difference"]), ends
