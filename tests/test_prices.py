"""List prices: the tables with sources and dates, old prices, whole instances, and the break-even with hosted APIs."""

import itertools
import json
import random
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from command_line import H100 as H100_OPTIONS
from command_line import HEADER, fails, planner
from helpers import cheapest, filled, trace_of

from planner.catalog import prices
from planner.catalog.catalog_files import load_gpu, load_model
from planner.catalog.prices import ApiPrice, GpuPrice, api_prices, gpu_prices, is_old, prices_of_api, prices_of_cloud
from planner.errors import CatalogError, UnknownNameError, UsageError
from planner.launch.named_gpus import gpu_of_instance, gpus_of_instance
from planner.planning import used_prices
from planner.planning.break_even import beside_apis, break_even, peak_to_mean
from planner.planning.fleets import with_prices
from planner.planning.instances import rent, rents_up_to
from planner.planning.search_options import Choices
from planner.planning.size_answer import Fleet, KindNames
from planner.planning.sizing import size
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario

H100 = Scenario(model="llama-3.1-8b", gpu="h100-sxm", router="round-robin")
PLAIN = Choices(gpus=("h100-sxm",), ranks=(1,), compare_assumptions=False, jobs=1)
ROWS = [(0.05 * k, 200, 20) for k in range(200)]
SLO = parse_objectives("ttft:2000 tpot:100", 0.99)


def test_each_price_has_a_known_gpu_or_model_a_source_and_a_date() -> None:
    gpus, apis = gpu_prices(), api_prices()
    assert (len(gpus), len({row.cloud for row in gpus})) == (148, 10)
    assert (len(apis), len({row.model for row in apis})) == (49, 28)
    for source, day in [(row.source, row.date) for row in gpus] + [(row.source, row.date) for row in apis]:
        assert source
        assert "2026-08-23" <= str(day) <= "2026-11-28"
    assert len({(row.cloud, row.region, row.instance, row.term) for row in gpus}) == len(gpus)
    assert len({(row.provider, row.served_as) for row in apis}) == len(apis)
    assert {load_gpu(row.gpu).name for row in gpus} == {row.gpu for row in gpus}
    assert {load_model(row.model).name for row in apis} == {row.model for row in apis}
    for row in apis:
        assert row.cached_input is None or row.cached_input <= row.input <= row.output, row


def test_instances_have_the_gpus_that_launch_commands_read_from_their_names() -> None:
    named = [row for row in gpu_prices() if row.instance and gpu_of_instance(row.instance) is not None]
    assert len(named) > 50
    for row in named:
        assert row.gpu == gpu_of_instance(str(row.instance)), row
        assert gpus_of_instance(str(row.instance)) in (None, row.gpus), row


def test_a_cloud_without_a_region_is_its_first_region() -> None:
    small, large = (row for row in prices_of_cloud("aws") if row.gpu == "h100-sxm")
    assert (small.instance, small.region, small.usd_per_hour) == ("p5.4xlarge", "us-east-1", 6.88)
    assert (large.gpus, large.usd_per_gpu_hour) == (8, 6.88)
    assert {row.region for row in prices_of_cloud("aws:ap-northeast-1")} == {"ap-northeast-1"}
    for text, known in (("awss", "aws"), ("aws:us-east-9", "us-east-1")):
        with pytest.raises(UnknownNameError, match=known):
            prices_of_cloud(text)
    with pytest.raises(UnknownNameError, match="deepinfra"):
        prices_of_api("deepinfr")


def test_a_price_is_old_after_ninety_days_of_its_day_or_of_its_months_last_day() -> None:
    assert [is_old("2026-08-30", date(2026, 11, day)) for day in (28, 29)] == [False, True]
    assert [is_old("2026-08", date(2026, 11, day)) for day in (29, 30)] == [False, True]


