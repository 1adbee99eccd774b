"""The answers of `capacity` and `size` as text: the number, its basis, and the loads or fleets tried."""

from collections.abc import Sequence

from planner.files.counts import change_text, count_text, share_text
from planner.launch.write_manifest import role_command
from planner.planning.alternatives import size_text
from planner.planning.capacity_answer import CapacityAnswer, Probe
from planner.planning.far_kinds import FAR_TIMES, is_far
from planner.planning.missed import Missed
from planner.planning.size_answer import ClosestKind, Fleet, KindNames, SizeAnswer, UnableFleet
from planner.report.capacity_sentence import limit_words
from planner.report.cells import headroom_text, launch_line, replay_lines
from planner.report.offer_tables import growth_rows, offer_rows, sensitivity_rows, spot_rows, survival_words, year_rows
from planner.report.price_tables import api_rows, price_words
from planner.report.split_tables import ms_text, predicted_words, split_rows, split_words
from planner.report.text import Grid, Text
from planner.settings.objectives import Required

ROWS_BELOW, ROWS_ABOVE = 5, 4  # of the loads that were tried, next to the capacity
ALIKE = 0.01  # relative difference of two prices, below which both are one
COST_HEAD, POOLED_COST = "USD/Mtok", "USD/1,000"  # of output tokens; of embeddings or pairs
FLEET_HEADS = ("gpu", "tp", "weights", "replicas", "GPUs", "USD/h", COST_HEAD, "kW", "headroom", "error", "covered",
               "one less misses")
SAME = 0.02  # share by which the median of the draws may differ from the capacity without a word
UNMEASURED = "* kernels not measured on the GPU"  # by a star beside an error
COVERED = {True: "yes", False: "no", None: "–"}


def capacity_table(result: CapacityAnswer) -> Text:
    """Return a capacity with its bracket, its confidence and its basis, then the loads that were tried."""
    return Text([*_capacity_words(result), *([_probes(result)] if result.probes else [])])


def _capacity_words(result: CapacityAnswer) -> list[str]:
    unknown, assumed = result.unknown, f"assumed: {'; '.join(result.assumptions)}"
    if not result.feasible:
        return [f"capacity 0 {unknown.unit}: no {'number' if unknown.is_whole else 'rate'} meets "
                f"{_required(result.slo)}", *_missed_lines(result.missed), *filter(None, [result.lowered]), assumed]
    per_gpu = f", {result.capacity_per_gpu:.4g} per GPU" if result.num_gpus > 1 else ""
    meaning = (f"at {result.request_throughput or 0.0:.4g} requests/s" if unknown.is_whole else
               f"{result.rate_scale:.3g} times the trace's rate")
    lines = [f"capacity {unknown.text(result.capacity)} {unknown.unit}{per_gpu}, {meaning}; missed "
             f"{'with' if unknown.is_whole else 'at'} {unknown.text(result.bracket.upper)}, limited by "
             f"{result.limiting_metric}", _reached(result), *filter(None, [result.lowered]), *_confidence(result),
             assumed]
    for what, rows in (("scaling", [(row.scaling, row.capacity) for row in result.scalings]),
                       ("router", [(row.router, row.capacity) for row in result.routers])):
        if len(rows) > 1:
            loads = ", ".join(f"{name} {unknown.text(load)}" for name, load in rows)
            lines.append(f"{unknown.unit} by {what}: {loads}")
    return [*lines, *replay_lines(result.replay_command)]


def _confidence(result: CapacityAnswer) -> list[str]:
    """Return the quantiles of the draws, and why the capacity is not their median; nothing without draws."""
    sure, capacity, unit = result.confidence, result.capacity, result.unknown.unit
    if sure is None:
        return []
    lines = [f"confidence: at least {sure.p10:.4g} {unit} with 90 %, {sure.p50:.4g} with 50 %, {sure.p90:.4g} with "
             f"10 %"]
    if capacity and abs(sure.p50 / capacity - 1) > SAME:
        side, chance = ("below", "better") if sure.p50 > capacity else ("above", "worse")
        lines.append(f"the capacity of {capacity:.4g} is of the requests in their recorded order. It is {side} the "
                     f"50 % value, because the draws put the log's windows in other orders and vary the step times by "
                     f"their errors: the chance to serve it is {chance} than even")
    return lines


