"""Descriptions of traffic as text tables for the terminal: of one trace, of a fitted model, and of how close it is."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.files.counts import count_text, share_text

SHOWN_PERCENTILES = ("mean", "p5", "p25", "p50", "p75", "p95", "p99", "max")
BAR = 40  # characters of the fullest part of the shape
LABEL = 26


def description_table(found: Mapping[str, Any]) -> str:
    """Return a trace's description as aligned text; what does not exist for it is left out."""
    lines = [f"{found['source']} ({found['format']}): {count_text(found['num_requests'], 'request')} over "
             f"{_seconds(found['span_s'])}", *([f"assumed: {found['assumption']}"] if found["assumption"] else [])]
    rates = {name: value for name, value in found["rates"].items() if value is not None}
    if rates:
        lines.append("Rates: " + ", ".join(f"{value:,.4g} {name.replace('_per_s', '/s').replace('_', ' ')}"
                                           for name, value in rates.items()))
    lines += _burstiness_lines(found["burstiness"])
    lengths = found["lengths"]
    lines += _grid("Lengths [tokens]", SHOWN_PERCENTILES,
                   {name.removesuffix("_tokens"): [lengths[name][key] for key in SHOWN_PERCENTILES]
                    for name in ("input_tokens", "output_tokens")})
    if lengths["rank_correlation"] is not None:
        lines.append(f"  {'rank correlation':<{LABEL}}{lengths['rank_correlation']:>10.3f}")
    lines += _shape_lines(found["shape"])
    if found["sharing"] is not None:
        lines += _sharing_lines(found["sharing"])
    if found["sessions"] is not None:
        lines += _session_lines(found["sessions"])
    if found["tenants"] is not None:
        lines += _tenant_lines(found["tenants"])
    return "\n".join([*lines, *_anomaly_lines(found["anomalies"])])


def _seconds(span_s: float) -> str:
    return f"{span_s:,.6g} s" + (f" ({span_s / 3600:,.3g} h)" if span_s >= 3600 else "")


def _burstiness_lines(found: Mapping[str, Any]) -> list[str]:
    cv = "none" if found["gap_cv"] is None else f"{found['gap_cv']:.3f}"
    windows = list(found["dispersion"])
    return [f"Burstiness (a Poisson process has 1): variation of gaps {cv}",
            *_grid("  over windows of", windows, {
                "variance over mean": [found["dispersion"][window] for window in windows],
                "peak over mean": [found["peak_over_mean"][window] for window in windows]})]


def _grid(title: str, heads: Sequence[str], rows: Mapping[str, Sequence[float]]) -> list[str]:
    if not heads:
        return []
    return [f"{title:<{LABEL + 2}}" + "".join(f"{head:>10}" for head in heads),
            *(f"  {name:<{LABEL}}" + "".join(f"{_number(value):>10}" for value in values)
              for name, values in rows.items())]


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
            *(f"  {start / unit:>8,.4g} {rate:>10,.4g} {'#' * round(BAR * rate / top)}".rstrip()
              for start, rate in zip(found["start_s"], rates, strict=True))]


def _sharing_lines(found: Mapping[str, Any]) -> list[str]:
    sets = ", ".join(f"{share} of it with {tokens:,}" for share, tokens in found["working_set_tokens"].items())
    lines = [f"Prefix sharing ({found['block_tokens']} tokens an id): {share_text(found['infinite_hit_rate'])} of the "
             f"prompt tokens were seen before; {share_text(found['requests_with_a_hit'])} of the requests have a hit",
             f"  hit rate by cache size in tokens (LRU, requests one after the other): {sets}"]
    lines += [f"  {row['cache_tokens']:>14,} {share_text(row['hit_rate']):>8} "
              f"{'#' * round(BAR * row['hit_rate'])}".rstrip() for row in found["curve"]]
    if "hit_rate" in found:
        lines.append(f"  {found['cache_tokens']:>14,.0f} {share_text(found['hit_rate']):>8} (requested)")
    return lines


def _session_lines(found: Mapping[str, Any]) -> list[str]:
    lines = [f"Sessions: {found['num_sessions']:,}, {share_text(found['requests_in_sessions'])} of the requests"]
    rows = {label: [found[name][key] for key in SHOWN_PERCENTILES] for name, label in (
        ("turns", "turns"), ("turn_gap_s", "between turns [s]"), ("prompt_growth_tokens", "prompt growth [tokens]"))
        if found[name] is not None}
    return lines + _grid("  per session", SHOWN_PERCENTILES, rows)


