"""List prices: the tables with sources and dates, old prices, whole instances, and the break-even with hosted APIs."""

from datetime import date
from pathlib import Path

import pytest
from command_line import fails, planner

from planner.catalog import prices
from planner.catalog.catalog_files import load_gpu, load_model
from planner.catalog.prices import api_prices, gpu_prices, is_old, of_gpus, prices_of_api, prices_of_cloud
from planner.errors import CatalogError, UnknownNameError
from planner.launch.instance_types import gpu_of_instance, gpus_of_instance


def test_each_price_has_a_known_gpu_or_model_a_source_and_a_date() -> None:
    gpus, apis = gpu_prices(), api_prices()
    assert (len(gpus), len({row.cloud for row in gpus})) == (148, 10)
    assert (len(apis), len({row.model for row in apis})) == (49, 28)
    for row in (*gpus, *apis):
        assert row.source, row
        assert "2026-08-23" <= str(row.date) <= "2026-11-28", row
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
    (small, large) = of_gpus(prices_of_cloud("aws"), "h100")
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
    fails(planner("db", "apis", "--model", "opt-125m"), 2, "no price of opt-125m", "qwen3-32b")


def test_a_wrong_row_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prices").mkdir()
    monkeypatch.setattr(prices, "data_dir", lambda _: tmp_path)
    head = "provider,model,served_as,input,cached_input,output,source,date\n"
    for row, error in (("p,m,n,-1,,2,s,2026-10", "row 1: input = '-1'"), ("p,m,n,1,,2,,2026-10", "row 1: source"),
                       ("p,m,n,1,,2,s,2026", "row 1: date = '2026'")):
        (tmp_path / "prices" / "apis.csv").write_text(head + row + "\n", encoding="utf-8")
        with pytest.raises(CatalogError, match=error):
            api_prices()
