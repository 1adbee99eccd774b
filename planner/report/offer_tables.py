"""The options, the sensitivity and the growth of `planner size` as text: rows of price terms, changes and months."""

from planner.planning.size_answer import Offer, SizeAnswer

COLUMNS = {  # column of the answer -> its heading and format
    "cost_usd_per_hour": ("USD/h", "10.2f"), "cost_usd_per_month": ("USD/month", "12,.2f"),
    "cost_usd_per_year": ("USD/year", "13,.2f"), "cost_usd_per_million_output_tokens": ("USD/Mtok", "10.3f"),
    "power_kw": ("kW", "8.2f"), "power_usd_per_month": ("power USD", "11,.2f"),
    "total_usd_per_month": ("total USD/month", "17,.2f"), "co2_kg_per_month": ("CO₂ kg/month", "14,.1f")}
WITH_POWER = ("power_usd_per_month", "total_usd_per_month")  # columns that only a price of power fills


def offer_rows(result: SizeAnswer) -> list[str]:
    """Return the table of options and the first of them in words; nothing if only on-demand prices were asked for."""
    offers = result.options
    if not offers or not (result.sorted_by or any(_has_more(offer) for offer in offers)):
        return []
    shown = [name for name in COLUMNS if _is_known(offers[0], name)]
    heads, formats = zip(*(COLUMNS[name] for name in shown), strict=True)
    wide = max(len("option"), *(len(_named(offer)) for offer in offers)) + 1
    widths = [int(form.partition(".")[0].rstrip(",")) for form in formats]
    lines = [f"{'option':<{wide}}" + "".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True))]
    lines += [f"{_named(offer):<{wide}}" + "".join(f"{getattr(offer, name):>{form}}"
                                                  for name, form in zip(shown, formats, strict=True))
              for offer in offers]
    best = min(offers, key=lambda offer: offer.total_usd_per_month)
    return [*lines, f"cheapest option: {_named(best)}, {best.total_usd_per_month:,.2f} USD/month, "
                    f"{best.total_usd_per_year:,.2f} USD/year"]


def _has_more(offer: Offer) -> bool:
    return offer.term != "on demand" or offer.power_usd_per_month is not None or offer.co2_kg_per_month is not None


def _is_known(offer: Offer, name: str) -> bool:
    return getattr(offer, "power_usd_per_month" if name in WITH_POWER else name) is not None


def _named(offer: Offer) -> str:
    """Return an option in words with its layout and weights, which tell fleets of the same GPUs apart."""
    return f"{offer.option} (tp {offer.kind.tensor_parallel_size}, {offer.kind.quantization})"


def sensitivity_rows(result: SizeAnswer) -> list[str]:
    """Return which assumptions the choice rests on: a row for each change; nothing if nobody asked."""
    found = result.sensitivity
    if found is None:
        return []
    lines = [f"{'assumption':<16}{'change':<24}{'GPUs':>6}{'USD/h':>10}  cheapest then"]
    for swing in found.swings:
        for end in (swing.low, swing.high):
            if end is not None:
                num_gpus = "–" if end.num_gpus is None else f"{end.num_gpus:,}"
                cost = "–" if end.cost_usd_per_hour is None else f"{end.cost_usd_per_hour:,.2f}"
                lines.append(f"{swing.assumption:<16}{end.change:<24}{num_gpus:>6}{cost:>10}  {end.cheapest}"
                             f"{' (flips)' if end.is_flipped else ''}")
    return lines


def growth_rows(result: SizeAnswer) -> list[str]:
    """Return what each month needs, a row each; nothing if nobody asked."""
    if result.growth is None:
        return []
    lines = [f"{'month':>5}{'requests/s':>12}{'replicas':>10}{'GPUs':>6}{'USD/month':>13}"]
    for month in result.growth.months:
        size = f"{'–':>10}{'–':>6}{'–':>13}"
        if month.num_gpus is not None:
            size = f"{month.num_replicas:>10,}{month.num_gpus:>6,}{month.cost_usd_per_month:>13,.2f}"
        step = "  grows" if month.must_grow else f"  changes to {month.gpu}" if month.is_change else ""
        lines.append(f"{month.month:>5}{month.rate_rps:>12,.4g}{size}{step}")
    return lines