def test_the_commands_print_sources_and_dates() -> None:
    shown = planner("db", "prices", "--gpu", "h200-sxm", "--cloud", "aws").stdout
    row = "p5en.48xlarge     8  h200-sxm  on demand  63.30          7.91  AWS price list, from ewyluda/gpu-price-index"
    assert f"{row}  2026-10-10" in shown
    shown = planner("db", "apis", "--model", "qwen3-32b").stdout
    assert "Qwen3-32B   0.08             –    0.28  DeepInfra price page, from LiteLLM's price list" in shown
    fails(planner("db", "apis", "--model", "opt-125m"), 2, "unknown model of --api 'opt-125m'")


def test_a_wrong_row_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prices").mkdir()
    monkeypatch.setattr(prices, "data_dir", lambda _: tmp_path)
    head = "provider,model,served_as,input,cached_input,output,source,date\n"
    for row, error in (("p,m,n,-1,,2,s,2026-10", "row 1: input = '-1'"), ("p,m,n,1,,2,,2026-10", "row 1: source"),
                       ("p,m,n,1,,2,s,2026", "row 1: date = '2026'"), ("p,m,n,1,0,2,s,2026-10", "row 1: cached_input")):
        (tmp_path / "prices" / "apis.csv").write_text(head + row + "\n", encoding="utf-8")
        with pytest.raises(CatalogError, match=error):
            api_prices()


def instances(*sizes: tuple[int | None, float], gpu: str = "h100-sxm") -> list[GpuPrice]:
    """Return on-demand prices of instances with these GPUs."""
    return [GpuPrice(cloud="c", region="r", instance=f"i{count}", gpu=gpu, gpus=count, term="on demand",
                     usd_per_hour=usd, source="s", date="2026-10-01") for count, usd in sizes]


def test_replicas_take_whole_instances() -> None:
    eight, many = instances((8, 80.0)), instances((1, 11.0), (2, 21.0), (8, 80.0))
    assert rent(3, 1, eight) == (80.0, "1 × i8 of 8 GPUs, 5 GPUs idle")
    assert rent(9, 1, eight) == (160.0, "2 × i8 of 8 GPUs, 7 GPUs idle")
    assert rent(3, 3, eight) == (160.0, "2 × i8 of 8 GPUs, 7 GPUs idle")  # an instance holds two replicas of 3 GPUs
    assert rent(2, 16, eight) == (320.0, "4 × i8 of 8 GPUs")  # a replica spans two
    assert rent(3, 1, many).usd_per_hour == 32.0
    assert rent(3, 2, many) == (63.0, "3 × i2 of 2 GPUs")
    assert rent(4, 2, many) == (80.0, "1 × i8 of 8 GPUs")
    assert rent(3, 2, instances((None, 4.0))) == (24.0, "6 × h100-sxm by the GPU")


