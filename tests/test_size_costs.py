"""What fleets cost: price terms, power and CO₂, the table of options and its order, MIG slices, and the Azure hour."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import fails, planner
from helpers import cheapest, filled, leave_out_headroom, trace_of

from planner.catalog.catalog_files import load_gpu, mig_slices
from planner.deployment.deploy import deploy, resolve
from planner.errors import CatalogError, UnknownNameError, UsageError
from planner.planning.fleets import check_prices, whole_gpus
from planner.planning.offers import COLUMNS, offers
from planner.planning.price_list import read_prices
from planner.planning.search_options import Choices
from planner.planning.size_answer import Fleet, KindNames, Offer, Schedule, SchedulePart, SizeAnswer
from planner.planning.sizing import size
from planner.planning.write_size import fleet_manifest
from planner.report.offer_tables import offer_rows
from planner.report.profile_tables import step_class_terms
from planner.report.text import Text
from planner.results.uncertainty import residuals_for
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import read_trace
from planner.traces.shaping.window_and_rate import limit

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).parents[2] / "shared"))
H100 = Scenario(model="llama-3.1-8b", gpu="h100-sxm", router="round-robin")
PLAIN = Choices(gpus=("h100-sxm",), ranks=(1,), compare_assumptions=False, jobs=1)
ROWS = [(0.05 * k, 200, 20) for k in range(200)]
SLICED = ("a100-sxm", "a100-sxm-40gb", "a100-pcie", "h100-sxm", "h200-sxm", "b200-sxm")


def fleet_of(gpu: str, counts: tuple[int, ...], **values: Any) -> Fleet:
    """Return a fleet of one GPU a replica, with a schedule of an hour for each number."""
    parts = tuple(filled(SchedulePart, start_s=3600.0 * k, duration_s=3600.0, num_replicas=count, num_gpus=count)
                  for k, count in enumerate(counts))
    kind = filled(KindNames, gpu=gpu)
    return filled(Fleet, kind=kind, num_gpus=max(counts), num_spare=0, cost_usd_per_hour=2.0 * max(counts),
                  schedule=filled(Schedule, parts=parts), **values)


def test_costs_are_hours_times_price_to_the_cent() -> None:
    choices = replace(PLAIN, gpus=("h100-sxm", "l40s"), prices={"h100-sxm": 2.37, "l40s": 0.91}, power_price=0.23,
                      reserved_prices={"h100-sxm": 1.61}, spot_prices={"l40s": 0.33}, co2_per_kwh=411.0)
    found = size(trace_of(ROWS), H100, parse_objectives("ttft:2000 tpot:100", 0.99), choices)
    prices = {("h100-sxm", "on demand"): 2.37, ("l40s", "on demand"): 0.91, ("h100-sxm", "reserved"): 1.61,
              ("l40s", "spot"): 0.33}
    assert {(offer.kind.gpu, offer.term) for offer in found.options} == set(prices)
    for offer in found.options:
        price = offer.num_gpus * prices[offer.kind.gpu, offer.term]
        assert round(offer.cost_usd_per_month, 2) == round(730 * price, 2)
        assert round(offer.cost_usd_per_year, 2) == round(8760 * price, 2)
        power = 0.23 * offer.power_kw
        assert offer.power_usd_per_month is not None
        assert round(offer.power_usd_per_month, 2) == round(730 * power, 2)
        assert round(offer.total_usd_per_month, 2) == round(730 * (price + power), 2)
        assert round(offer.total_usd_per_year, 2) == round(8760 * (price + power), 2)
        assert offer.co2_kg_per_month == pytest.approx(730 * offer.power_kw * 0.411)
    best = cheapest(found)
    assert round(best.cost_usd_per_month, 2) == round(730 * best.cost_usd_per_hour, 2)
    assert round(best.cost_usd_per_year, 2) == round(8760 * best.cost_usd_per_hour, 2)


def test_the_table_is_sorted_by_any_column() -> None:
    fleets = [fleet_of("h100-sxm", (3, 1), power_kw=1.5, headroom=0.2), fleet_of("l40s", (5,), power_kw=0.7)]
    choices = replace(PLAIN, reserved_prices={"h100-sxm": 1.0}, power_price=0.1)
    for column in COLUMNS:
        rows = [getattr(offer, column) for offer in offers(fleets, replace(choices, sort=column))]
        known = [value for value in rows if value is not None]
        assert rows == sorted(known) + [None] * (len(rows) - len(known)), column
    assert [offer.total_usd_per_month for offer in offers(fleets, choices)] == sorted(
        offer.total_usd_per_month for offer in offers(fleets, choices))
    with pytest.raises(UnknownNameError, match="total_usd_per_month"):
        size(trace_of(ROWS), H100, parse_objectives("ttft:2000", 0.99), replace(PLAIN, sort="total_usd_per_mont"))


@pytest.mark.parametrize("counts", [(3, 1), (4, 4, 1, 1, 1), (2, 5, 3, 0)])
@pytest.mark.parametrize("reserved", [0.5, 1.0, 1.9])
def test_the_mixture_of_reserved_and_on_demand_is_the_cheapest(counts: tuple[int, ...], reserved: float) -> None:
    fleet = fleet_of("h100-sxm", counts)
    rows = offers([fleet], replace(PLAIN, prices={"h100-sxm": 2.0}, reserved_prices={"h100-sxm": reserved}))
    by_term = {(row.term, row.is_scheduled): row.cost_usd_per_hour for row in rows}
    tried = {base: base * reserved + 2.0 * sum(max(count - base, 0) for count in counts) / len(counts)
             for base in range(max(counts) + 1)}
    assert by_term["on demand", True] == pytest.approx(tried[0])
    assert by_term["on demand", False] == pytest.approx(2.0 * max(counts))
    assert by_term["reserved", False] == pytest.approx(reserved * max(counts))
    assert min(by_term.values()) == pytest.approx(min(tried.values()))


def test_a_prices_file_goes_behind_the_options(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text("[h100-sxm]\non_demand = 9.0\nreserved = 1.5\n[\"NVIDIA L40S\"]\nspot = 0.4\n")
    choices = replace(PLAIN, gpus=("h100-sxm", "h100-sxm:3g.40gb"), price_file=read_prices(path),
                      reserved_prices={"h100-sxm": 1.25})
    found = size(trace_of(ROWS), H100, parse_objectives("ttft:2000 tpot:100", 0.99), choices)
    costs = {(offer.kind.gpu, offer.term): offer.cost_usd_per_hour / offer.num_gpus for offer in found.options}
    assert costs == {("h100-sxm", "on demand"): 9.0, ("h100-sxm", "reserved"): 1.25,
                     ("h100-sxm:3g.40gb", "on demand"): 4.5, ("h100-sxm:3g.40gb", "reserved"): 0.625}
    assert found.cheapest is not None
    assert found.cheapest.price_usd_per_gpu_hour in (4.5, 9.0)


@pytest.mark.parametrize(("text", "words"), [
    ("h100-sxm = 2.5\n", r"\[h100-sxm\] = 2.5: must be a table of on_demand, reserved, spot"),
    ("[h100-sxm]\nmonthly = 2.5\n", "must be a table of on_demand, reserved, spot"),
    ("[h100-sxm]\nspot = -1\n", r"\[h100-sxm\] spot = -1: must be a number of at least 0"),
    ("[h100-sxm]\nspot = nan\n", "must be a number"), ("[h1000]\nspot = 1\n", "h1000"), ("[h100", "cannot be read")])
def test_bad_prices_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises((UsageError, UnknownNameError), match=words):
        read_prices(path)


@pytest.mark.parametrize("choices", [replace(PLAIN, power_price=-0.1), replace(PLAIN, co2_per_kwh=float("nan"))])
def test_bad_prices_of_power_are_refused(choices: Choices) -> None:
    with pytest.raises(UsageError, match="must be a number of at least 0"):
        size(trace_of(ROWS), H100, parse_objectives("ttft:2000", 0.99), choices)


def test_a_price_of_a_gpu_that_no_fleet_has_is_refused() -> None:
    for name in ("h100-sxm", "h100-sxm:3g.40gb"):
        check_prices(replace(PLAIN, gpus=(name,), prices={"h100-sxm": 2.0}))
    with pytest.raises(UsageError, match="--spot-price h200-sxm=1: no fleet has this GPU; --gpu names h100-sxm"):
        check_prices(replace(PLAIN, spot_prices={"h200-sxm": 1.0}))


def test_the_price_of_power_decides_between_fleets() -> None:
    choices = replace(PLAIN, gpus=("h100-sxm", "l40s"), prices={"h100-sxm": 1.0, "l40s": 1.1})
    trace, objectives = trace_of(ROWS), parse_objectives("ttft:2000 tpot:100", 0.99)
    assert cheapest(size(trace, H100, objectives, choices)).kind.gpu == "h100-sxm"
    assert cheapest(size(trace, H100, objectives, replace(choices, power_price=5.0))).kind.gpu == "l40s"


def test_the_text_has_the_options_that_are_asked_for() -> None:
    plain = filled(Offer, option="1 × h100-sxm on demand", term="on demand", power_usd_per_month=None)
    assert offer_rows(filled(SizeAnswer, options=(plain,))) == []
    rows = Text(offer_rows(filled(SizeAnswer, options=(plain,), sorted_by="num_gpus"))).lines()
    assert rows[0].split()[0] == "option"
    assert "power" not in rows[0]
    powered = replace(plain, power_usd_per_month=12.5, total_usd_per_month=1999.125, co2_kg_per_month=3.25)
    text = str(Text(offer_rows(filled(SizeAnswer, options=(powered,)))))
    assert "12.50" in text
    assert "cheapest option: 1 × h100-sxm on demand (tp 1, x), 1,999.12 USD/month" in text


@pytest.mark.parametrize("name", SLICED)
def test_slices_have_their_share_of_the_gpu(name: str) -> None:
    gpu, slices = load_gpu(name), mig_slices(name)
    assert len(slices) == 6
    for profile, share in slices.items():
        own = load_gpu(f"{name}:{profile}")
        assert (own.name, own.slice_of, own.gpus_per_node) == (f"{name}:{profile}", name, 1)
        assert own.kernels_of == gpu.kernels_of
        size_gb = int(profile.partition(".")[2].removesuffix("gb"))
        assert own.hbm_capacity_bytes == pytest.approx(size_gb * 1e9, rel=0.12)  # named in GB or GiB, as it comes
        assert own.hbm_bandwidth_bytes_per_s == pytest.approx(gpu.hbm_bandwidth_bytes_per_s * share.memory_share)
        assert own.flops_per_s["bf16"] <= gpu.flops_per_s["bf16"] * int(profile[0]) / 7 * 1.4
        for field, whole in (("hbm_capacity_bytes", gpu.hbm_capacity_bytes), ("tdp_w", gpu.tdp_w),
                             ("idle_w", gpu.idle_w), ("price_usd_per_hour", gpu.price_usd_per_hour),
                             ("hbm_bandwidth_bytes_per_s", gpu.hbm_bandwidth_bytes_per_s)):
            assert own.instances * getattr(own, field) <= whole * (1 + 1e-9), (profile, field)
            assert own.provenance[field].value == pytest.approx(getattr(own, field))
            assert name in own.provenance[field].source


def test_the_whole_as_a_slice_is_the_whole_and_less_is_slower() -> None:
    whole, most, half, least = (step_class_terms(deploy(Scenario(model="llama-3.2-1b", gpu=gpu))) for gpu in (
        "h100-sxm", "h100-sxm:7g.80gb", "h100-sxm:3g.40gb", "h100-sxm:1g.10gb"))
    assert most == whole
    for step, terms in whole.items():
        times = [found[step]["total_s"] for found in (half, least)]
        assert terms["total_s"] < times[0] < times[1], step


def test_intervals_of_a_slice_are_those_of_gpus_that_nobody_measured() -> None:
    slice_, whole = (residuals_for(resolve(replace(H100, gpu=gpu), trace_of(ROWS)))
                     for gpu in ("h100-sxm:3g.40gb", "h100-sxm"))
    assert "every operator were not measured on h100-sxm:3g.40gb" in slice_.basis
    assert whole.basis == ""


def test_what_is_no_slice_is_said() -> None:
    with pytest.raises(CatalogError, match=r"h200-sxm has no MIG profile '1g.10gb'; its profiles are 1g.18gb"):
        load_gpu("h200-sxm:1g.10gb")
    with pytest.raises(CatalogError, match="l40s has no MIG profile"):
        load_gpu("l40s:1g.10gb")
    with pytest.raises(UnknownNameError, match="h1000"):
        load_gpu("h1000:1g.10gb")


def test_a_fleet_of_slices_counts_gpus_and_names_its_resource() -> None:
    found = size(trace_of(ROWS), H100, parse_objectives("ttft:5000 tpot:200", 0.99),
                 replace(PLAIN, gpus=("h100-sxm", "h100-sxm:3g.40gb", "h100-sxm:1g.10gb"), num_spare=2))
    fleets = {fleet.kind.gpu: fleet for fleet in found.alternatives}
    slices = fleets["h100-sxm:3g.40gb"]
    assert isinstance(slices, Fleet)
    assert whole_gpus(slices.kind, 3) == 2
    assert any(f"{slices.num_gpus} × h100-sxm:3g.40gb take" in note for note in slices.notes)
    assert "does not fit" in str(getattr(fleets["h100-sxm:1g.10gb"], "reason", ""))
    assert "nvidia.com/mig-3g.40gb" in fleet_manifest("k8s", slices, None)


@pytest.mark.slow
def test_the_azure_hour_by_parts_on_two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the GPUs misses the objectives in a part: it is named with the part, and the other has its schedule."""
    leave_out_headroom(monkeypatch)
    source = SHARED / "traces" / "azure_llm_2023_conv.csv"
    if not source.is_file():
        pytest.skip("no recorded traces here")
    choices = replace(PLAIN, gpus=("h100-sxm", "l40s"), period_s=600.0)
    trace = read_trace(str(source))
    found = size(trace, H100, parse_objectives("ttft:1000 tpot:50", 0.99), choices)
    schedules = {fleet.kind.gpu: fleet.schedule for fleet in found.alternatives if isinstance(fleet, Fleet)}
    assert {gpu for gpu, schedule in schedules.items() if schedule is not None} == {"h100-sxm", "l40s"}
    for offer in found.options:
        price = load_gpu(offer.kind.gpu).price_usd_per_hour
        assert round(offer.cost_usd_per_month, 2) == round(730 * offer.num_gpus * price, 2)
    tight = size(trace, H100, parse_objectives("ttft:470 tpot:50", 0.99), replace(choices, period_s=60.0))
    fleets = {fleet.kind.gpu: fleet for fleet in tight.alternatives if isinstance(fleet, Fleet)}
    assert fleets["h100-sxm"].schedule is not None
    assert fleets["l40s"].schedule is None
    assert "the part from" in str(fleets["l40s"].schedule_reason)