def _tenant_lines(tenants: Sequence[Mapping[str, Any]]) -> list[str]:
    heads = ("requests", "share", "gap cv", "in p50", "in p99", "out p50", "out p99")
    lines = [f"{'Tenants':<{LABEL + 2}}" + "".join(f"{head:>10}" for head in heads)]
    for row in tenants:
        name = "(others)" if row["tenant"] is None else row["tenant"] or "(none)"
        cv = "none" if row["gap_cv"] is None else f"{row['gap_cv']:.2f}"
        cells = [f"{row['num_requests']:,}", share_text(row["share"]), cv, *(_number(row[key]) for key in (
            "input_tokens_p50", "input_tokens_p99", "output_tokens_p50", "output_tokens_p99"))]
        lines.append(f"  {name:<{LABEL}}" + "".join(f"{cell:>10}" for cell in cells))
    return lines


def _anomaly_lines(anomalies: Iterable[Mapping[str, Any]]) -> list[str]:
    lines = [f"  {odd['kind']}: {odd['text']}" for odd in anomalies]
    return ["Anomalies:", *lines] if lines else ["Anomalies: none found"]


def model_table(result: Mapping[str, Any]) -> str:
    """Return a fitted model in a few lines: what it is made of, and which arrival processes were tried."""
    lines = [f"{result['meaning']}, described by {result['num_numbers']:,} numbers"]
    for tenant in result["tenants"]:
        kinds = ", ".join(f"{share_text(share)} {kind}" for kind, share in tenant["kinds"].items())
        lines.append(f"  {tenant['name']}: {tenant['rate_per_s']:.4g} requests/s, arrivals {tenant['process']}, "
                     f"{tenant['num_epochs']} epochs, {kinds}")
        tried = ", ".join(f"{each['process']} {each['deviation']:.2f} ({each['num_numbers']})"
                          for each in tenant["tried"])
        if tried:
            lines.append(f"    burstiness error in tolerances (and numbers): {tried}")
    return "\n".join(lines)


def closeness_table(found: Mapping[str, Any]) -> str:
    """Return how close drawn traces are, in statistics and, where they were replayed, in predictions."""
    lines = [f"{'how close':<{LABEL + 2}}{'recorded':>12}{'drawn':>12}"]
    statistics = found["statistics"]
    for name in ("request_rate", "mean_input_tokens", "mean_output_tokens", "gap_cv", "length_correlation"):
        lines += _pair_lines(name.replace("_", " "), statistics[name])
    for window, pair in statistics["dispersion"].items():
        lines += _pair_lines(f"variance over mean, {window}", pair)
    for tokens, pair in statistics["hit_rate"].items():
        lines += _pair_lines(f"hit rate, cache {tokens}", pair)
    lines.append("  largest distance of distribution functions: " + ", ".join(
        f"{name} {value:.3f}" for name, value in statistics["ks"].items() if value is not None))
    predictions = found.get("predictions")
    if predictions is not None:
        lines += _prediction_lines(predictions)
    return "\n".join(lines)


def _pair_lines(label: str, pair: Mapping[str, float | None]) -> list[str]:
    if pair["recorded"] is None or pair["drawn"] is None:
        return []
    return [f"  {label:<{LABEL}}{pair['recorded']:>12,.4g}{pair['drawn']:>12,.4g}"]


def _prediction_lines(found: Mapping[str, Any]) -> list[str]:
    lines = [f"{'predicted':<{LABEL + 2}}{'recorded':>12}{'drawn':>12}{'off':>9}   draws from … to"]
    if found["capacity_rps"] is not None:
        lines.append(_difference_line("capacity [requests/s]", found["capacity_rps"]))
    for load in found["loads"]:
        lines.append(f"  at {load['request_rate']:.4g} requests/s")
        lines += [_difference_line("  " + name, value) for name, value in load.items() if isinstance(value, Mapping)]
    return lines


def _difference_line(label: str, row: Mapping[str, float | None]) -> str:
    if row["recorded"] is None or row["drawn"] is None or row["difference"] is None:
        return f"  {label:<{LABEL}}{'none':>12}"
    return (f"  {label:<{LABEL}}{row['recorded']:>12,.4g}{row['drawn']:>12,.4g}{row['difference']:>+9.1%}   "
            f"{row['low']:+.1%} … {row['high']:+.1%}")
