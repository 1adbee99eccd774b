"""The options, sensitivity, growth, spot share and survival of `planner size` as text."""

from planner.files.counts import count_text, figure_text, share_text
from planner.planning.failing_units import UNITS
from planner.planning.far_kinds import is_far
from planner.planning.size_answer import Fleet, Offer, SizeAnswer
from planner.planning.survival_answer import Survival
from planner.report.cells import replay_lines
from planner.report.text import Grid

COLUMNS = {  # column of the answer -> its heading and format
    "cost_usd_per_hour": ("USD/h", ".2f"), "cost_usd_per_month": ("USD/month", ",.2f"),
    "cost_usd_per_year": ("USD/year", ",.2f"), "cost_usd_per_million_output_tokens": ("USD/Mtok", ".3f"),
    "power_kw": ("kW", ".2f"), "power_usd_per_month": ("power USD", ",.2f"),
    "total_usd_per_month": ("total USD/month", ",.2f"), "co2_kg_per_month": ("CO₂ kg/month", ",.1f")}
YEAR_COLUMNS = ("num_replicas", "num_units", "share", "missed_minutes_per_year", "saved_minutes_per_year",
                "cost_usd_per_month")
WITH_POWER = ("power_usd_per_month", "total_usd_per_month")  # columns that only a price of power fills


def offer_rows(result: SizeAnswer) -> list[str | Grid]:
    """Return the table of options and the first of them in words; nothing if only on-demand prices were asked for."""
    offers = result.options
    if not offers or not (result.sorted_by or any(_has_more(offer) for offer in offers)):
        return []
    shown = [name for name in COLUMNS if _is_known(offers[0], name)]
    heads, formats = zip(*(COLUMNS[name] for name in shown), strict=True)
    rows = [(_named(offer), *(format(getattr(offer, name), form) for name, form in zip(shown, formats, strict=True)))
            for offer in offers]
    best = min(offers, key=lambda offer: offer.total_usd_per_month)
    return [Grid(heads=("option", *heads), rows=rows),
            f"cheapest option: {_named(best)}, {best.total_usd_per_month:,.2f} USD/month, "
            f"{best.total_usd_per_year:,.2f} USD/year"]


def _has_more(offer: Offer) -> bool:
    return offer.term != "on demand" or offer.power_usd_per_month is not None or offer.co2_kg_per_month is not None


def _is_known(offer: Offer, name: str) -> bool:
    return getattr(offer, "power_usd_per_month" if name in WITH_POWER else name) is not None


def _named(offer: Offer) -> str:
    """Return an option in words with its layout and weights, which tell fleets of the same GPUs apart."""
    return f"{offer.option} (tp {offer.kind.tensor_parallel_size}, {offer.kind.quantization})"


def sensitivity_rows(result: SizeAnswer) -> list[Grid]:
    """Return which assumptions the choice rests on: a row for each change; nothing if they were not asked for."""
    if result.sensitivity is None:
        return []
    rows = [(swing.assumption, end.change, "–" if end.num_gpus is None else f"{end.num_gpus:,}",
             "–" if end.cost_usd_per_hour is None else f"{end.cost_usd_per_hour:,.2f}",
             f"{end.cheapest}{' (flips)' if end.is_flipped else ''}")
            for swing in result.sensitivity.swings for end in (swing.low, swing.high) if end is not None]
    return [Grid(heads=("assumption", "change", "GPUs", "USD/h", "cheapest then"), rows=rows, left=(0, 1, -1))]


def growth_rows(result: SizeAnswer) -> list[Grid]:
    """Return the fleet that each month needs, a row each; nothing if no growth was asked for."""
    if result.growth is None:
        return []
    rows: list[tuple[str, ...]] = []
    for month in result.growth.months:
        size = ("–", "–", "–") if month.num_gpus is None else (
            f"{month.num_replicas:,}", f"{month.num_gpus:,}", f"{month.cost_usd_per_month:,.2f}")
        step = "grows" if month.must_grow else f"changes to {month.gpu}" if month.is_change else ""
        rows.append((str(month.month) if month.month else "today", figure_text(month.rate_rps), *size, step))
    last, total = len(rows) - 1, result.growth.total_usd
    rows += [] if total is None else [(f"1 to {last}", "", "", "", f"{total:,.2f}", "total USD, without today")]
    return [Grid(heads=("month", "requests/s", "replicas", "GPUs", "USD/month", ""), rows=rows, left=(-1,))]


def spot_rows(result: SizeAnswer) -> list[str | Grid]:
    """Return the mixes of replicas that stay and spot replicas, and the best one; nothing without --evictions."""
    spot = result.spot
    if spot is None:
        return []
    rows = [(f"{mix.num_steady:,}", f"{mix.num_spot:,}", f"{mix.cost_usd_per_month:,.0f}",
             "–" if mix.attainment is None else share_text(mix.attainment), "yes" if mix.is_met else "no")
            for mix in spot.mixes]
    return [Grid(heads=(spot.steady_term, "spot", "USD/month", "within limits, worst draw", "objectives hold"),
                 rows=rows),
            f"{spot.sentence}; {count_text(spot.num_evictions, 'eviction')} in {spot.num_draws} draws; a spot replica "
            f"runs {100 * spot.running_share:.3g} % of the time",
            *replay_lines(spot.replay_command, "to check the worst draw")]


def survival_words(result: SizeAnswer) -> list[str]:
    """Return how the cheapest fleet survives, and the price of survival of other kinds; nothing without --survive."""
    pairs = [(fleet, fleet.survival) for fleet in result.alternatives if isinstance(fleet, Fleet) and fleet.survival]
    if not pairs:
        return []
    best = pairs[0][1]
    others = [f"{fleet.kind.words}: {survival.sentence}" for fleet, survival in pairs[1:]
              if not is_far(fleet, pairs[0][0])]
    return [best.sentence, _failure_line(best), *replay_lines(best.replay_command, "to check the failure"), *others,
            "other routers and scalings are not compared with --survive"]


def _failure_line(survival: Survival) -> str:
    """Return the worst failure, and the values that the fleet reaches with it."""
    reached = "".join(f", {one.objective} {figure_text(one.value_ms)} ms" for one in survival.reached
                      if one.value_ms is not None)
    back = "for the rest of the load" if survival.duration_s is None else f"for {survival.duration_s:,.6g} s"
    return (f"worst of {survival.num_moments:,} moments: {count_text(survival.num_failed, 'replica')} down from "
            f"{survival.at_s:,.6g} s {back}; the router finds out after {survival.health_check_s:g} s "
            f"(--health-check); predicted: {100 * survival.attainment:.2f} % of the requests within their "
            f"limits{reached}")


def year_rows(result: SizeAnswer) -> list[Grid]:
    """Return the share of a year for each number of replicas of the cheapest fleet; nothing without --mtbf."""
    best = result.cheapest
    if best is None or best.survival is None or not best.survival.year:
        return []
    rows = [(f"{row.num_replicas:,}", f"{row.num_units:,}", f"{100 * row.share:.9g} %",
             figure_text(row.missed_minutes_per_year),
             "–" if row.saved_minutes_per_year is None else figure_text(row.saved_minutes_per_year),
             f"{row.cost_usd_per_month:,.0f}") for row in best.survival.year]
    heads = ("replicas", UNITS[best.survival.unit], "within the SLO", "min/year missed", "saved by the last",
             "USD/month")
    return [Grid(heads=heads, rows=rows)]