@pytest.mark.slow
def test_the_command_takes_prices(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text("[h100-sxm]\nreserved = 1.5\n")
    asked = ("size", "chat", "--limit", 200, "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--tensor-parallel-size",
             1, "--slo", "ttft:2000", "--jobs", 1)
    run = planner(*asked, "--prices", path, "--spot-price", "h100-sxm=0.8", "--power-price", 0.2, "--co2-per-kwh", 300,
                  "--sort", "cost_usd_per_month")
    assert run.returncode == 0, run.stderr
    rows = [line.partition(" (")[0] for line in run.stdout.splitlines() if line.startswith("1 × h100-sxm")]
    assert rows == ["1 × h100-sxm spot", "1 × h100-sxm reserved", "1 × h100-sxm on demand"]
    assert "cheapest option: 1 × h100-sxm spot" in run.stdout
    fails(planner(*asked, "--spot-price", "h100-sxm=x"), 2, "--spot-price 'h100-sxm=x'")
    fails(planner(*asked, "--sort", "price"), 2, "column of --sort")


def test_pruned_layouts_change_no_answer() -> None:
    """The cheapest fleet and the best layout of each GPU are the same; what was not tried is told."""
    trace = limit(read_trace("chat"), 600)
    choices = Choices(gpus=("h100-sxm", "l40s"), ranks=(1, 2, 4), compare_assumptions=False, jobs=1)
    scenario, objectives = Scenario(model="llama-3.1-8b", rate_scale=3.0), parse_objectives("p99_ttft:800 p99_tpot:40")
    whole, pruned = (size(trace, scenario, objectives, replace(choices, prune_layouts=prunes))
                     for prunes in (False, True))
    assert pruned.cheapest == whole.cheapest

    def best(found: SizeAnswer) -> dict[str, float]:
        fleets = [fleet for fleet in found.alternatives if isinstance(fleet, Fleet)]
        return {gpu: min(fleet.cost_usd_per_hour for fleet in fleets if fleet.kind.gpu == gpu)
                for gpu in ("h100-sxm", "l40s")}

    assert best(pruned) == best(whole)
    with pytest.raises(UsageError, match=r"--prune-layouts with --power-price 0.2"):
        size(trace, scenario, objectives, replace(choices, prune_layouts=True, power_price=0.2))
    num_left_out = len(whole.alternatives) - len(pruned.alternatives)
    assert num_left_out > 0
    (note,) = [note for note in pruned.notes if note.startswith("Not sized, because another layout")]
    assert note.count("×") == num_left_out


def test_a_fleet_has_each_objective_with_its_value() -> None:
    trace = limit(read_trace("chat"), 300)
    found = size(trace, Scenario(model="llama-3.1-8b"), parse_objectives("ttft:900 tpot:60 p99_e2el:30000", 0.95),
                 Choices(gpus=("h100-sxm",), ranks=(1,), compare_assumptions=False, jobs=1))
    assert found.cheapest is not None
    reached = {each.objective: each for each in found.cheapest.reached}
    assert {name: (each.limit_ms, each.required) for name, each in reached.items()} == {
        "ttft": (900.0, 0.95), "tpot": (60.0, 0.95), "p99_e2el": (30000.0, None)}
    assert all(0 < (each.value_ms or 0) <= each.limit_ms for each in reached.values())