def _reached(result: CapacityAnswer) -> str:
    required = f"required: {_required(result.slo)}"
    share = share_text(result.attainment_at_capacity or 0.0, result.slo.attainment)
    parts = [f"{share} of the requests meet their own limits"] * _limits_requests(result.slo)
    parts += _statistics_at_capacity(result)
    return f"{required}; at capacity {', '.join(parts)}" if parts else required


def _statistics_at_capacity(result: CapacityAnswer) -> list[str]:
    """Return each statistic of the objectives with its value at the capacity and its limit."""
    values = next((probe.statistics_ms for probe in result.probes if probe.load == result.capacity), None) or {}
    return [f"{limit_words(name)} {ms_text(values[name])} of {1e3 * limit_s:,.6g} ms"
            for name, limit_s in result.slo.limits_s.items() if name in values and "_" in name]


def _limits_requests(slo: Required) -> bool:
    """Tell whether each request has limits of its own, beside the limits of statistics."""
    return any("_" not in limit for limit in slo.text.split())


def _probes(result: CapacityAnswer) -> Grid:
    """Return the loads that were tried around the capacity as rows, and the number of other loads."""
    shown = _around_the_edge([probe.is_met for probe in result.probes])
    has_share, required = _limits_requests(result.slo), result.slo.attainment or 0.0
    rows = [(result.unknown.text(probe.load), *[share_text(probe.attainment, required)] * has_share,
             f"{_limit(probe)}, {_met(probe, required if has_share else 0.0)}")
            for probe in (result.probes[k] for k in shown)]
    others = len(result.probes) - len(shown)
    tried = f"{count_text(others, 'more load')} {'was' if others == 1 else 'were'} tried; the JSON has all"
    return Grid(heads=(result.unknown.unit, *["attainment"] * has_share, "limited by, met"), rows=rows, left=(-1,),
                notes=[tried] if others else ())


def _around_the_edge(are_met: Sequence[bool]) -> list[int]:
    """Return the places of the rows to print: the first two, the last, and those next to the first miss.

    >>> _around_the_edge([True] * 20 + [False] * 20)
    [0, 1, 15, 16, 17, 18, 19, 20, 21, 22, 23, 39]
    """
    edge = are_met.index(False) if False in are_met else len(are_met)
    wanted = {0, 1, len(are_met) - 1, *range(edge - ROWS_BELOW, edge + ROWS_ABOVE)}
    return [k for k in range(len(are_met)) if k in wanted]


def _limit(probe: Probe) -> str:
    """Return the objective that is met worst, with its value if it is a statistic."""
    value = (probe.statistics_ms or {}).get(probe.limiting_metric)
    return probe.limiting_metric if value is None else f"{probe.limiting_metric} {ms_text(value)}"


def _met(probe: Probe, required: float) -> str:
    if probe.is_met:
        return "yes"
    return f"no: below {share_text(required)}" if probe.attainment < required else "no"


def sizing_table(result: SizeAnswer) -> Text:
    """Return the cheapest fleet and its basis, the others as rows, then its launch and the schedule's gain."""
    return Text([*split_words(result), *_fleet_words(result), _fleet_rows(result.alternatives),
                 *split_rows(result), *offer_rows(result), *api_rows(result), *sensitivity_rows(result),
                 *growth_rows(result), *year_rows(result), *spot_rows(result), *_closing_words(result)])


