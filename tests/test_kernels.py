"""Which row of fitted constants an operator gets, and what is said where there is none."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from planner.errors import CatalogError
from planner.steptime import kernel_constants as kernels
from planner.steptime.kernel_constants import find_fit, find_fits

ROWS = """
[[fit]]
gpu = "one"
engine = "vllm"
dtype = "bf16"
floor_s = 1.0
[[fit]]
gpu = "one"
engine = "trtllm"
dtype = "fp8"
floor_s = 2.0
[[fit]]
gpu = "one"
engine = "vllm"
dtype = "int4"
default = false
floor_s = 3.0
[[fit]]
gpu = "prior"
engine = "vllm"
dtype = "fp8"
floor_s = 4.0
[[fit]]
gpu = "prior"
engine = "prior"
dtype = "int4"
floor_s = 5.0
""" + "\n".join(f"""
[[fit]]
gpu = "{gpu}"
engine = "{engine}"
dtype = "{dtype}"
default = {default}
num_points = {points}
floor_s = {floor}
""" for gpu, engine, dtype, default, points, floor in (
    ("three", "vllm", "fp4", "true", 900, 6.0), ("three", "vllm", "fp4", "false", 900, 7.0),
    ("three", "vllm", "fp4", "false", 100, 0.1), ("three", "sglang", "fp4", "true", 900, 8.0),
    ("three", "vllm", "fp4_block", "true", 900, 9.0), ("prior", "sglang", "fp8", "true", 900, 4.5)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    floor_s: float


@pytest.fixture(autouse=True)
def _rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "toy.toml").write_text(ROWS)
    (tmp_path / "kernels" / "broken.toml").write_text("[[fit")
    (tmp_path / "kernels" / "empty.toml").write_text("")
    monkeypatch.setattr(kernels, "data_dir", lambda name: tmp_path)
    forget()
    yield
    forget()


def forget() -> None:
    kernels._rows.cache_clear()
    kernels._find_fit.cache_clear()


@pytest.mark.parametrize(("gpu", "engine", "dtype", "found", "is_measured"), [
    ("one", "vllm", "bf16", 1.0, True),
    ("one", "sglang", "bf16", 1.0, True),  # this GPU under another engine, rather than other GPUs
    ("one", "vllm", "fp8", 2.0, True),
    ("one", "vllm", ("fp8", "bf16"), 1.0, True),  # this engine's own kernel, rather than a preferred one of another's
    ("one", "trtllm", ("fp8", "bf16"), 2.0, True),
    ("two", "trtllm", ("bf16", "fp8"), 4.0, False),
    ("one", "vllm", "int4", 5.0, False),  # its row is no default
])
def test_the_nearest_row_is_taken(gpu: str, engine: str, dtype: Any, found: float, is_measured: bool) -> None:
    fit = find_fit(Floor, "toy", gpu=gpu, engine=engine, dtype=dtype)
    assert (fit.constants, fit.is_measured) == (Floor(floor_s=found), is_measured)
    assert fit.row["floor_s"] == found


@pytest.mark.parametrize(("gpu", "engine", "is_shared", "found"), [
    ("three", "vllm", False, [6.0, 7.0]),  # its own; what was fitted to 100 shapes stands in for nothing
    ("three", "vllm", True, [6.0, 7.0, 8.0]),
    ("three", "sglang", False, [8.0]),
    ("three", "sglang", True, [8.0, 6.0, 7.0]),
    ("three", "trtllm", False, [6.0, 7.0]),  # nobody measured its own
])
def test_an_engine_chooses_among_its_kernels_and_those_of_shared_libraries(gpu: str, engine: str, is_shared: bool,
                                                                           found: list[float]) -> None:
    fits = find_fits(Floor, "toy", gpu=gpu, engine=engine, is_shared=is_shared, dtype="fp4")
    assert [fit.constants.floor_s for fit in fits] == found


def test_kernels_of_another_format_may_multiply_this_one_too() -> None:
    fits = find_fits(Floor, "toy", gpu="three", engine="vllm", is_shared=False, dtype="fp4", also=("fp4_block",))
    assert [fit.constants.floor_s for fit in fits] == [6.0, 7.0, 9.0]


@pytest.mark.parametrize(("is_shared", "found"), [(False, [4.0]), (True, [4.0, 4.5])])
def test_where_nobody_measured_the_medians_of_shared_libraries_are_choices(is_shared: bool, found: list[float]) -> None:
    fits = find_fits(Floor, "toy", gpu="two", engine="vllm", is_shared=is_shared, dtype="fp8")
    assert [(fit.constants.floor_s, fit.is_measured) for fit in fits] == [(floor_s, False) for floor_s in found]


def test_where_nobody_measured_there_is_nothing_to_choose() -> None:
    fits = find_fits(Floor, "toy", gpu="two", engine="vllm", is_shared=True, dtype="int4")
    assert [(fit.constants.floor_s, fit.is_measured) for fit in fits] == [(5.0, False)]


def test_preferences_of_two_keys_let_the_last_decide_first() -> None:
    assert kernels._preferences({"kv": ("fp8", "bf16"), "dtype": ("bf16", "fp8"), "phase": "context"}) == [
        {"kv": kv, "dtype": dtype, "phase": "context"} for dtype in ("bf16", "fp8") for kv in ("fp8", "bf16")]


def test_medians_over_gpus_of_a_kind_stand_in_before_those_over_all() -> None:
    """GPUs on the same link: its medians, where it has them."""
    fit = find_fit(Floor, "toy", gpu="two", engine="vllm", prior="three", dtype=("fp4", "fp8"))
    assert (fit.constants.floor_s, fit.is_measured) == (6.0, False)
    assert find_fit(Floor, "toy", gpu="two", engine="vllm", prior="none", dtype="fp8").constants.floor_s == 4.0
    assert find_fit(Floor, "toy", gpu="one", engine="vllm", prior="three", dtype="fp8").is_measured


def test_what_nobody_measured_is_an_error() -> None:
    with pytest.raises(CatalogError, match=r"kernels/toy.toml: no kernel was measured with dtype fp4; .*gpu = 'prior'"):
        find_fit(Floor, "toy", gpu="one", engine="vllm", dtype="fp4")


@pytest.mark.parametrize("family", ["broken", "empty", "missing"])
def test_an_unreadable_file_is_named(family: str) -> None:
    with pytest.raises(CatalogError, match=rf"{family}.toml: cannot be read"):
        find_fit(Floor, family, gpu="one", engine="vllm")
