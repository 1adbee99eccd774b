"""The answers of `capacity` and `size` as text: the number, what it rests on, and what was tried."""

from collections.abc import Mapping, Sequence
from typing import Any

from planner.report.cells import launch_line
from planner.settings.judged import digits_apart


def capacity_table(result: Mapping[str, Any]) -> str:
    """Return a capacity with what it rests on, then the rates that were tried, as aligned text."""
    return "\n".join([*capacity_words(result), *_probe_rows(result)])


def capacity_words(result: Mapping[str, Any]) -> list[str]:
    """Return a capacity with its bracket, its confidence and what it rests on, a line each."""
    if not result["feasible"]:
        return [f"capacity 0 requests/s: no rate meets {_required(result['slo'])}", *_missed_lines(result["missed"])]
    per_gpu = f", {result['capacity_rps_per_gpu']:.4g} per GPU" if result["num_gpus"] > 1 else ""
    lines = [f"capacity {result['capacity_rps']:.4g} requests/s{per_gpu}, {result['rate_scale']:.3g} times the trace's "
             f"rate; missed at {result['bracket']['upper_rps']:.4g}, limited by {result['limiting_metric']}",
             f"required: {_required(result['slo'])}; at capacity {100 * result['attainment_at_capacity']:.2f} % of the "
             f"requests meet their own limits"]
    if result["confidence"] is not None:
        lines.append(f"confidence: 90 % {result['confidence']['p10']:.4g}, 50 % {result['confidence']['p50']:.4g}, "
                     f"10 % {result['confidence']['p90']:.4g} requests/s")
    lines.append(f"assumed: {'; '.join(result['assumptions'])}")
    for key, what in (("scalings", "scaling"), ("routers", "router")):
        if len(result[key]) > 1:
            numbers = ", ".join(f"{row[what]} {_rate(row['capacity_rps'])}" for row in result[key])
            lines.append(f"requests/s by {what}: {numbers}")
    return lines


def _probe_rows(result: Mapping[str, Any]) -> list[str]:
    asked = result["attainment"] or 0.0  # None where only statistics are limited
    if not result["probes"]:
        return []
    return [f"{'requests/s':>12}{'attainment':>12}  limited by, met",
            *(f"{probe['rate_rps']:>12.4g}{probe['attainment']:>12.{digits_apart(probe['attainment'], asked, 4)}f}  "
              f"{probe['limiting_metric']}, "
              f"{'yes' if probe['is_met'] else f'no: below {asked:g}' if probe['attainment'] < asked else 'no'}"
              for probe in result["probes"])]


def _rate(rate_rps: float | None) -> str:
    return "–" if rate_rps is None else f"{rate_rps:.4g}"


def sizing_table(result: Mapping[str, Any]) -> str:
    """Return the cheapest fleet and what it rests on, the others as rows, then its launch and the schedule's gain."""
    return "\n".join([*_fleet_words(result), *_fleet_rows(result["alternatives"]), *_closing_words(result)])


def sizing_words(result: Mapping[str, Any]) -> list[str]:
    """Return a sizing's answer without the rows of its fleets, a line each."""
    return [*_fleet_words(result), *_closing_words(result)]


def _fleet_words(result: Mapping[str, Any]) -> list[str]:
    """Return the cheapest fleet in a sentence, and what it rests on."""
    if not result["feasible"]:
        lines = [f"no fleet meets {_required(result['slo'])}; closest: {' × '.join(_named(result))}",
                 *_missed_lines(result["missed"])]
    else:
        fewest = result["fewest_gpus"]
        lines = [f"cheapest: {_replicas(result)} × {_kind(result)[1]} {_kind(result)[0]} "
                 f"({result['quantization']}), {result['num_gpus']} GPUs, {result['cost_usd_per_hour']:.2f} USD/h, "
                 f"{result['cost_usd_per_month']:,.0f} USD/month; fewest GPUs: "
                 f"{fewest['num_gpus']} × {_kind(fewest)[0]} ({fewest['quantization']})",
                 f"required: {_required(result['slo'])}; predicted: {100 * result['attainment']:.2f} % of the "
                 f"requests, p99 TTFT {_ms(result['p99_ttft_ms'])}, p99 TPOT {_ms(result['p99_tpot_ms'])}"]
    lines.append(f"assumed: {'; '.join(result['assumptions'])}")
    for key, what in (("routers", "router"), ("scalings", "scaling")):
        if len(result[key]) > 1:
            lines.append(f"GPUs by {what}: {', '.join(f'{row[what]} {_gpus(row)}' for row in result[key])}")
    return lines