def _fleet_words(result: SizeAnswer) -> list[str]:
    """Return the cheapest fleet in a sentence, and its basis."""
    best, fewest, kind = result.cheapest, result.fewest_gpus, " of equal replicas" * (result.split is not None)
    if best is None or fewest is None:
        closest = "" if result.closest is None else " × ".join(_named(result.closest))
        lines = [f"no fleet{kind} meets {_required(result.slo)}; closest: {closest}", *_missed_lines(result.missed)]
    else:
        (ranks, gpu), share = _named(best.kind), share_text(best.attainment, result.slo.attainment)
        lines = [f"cheapest{kind}: {best.replicas} × {ranks} {gpu} ({best.kind.quantization}), {best.num_gpus} "
                 f"GPU{'s' * (best.num_gpus != 1)}, "
                 f"{best.cost_usd_per_hour:.2f} USD/h, {best.cost_usd_per_month:,.0f} USD/month; fewest GPUs: "
                 f"{fewest.num_gpus} × {_named(fewest.kind)[1]} ({fewest.kind.quantization})",
                 f"required: {_required(result.slo)}; predicted: "
                 f"{f'{share} of the requests, ' * _limits_requests(result.slo)}"
                 f"{predicted_words(best)}", *price_words(result), *_trust_words(best, result.doubts),
                 *_room_words(best, result.alternatives)]
    lines.append(f"assumed: {'; '.join(result.assumptions)}")
    for what, rows in (("router", [(row.router, row.size) for row in result.routers]),
                       ("scaling", [(row.scaling, row.size) for row in result.scalings])):
        if len(rows) > 1:
            lines.append(f"GPUs by {what}: {', '.join(f'{name} {size_text(size)}' for name, size in rows)}")
    return lines


def _trust_words(best: Fleet, doubts: Sequence[str]) -> list[str]:
    """Return whether the cheapest fleet bears the error of its prediction, and reasons for doubt, a line each."""
    sure = [] if not best.covers_error else [
        f"error: steps may take {100 * (best.step_error or 0.0):.0f} % longer than predicted (90 % of the measured "
        f"runs were within); the fleet keeps the objectives then"]
    return [*sure, *(f"doubt: {sentence}" for sentence in doubts)]


def _room_words(best: Fleet, fleets: Sequence[Fleet | UnableFleet]) -> list[str]:
    """Return which kind is cheaper than one more replica beyond the cheapest fleet's headroom; nothing if none is."""
    if best.headroom is None or best.prefill_replicas or best.instances:  # whole instances cost by steps
        return []
    more = best.cost_usd_per_hour * (1 + 1 / best.num_replicas)
    other = next((fleet for fleet in fleets if isinstance(fleet, Fleet) and fleet.cost_usd_per_hour < more and (
        fleet.headroom is None or fleet.headroom > best.headroom)), None)
    if other is None or other.cost_usd_per_hour < best.cost_usd_per_hour:
        return []
    return [f"more traffic: beyond the headroom of {headroom_text(best.headroom)}, one more replica makes "
            f"{more:,.2f} USD/h; {other.replicas} × {' '.join(_named(other.kind))} at "
            f"{other.cost_usd_per_hour:,.2f} USD/h has a headroom of {headroom_text(other.headroom)}"]


def _folded(fleets: Sequence[Fleet | UnableFleet]) -> list[str]:
    """Return in a line which fleets have no row; nothing if all have one."""
    far = [fleet for fleet in fleets if isinstance(fleet, Fleet)]
    if not far:
        return []
    names = ", ".join(f"{fleet.replicas} × {' '.join(_named(fleet.kind))}" for fleet in far)
    precision = max(fleet.precision for fleet in far)
    roughly = f", each at most {100 * precision:.0f} % too high" if precision else ""
    return [f"not shown, over {FAR_TIMES} times the price of the cheapest{roughly}: {names}; the JSON has them"]


def _fleet_rows(every: Sequence[Fleet | UnableFleet]) -> Grid:
    """Return the fleets as rows; a fleet that cannot serve the load has its reason."""
    fleets = [fleet for fleet in every if not is_far(fleet, every[0])]
    rows: list[tuple[str, ...]] = []
    for fleet in fleets:
        ranks, gpu = _named(fleet.kind)
        name = (gpu, ranks, fleet.kind.quantization)
        if isinstance(fleet, UnableFleet):
            rows.append((*name, "–", fleet.reason))
        else:
            rows.append((*name, fleet.replicas, f"{fleet.num_gpus:,}", f"{fleet.cost_usd_per_hour:.2f}",
                         f"{fleet.unit_cost:{'.3g' if fleet.is_pooled else '.3f'}}", f"{fleet.power_kw:.2f}",
                         headroom_text(fleet.headroom), error_text(fleet), COVERED[fleet.covers_error],
                         f"{'–' if fleet.limiting_metric == 'none' else fleet.limiting_metric}"
                         f"{'; max_model_len is lowered' if fleet.lowered else ''}"))
    unmeasured = [fleet for fleet in fleets if isinstance(fleet, Fleet) and fleet.priors]
    far = _folded([fleet for fleet in every if is_far(fleet, every[0])])
    is_pooled = any(fleet.is_pooled for fleet in fleets if isinstance(fleet, Fleet))
    heads = [POOLED_COST if is_pooled and head == COST_HEAD else head for head in FLEET_HEADS]
    return Grid(heads=heads, rows=rows, left=(0, 2, -1), notes=[*([UNMEASURED] if unmeasured else []), *far])


