"""The answer of `planner share` as text: the fleets, the GPUs in use, and the GPUs to add."""

import math

from planner.files.counts import share_text
from planner.planning.share_answer import ShareAnswer
from planner.planning.size_answer import Fleet
from planner.report.cells import headroom_text, replay_lines
from planner.report.plan_tables import COVERED, UNMEASURED, error_text
from planner.report.split_tables import predicted_words
from planner.report.text import Grid, Text

HEADS = ("deployment", "load/s", "replicas", "tp", "gpu", "weights", "GPUs", "USD/month", "headroom", "error",
         "covered")


def share_table(answer: ShareAnswer) -> Text:
    """Return the verdict, a row for each deployment, a row for each GPU, and the commands."""
    rows: list[tuple[str, ...]] = []
    for each in answer.deployments:
        fleet, kind = each.fleet, each.fleet.kind
        rows.append((each.deployment, f"{each.rate_rps:.4g}", f"{fleet.num_replicas:,}",
                     str(kind.tensor_parallel_size), kind.gpu, kind.quantization, f"{fleet.num_gpus:,}",
                     f"{fleet.cost_usd_per_month:,.0f}",
                     headroom_text(fleet.headroom), error_text(fleet), COVERED[fleet.covers_error]))
    lacks = any(each.lacking for each in answer.gpus)  # none if the cluster suffices
    gpus = [(each.gpu, f"{each.available:,}", f"{each.used:,}", *[f"{each.lacking:,}" if each.lacking else ""] * lacks)
            for each in answer.gpus]
    predicted = [f"{each.deployment}: {words}" for each in answer.deployments for words in (
        f"predicted {_share(each.fleet)}{predicted_words(each.fleet)}", *(f"doubt: {doubt}" for doubt in each.doubts))]
    commands = [f"{each.deployment}: {line}" for each in answer.deployments for line in (
        each.fleet.command, *filter(None, [each.fleet.lowered]), *replay_lines(each.fleet.replay_command))]
    unmeasured = [UNMEASURED] if any(each.fleet.priors for each in answer.deployments) else ()
    return Text([_verdict(answer), *([Grid(heads=HEADS, rows=rows, notes=unmeasured)] if rows else []),
                 Grid(heads=("gpu", "cluster", "used", *["to add"] * lacks), rows=gpus), *predicted, *commands])


def _share(fleet: Fleet) -> str:
    """Return the share of requests within their limits, if a share is asked for."""
    is_asked = any(each.required is not None for each in fleet.reached)
    return f"{share_text(fleet.attainment)} of the requests, " if is_asked else ""


def _verdict(answer: ShareAnswer) -> str:
    cost = f"{answer.cost_usd_per_month:,.0f} USD/month"
    if answer.feasible:
        aim = "with the fewest GPUs" if answer.minimized == "gpus" else "at the lowest cost"
        return f"the cluster serves all deployments within their SLOs, {aim}: {cost}"
    add = " and ".join(f"{each.lacking:,} × {each.gpu}" for each in answer.gpus if each.lacking)
    more = f"; add {add} for the whole load" if add else ""
    if not answer.deployments:
        return f"the cluster does not serve the deployments within their SLOs{more}"
    return f"the cluster serves {math.floor(100 * answer.load_share)} % of each load within the SLOs ({cost}){more}"