def _fleet_rows(fleets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the fleets as rows, those that cannot serve the load with their reason."""
    kinds = [_kind(fleet) for fleet in fleets]
    wide, size = max(14, *(len(gpu) + 1 for gpu, _ in kinds)), max(3, *(len(ranks) + 1 for _, ranks in kinds))
    lines = [f"{'gpu':<{wide}}{'tp':>{size}} {'weights':<10}{'replicas':>9}{'GPUs':>6}{'USD/h':>10}{'USD/Mtok':>10}"
             f"{'kW':>8}{'headroom':>10}  one less misses"]
    for fleet, (gpu, ranks) in zip(fleets, kinds, strict=True):
        name = f"{gpu:<{wide}}{ranks:>{size}} {fleet['quantization']:<10}"
        if "reason" in fleet:
            lines.append(f"{name}{'–':>9}  {fleet['reason']}")
        else:
            lines.append(f"{name}{_replicas(fleet):>9}{fleet['num_gpus']:>6,}{fleet['cost_usd_per_hour']:>10.2f}"
                         f"{fleet['cost_usd_per_million_output_tokens']:>10.3f}{fleet['power_kw']:>8.2f}"
                         f"{_growth(fleet['headroom']):>10}  {fleet['limiting_metric']}"
                         f"{'; times by priors' if fleet['priors'] else ''}")
    return lines


def _closing_words(result: Mapping[str, Any]) -> list[str]:
    """Return how to launch the cheapest fleet, and what a schedule would save."""
    lines = []
    if result["feasible"]:
        lines.append(launch_line(result))
    if result["decode_command"] is not None:
        lines.append(f"launch of decode replicas: {result['decode_command']}")
    if result["schedule"] is not None:
        found = result["schedule"]
        planned, static = found["gpu_hours"], found["static_gpu_hours"]
        lines.append(f"on a schedule {planned:,.1f} GPU-hours instead of {static:,.1f} ({planned / static - 1:+.0%})")
        if "peak_rps" in found:
            lines.append(f"peak {found['peak_rps']:,.4g} requests/s; at the mean of {found['mean_rps']:,.4g}, "
                         f"{found['num_replicas_at_mean']:,} replicas would be enough")
    lines += [f"no schedule for {' × '.join(_named(fleet))}: {fleet['schedule_reason']}"
              for fleet in result["alternatives"] if fleet.get("schedule_reason")]
    if result["stationary"] is False:
        lines.append("the repeated trace needs more replicas the longer it is: this number of replicas is too low")
    return lines


def _required(slo: Mapping[str, Any]) -> str:
    """Return what a load must keep: limits of each request with the share that must meet them, and of statistics."""
    limits = slo["text"].split()
    own = " ".join(limit for limit in limits if "_" not in limit)
    share = f" for {100 * slo['attainment']:.12g} % of the requests" if slo["attainment"] is not None else ""
    return ", ".join([f"{own}{share}"] * bool(own) + [limit for limit in limits if "_" in limit])


def _missed_lines(missed: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"missed: {each['sentence']}" for each in missed]


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g} ms"


def _gpus(row: Mapping[str, Any]) -> str:
    """Return the GPUs behind a router or by a way of scaling."""
    if row["num_gpus"] is None:
        return f"more than {row['more_than_replicas']:,} replicas"
    return f"{row['num_gpus']:,}"


def _replicas(fleet: Mapping[str, Any]) -> str:
    """Return how many replicas a fleet has, those that prefill only and the others apart."""
    prefill = fleet["prefill_replicas"]
    return f"{prefill} + {fleet['num_replicas'] - prefill}" if prefill else f"{fleet['num_replicas']:,}"


def _named(found: Mapping[str, Any]) -> tuple[str, str]:
    """Return the tensor-parallel size and the GPU of a fleet, or of the one that is closest to the objectives."""
    gpu, ranks = _kind(found.get("closest") or found)
    return ranks, gpu


def _kind(fleet: Mapping[str, Any]) -> tuple[str, str]:
    """Return a fleet's GPUs and tensor-parallel sizes, those of replicas that decode after a plus where they differ."""
    gpu, ranks = str(fleet["gpu"]), str(fleet["tensor_parallel_size"])
    if fleet.get("decode_gpu") is None:
        return gpu, ranks
    return f"{gpu} + {fleet['decode_gpu']}", f"{ranks} + {fleet['decode_tensor_parallel_size']}"


def _growth(share: float | None) -> str:
    return "no end" if share is None else f"{share:.1%}"
