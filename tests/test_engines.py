"""An engine's constants: within their ranges, and errors that say what is wrong."""

from pathlib import Path

import pytest

from planner.engines import ENGINES
from planner.errors import CatalogError, UnknownNameError
from planner.steptime.engine_constants import EngineConstants, bounds, constants_of, load_engine, read_constants

MIDDLE = {name: (low * high) ** 0.5 for name, (low, high) in bounds().items()}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("engine", ENGINES)
def test_the_bundled_constants_are_in_range(engine: str) -> None:
    constants = load_engine(engine)
    for name, (low, high) in bounds().items():
        assert low <= getattr(constants, name) <= high


@pytest.mark.parametrize("name", bounds())
def test_a_constant_outside_its_range_is_refused(name: str) -> None:
    low, high = bounds()[name]
    for value in (0.9 * low, 1.1 * high):
        with pytest.raises(CatalogError, match=rf"{name} = .*; the physical range is"):
            EngineConstants(**{**MIDDLE, name: value})


def test_missing_constants_are_named() -> None:
    with pytest.raises(CatalogError, match="constants lack host_s, latency_s"):
        constants_of({name: value for name, value in MIDDLE.items() if name not in ("host_s", "latency_s")})


def test_a_calibration_may_have_some_of_them(tmp_path: Path) -> None:
    path = written(tmp_path, "[constants]\nhost_s = 0.002\nlinear_ratio = 2\n")
    assert read_constants(path) == {"host_s": 0.002, "linear_ratio": 2.0}


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