def error_text(fleet: Fleet) -> str:
    """Return by how much longer steps may take, with a star if their kernels were not measured on the GPU."""
    return ("–" if fleet.step_error is None else f"{100 * fleet.step_error:.0f} %") + "*" * bool(fleet.priors)


def _closing_words(result: SizeAnswer) -> list[str]:
    """Return how to launch the cheapest fleet, and the saving of a schedule."""
    best = result.cheapest
    lines = survival_words(result)
    lines += [] if result.sensitivity is None else [f"sensitivity: {result.sensitivity.sentence}"]
    if result.growth is not None:
        lines.append(f"growth of {result.growth.growth}: {result.growth.sentence}")
    if best is not None:
        lines += [*_launch_lines(best), *filter(None, [best.lowered]), *_check_lines(best)]
    if best is not None and best.schedule is not None:
        found = best.schedule
        planned, static = found.gpu_hours, found.static_gpu_hours
        lines.append(f"on a schedule {planned:,.1f} GPU-hours instead of {static:,.1f} "
                     f"({change_text(planned / static - 1)})")
        if found.peak_rps is not None:
            lines.append(f"peak {found.peak_rps:,.4g} requests/s; at the mean of {found.mean_rps:,.4g}, "
                         f"{found.num_replicas_at_mean:,} replica{'s' * (found.num_replicas_at_mean != 1)} would be "
                         f"enough")
    lines += [f"no schedule for {' × '.join(_named(fleet.kind))}: {fleet.schedule_reason}"
              for fleet in result.alternatives if isinstance(fleet, Fleet) and fleet.schedule_reason]
    return lines


def _check_lines(fleet: Fleet) -> list[str]:
    """Return the command that replays a fleet, and why its cost of a token is another one, if so."""
    mean, replayed = fleet.cost_usd_per_million_output_tokens, fleet.replay_cost_usd_per_million_output_tokens
    lines = replay_lines(fleet.replay_command)
    if not lines or mean is None or replayed is None or fleet.replay_rate is None or abs(mean / replayed - 1) < ALIKE:
        return lines
    spares = "without spare replicas, " if fleet.num_spare else ""
    return [*lines, f"USD/Mtok: {mean:.3f} is the price of all replicas over the tokens at the mean rate; the replay "
                    f"gives {replayed:.3f}, {spares}at {fleet.replay_rate:,.4g} requests/s and the catalog's prices"]


def _launch_lines(fleet: Fleet) -> list[str]:
    """Return the commands that launch the replicas of a fleet, with the flags of prefill and decode if they are apart.
    """
    if fleet.decode_command is None:
        return [launch_line(fleet.command, fleet.command_lacks)]
    return [launch_line(role_command(fleet.command, "prefill"), fleet.command_lacks, " of prefill replicas"),
            launch_line(role_command(fleet.decode_command, "decode"), (), " of decode replicas")]


def _required(slo: Required) -> str:
    """Return the objectives of a load: limits of each request with the share that must meet them, and of statistics."""
    limits = slo.text.split()
    own = " ".join(limit for limit in limits if "_" not in limit)
    share = f" for {100 * slo.attainment:.12g} % of the requests" if slo.attainment is not None else ""
    return ", ".join([f"{own}{share}"] * bool(own) + [limit for limit in limits if "_" in limit])


def _missed_lines(missed: Sequence[Missed]) -> list[str]:
    return [f"missed: {each.sentence}" for each in missed]


def _named(kind: KindNames | ClosestKind) -> tuple[str, str]:
    """Return a kind's tensor-parallel sizes and GPUs; after a plus the sizes and GPUs of separate decode replicas."""
    if kind.decode_gpu is None:
        return str(kind.tensor_parallel_size), kind.gpu
    return (f"{kind.tensor_parallel_size} + {kind.decode_tensor_parallel_size}", f"{kind.gpu} + {kind.decode_gpu}")