def test_the_cheapest_instances_are_those_of_an_exhaustive_search() -> None:
    draw = random.Random(7)
    for _ in range(50):
        rows = instances(*((count, draw.uniform(1, 5) * count) for count in draw.sample((1, 2, 4, 8), 2)))
        size_of = draw.choice((1, 2))
        rows = [row for row in rows if (row.gpus or 0) >= size_of]
        if not rows:
            continue
        holds = [(row.gpus or 0) // size_of for row in rows]
        for count in range(1, 10):
            least = min(sum(n * row.usd_per_hour for n, row in zip(numbers, rows, strict=True))
                        for numbers in itertools.product(range(count + 1), repeat=len(rows))
                        if sum(n * held for n, held in zip(numbers, holds, strict=True)) >= count)
            assert rent(count, size_of, rows).usd_per_hour == pytest.approx(least)
            assert rents_up_to(9, size_of, rows)[count] == pytest.approx(least)


def test_a_fleet_on_a_cloud_pays_whole_instances_and_names_its_prices() -> None:
    found = size(trace_of(ROWS), H100, SLO, replace(PLAIN, cloud=prices_of_cloud("gcp")))
    best = cheapest(found)
    assert (best.num_gpus, best.cost_usd_per_hour) == (1, 88.49)
    assert best.instances == "1 × a3-highgpu-8g of 8 GPUs, 7 GPUs idle"
    assert {offer.term: offer.cost_usd_per_hour for offer in found.options} == {"on demand": 88.49, "spot": 50.3153}
    (row, _) = found.prices
    assert (row.cloud, row.region, row.instance, row.date) == ("gcp", "us-central1", "a3-highgpu-8g", "2026-10-10")
    small = cheapest(size(trace_of(ROWS), H100, SLO, replace(PLAIN, cloud=prices_of_cloud("aws"))))
    assert small.instances == "1 × p5.4xlarge of 1 GPU"
    assert round(small.cost_usd_per_month, 2) == round(730 * 6.88, 2)


def test_a_stated_price_goes_before_the_clouds_which_goes_before_the_catalogs() -> None:
    cloud = prices_of_cloud("gcp")
    stated = size(trace_of(ROWS), H100, SLO, replace(PLAIN, cloud=cloud, prices={"h100-sxm": 2.5}))
    assert (cheapest(stated).cost_usd_per_hour, cheapest(stated).instances) == (2.5, None)
    assert [(row.term, row.source, row.date) for row in stated.prices] == [
        ("on demand", "stated by the user", None), ("spot", cloud[0].source, "2026-10-10")]
    plain = size(trace_of(ROWS), H100, SLO, PLAIN)
    catalog = load_gpu("h100-sxm").provenance["price_usd_per_hour"]
    assert [(row.usd_per_hour, row.source, row.date) for row in plain.prices] == [
        (catalog.value, catalog.source, catalog.date)]
    with pytest.raises(UsageError, match="coreweave: no price on demand of l4; it has prices of a100-sxm, b200-sxm"):
        size(trace_of(ROWS), replace(H100, gpu="l4"), SLO, replace(
            PLAIN, gpus=("l4",), cloud=prices_of_cloud("coreweave")))


@pytest.mark.parametrize(("day", "says"), [(date(2025, 9, 28), False), (date(2025, 9, 29), True)])
def test_an_answer_says_that_a_price_is_old(day: date, says: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(used_prices, "today", lambda: day)
    found = size(trace_of(ROWS), H100, SLO, PLAIN)
    assert ("prices older than 90 days: h100-sxm (2025-06)" in "".join(found.notes[-1:])) is says
    stated = size(trace_of(ROWS), H100, SLO, replace(PLAIN, prices={"h100-sxm": 2.5}))
    assert not any("older than" in note for note in stated.notes)


def fleet(num_replicas: int, num_spare: int = 0, prefill: int = 0) -> Fleet:
    """Return a fleet of one H100 a replica."""
    kind = filled(KindNames, gpu="h100-sxm", tensor_parallel_size=1, decode_gpu="h100-sxm" if prefill else None,
                  decode_tensor_parallel_size=1 if prefill else None)
    return filled(Fleet, kind=kind, num_replicas=num_replicas, num_gpus=num_replicas, num_spare=num_spare,
                  prefill_replicas=prefill, cost_usd_per_month=1460.0 * num_replicas)


def test_the_break_even_is_that_of_hand_arithmetic() -> None:
    """A replica costs 2 USD/h × 730 h = 1,460 USD a month; an instance of 8 costs 16 USD/h, 11,680 USD a month."""
    by_gpu = Choices(prices={"h100-sxm": 2.0})
    assert break_even(fleet(4), 10_000.0, by_gpu) == pytest.approx(0.146)  # 1,460 of 10,000: one replica
    assert break_even(fleet(4), 5_840.0, by_gpu) == pytest.approx(0.25)  # the price of all four
    assert break_even(fleet(4), 5_839.0, by_gpu) is None
    assert break_even(fleet(5, num_spare=1), 10_000.0, by_gpu) == pytest.approx(0.438)  # 2 + 1 replicas: 4,380
    assert break_even(fleet(4, prefill=1), 8_000.0, by_gpu) == pytest.approx(0.5475)  # 1 + 2 replicas: 4,380
    eights = with_prices(Choices(cloud=instances((8, 16.0))))
    assert break_even(fleet(4), 10_000.0, eights) == pytest.approx(1.168)  # one instance, up to eight replicas
    assert break_even(fleet(4), 5_839.0, eights) is None
    assert break_even(fleet(4), 5_840.0, eights) == pytest.approx(2.0)


def test_an_api_bills_cached_tokens_at_their_own_price() -> None:
    """20 requests a second of 200 and 20 tokens: 52.56 million requests a month; drawn loads may have longer ones."""
    trace, load = trace_of(ROWS), trace_of([(0.05 * k, 210, 21) for k in range(200)])
    api = ApiPrice(provider="p", model="llama-3.1-8b", served_as="m", input=0.5, cached_input=0.1, output=1.0,
                   source="s", date="2026-11")
    choices = Choices(prices={"h100-sxm": 2.0}, apis=(api, replace(api, provider="q", cached_input=None)))
    (first, second) = beside_apis(trace, load, replace(fleet(3), cached_input_share=0.25), 20.0, choices) or ()
    assert [first.price.provider, second.price.provider] == ["p", "q"]
    assert round(first.usd_per_month, 2) == round(52.56 * (150 * 0.5 + 50 * 0.1 + 20 * 1.0), 2)
    assert round(second.usd_per_month, 2) == round(52.56 * (200 * 0.5 + 20 * 1.0), 2)
    assert first.usd_per_million_tokens == pytest.approx(100 / 220)
    assert first.fleet_usd_per_million_tokens == pytest.approx(4380 / (52.56 * 220))
    assert first.break_even_mean_rps == pytest.approx(20 * 1460 / 5256)
    at_break_even = 3600 * 730 * (first.break_even_mean_rps or 0.0) * 100 / 1e6  # USD a month at the API
    assert abs(at_break_even - 1460.0) < 0.01


def test_the_peak_is_the_busiest_minute() -> None:
    slow, fast = [(10.0 * k, 10, 1) for k in range(61)], [(600.0 + k, 10, 1) for k in range(1, 61)]
    assert peak_to_mean(trace_of(slow + fast)) == pytest.approx(60 / 60 / (121 / 660))
    assert peak_to_mean(trace_of(ROWS)) == 1.0


def test_size_compares_a_fleet_with_apis(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(HEADER + "".join(f"{arrival},{i},{o}\n" for arrival, i, o in ROWS), encoding="utf-8")
    arguments = ["size", trace, *H100_OPTIONS, "--tensor-parallel-size", "1", "--slo", "ttft:2000 tpot:100", "--quick",
                 "--price", "h100-sxm=0.01"]
    shown = planner(*arguments, "--api", "together", "--json", tmp_path / "a.json")
    assert "prices on demand: h100-sxm 0.01 USD/h (stated by the user)" in shown.stdout
    assert "Break-even: the lowest rate of this traffic" in shown.stdout
    (row,) = json.loads((tmp_path / "a.json").read_text())["apis"]
    billed = planner(*arguments, "--api", "together", "--request-rate", "50", "--json", tmp_path / "b.json")
    assert "in + out: USD per million tokens of input and output together" in billed.stdout
    (more,) = json.loads((tmp_path / "b.json").read_text())["apis"]
    assert round(more["usd_per_month"], 2) == round(50 * 3600 * 730 * 220 * 0.18 / 1e6, 2)
    month = row["break_even_mean_rps"] * row["usd_per_month"] / (row["break_even_mean_rps"] / row["break_even_scale"])
    assert (row["provider"], row["input"], round(month, 2)) == ("together", 0.18, 7.3)  # one GPU: 730 h of 0.01 USD
    fails(planner(*arguments, "--api", "fireworks"), 2, "unknown model of --api 'llama-3.1-8b'")
