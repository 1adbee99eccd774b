"""An engine's constants: within their ranges, with factors for kernels and GPUs, and errors that say what is wrong."""

from pathlib import Path

import pytest

from planner.engines import EngineConstants, bounds, load_engine, read_constants, resolve_constants
from planner.errors import CatalogError, UnknownNameError
from planner.precision import KERNELS

MIDDLE = {name: (low * high) ** 0.5 for name, (low, high) in bounds().items()}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_the_bundled_constants_are_in_range(engine: str) -> None:
    constants = load_engine(engine)
    for name, (low, high) in bounds().items():
        assert low <= getattr(constants, name) <= high
    for name, factor in constants.factors.items():
        ratio, _, kernel = name.partition(".")
        assert ratio.endswith("_ratio")
        assert kernel in KERNELS
        assert 0.2 < factor < 5


@pytest.mark.parametrize("name", bounds())
def test_a_constant_outside_its_range_is_refused(name: str) -> None:
    low, high = bounds()[name]
    for value in (0.9 * low, 1.1 * high):
        with pytest.raises(CatalogError, match=rf"{name} = .*; the physical range is"):
            EngineConstants(**{**MIDDLE, name: value})


def test_a_kernels_factor_scales_the_common_ratio() -> None:
    constants = resolve_constants({**MIDDLE, "linear_ratio": 1.2, "linear_ratio.fp8": 1.5}, None)
    assert constants.ratio("linear_ratio", "fp8") == pytest.approx(1.8)
    assert constants.ratio("linear_ratio", "bfloat16") == 1.2


def test_a_gpus_factor_counts_on_that_gpu_and_must_stay_in_range() -> None:
    values = {**MIDDLE, "linear_ratio": 1.0, "linear_ratio@h100-sxm": 1.5, "linear_ratio@l4": 100.0}
    found = {gpu: resolve_constants(values, gpu).linear_ratio for gpu in ("h100-sxm", "a100-sxm", None)}
    assert found == {"h100-sxm": 1.5, "a100-sxm": 1.0, None: 1.0}
    with pytest.raises(CatalogError, match=r"linear_ratio = 100.0; the physical range is 0.4 to 3"):
        resolve_constants(values, "l4")


def test_a_kernels_factor_may_hold_on_one_gpu_only() -> None:
    values = {**MIDDLE, "linear_ratio": 1.0, "linear_ratio.fp8": 0.9, "linear_ratio.fp8@h100-sxm": 2.0}
    assert resolve_constants(values, "h100-sxm").ratio("linear_ratio", "fp8") == pytest.approx(1.8)
    assert resolve_constants(values, "l4").ratio("linear_ratio", "fp8") == pytest.approx(0.9)


def test_missing_constants_are_named() -> None:
    with pytest.raises(CatalogError, match="constants lack host_s, latency_s"):
        resolve_constants({name: value for name, value in MIDDLE.items() if name not in ("host_s", "latency_s")}, None)


def test_a_calibration_is_read_under_flat_names(tmp_path: Path) -> None:
    path = written(tmp_path, '[constants]\nhost_s = 0.002\n"linear_ratio.fp8" = 1.1\n"linear_ratio@l4" = 2\n')
    assert read_constants(path) == {"host_s": 0.002, "linear_ratio.fp8": 1.1, "linear_ratio@l4": 2.0}


@pytest.mark.parametrize(("text", "error", "message"), [
    ("[constants", CatalogError, "cannot be read"),
    ("host_s = 1", CatalogError, r"has no \[constants\]"),
    ("[constants]\nhots_s = 0.1", UnknownNameError, "constant 'hots_s'; did you mean 'host_s'"),
    ("[constants]\nhost_s = -1", CatalogError, "host_s = -1; must be a positive number"),
    ("[constants]\nhost_s = true", CatalogError, "host_s = True; must be a positive number"),
    ("[constants]\nhost_s = inf", CatalogError, "host_s = inf; must be a positive number"),
    ("[constants]\nhost_s = '1'", CatalogError, "host_s = '1'; must be a positive number"),
])
def test_a_malformed_file_says_what_is_wrong(tmp_path: Path, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_constants(written(tmp_path, text))


def test_missing_files_and_engines_are_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"none.toml: cannot be read"):
        read_constants(tmp_path / "none.toml")
    with pytest.raises(UnknownNameError, match="unknown engine 'vlm'; did you mean 'vllm'"):
        load_engine("vlm")


def test_only_ratios_have_factors_for_kernels(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text('[constants]\n"host_s.fp8" = 1.1\n')
    with pytest.raises(CatalogError, match="only linear_ratio and experts_ratio have factors"):
        read_constants(path)
