"""The architectures that vLLM and SGLang serve: each is read by the catalog, or refused with its reason."""

import ast
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wheel_flags import wheel

from planner.catalog.hf_config import architecture_from_config
from planner.errors import CatalogError

LISTED: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("registries.toml").read_text())
# Sections: classes that serve any model, and types of which nothing is known.
ANY, UNKNOWN = "wrappers of any model", "unknown"
REASONS = {"other kinds": "this is ", "layers that are not modelled": "which the planner does not model",
           UNKNOWN: "is not supported"}  # a part of the error
MOST_UNKNOWN = 36  # architectures, which may only fall
ROWS = [(section, model_type, name) for section, types in LISTED.items() if section != ANY
        for model_type, names in types.items() for name in names.split()]


def section_of(model_type: str, name: str) -> str:
    """Return the section of an architecture by the error that a config with its names alone gives."""
    with pytest.raises(CatalogError) as error:  # at least its sizes are missing
        architecture_from_config({"model_type": model_type, "architectures": [name]}, name="test", where="config.json")
    return next((section for section, words in REASONS.items() if words in str(error.value)), "read")


def test_every_architecture_is_read_or_refused_as_listed() -> None:
    assert [row for row in ROWS if section_of(*row[1:]) != row[0]] == []
    assert sum(section == UNKNOWN for section, _, _ in ROWS) <= MOST_UNKNOWN


@pytest.mark.slow
@pytest.mark.parametrize(("package", "names_of"), [
    ("vllm", lambda source: vllm_names(source)), ("sglang", lambda source: sglang_names(source))])
def test_the_newest_wheels_have_no_architecture_beyond_the_list(
        package: str, names_of: Callable[[zipfile.ZipFile], Iterator[str]],
        tmp_path_factory: pytest.TempPathFactory) -> None:
    source = wheel(package, tmp_path_factory.getbasetemp())
    if source is None:
        pytest.skip("the package index is not reachable")
    theirs = set(names_of(source))
    assert len(theirs) > 250
    listed = {name for types in LISTED.values() for names in types.values() for name in names.split()}
    assert sorted(theirs - listed) == []


def vllm_names(source: zipfile.ZipFile) -> Iterator[str]:
    """Yield the keys of all tables of the registry."""
    for node in ast.parse(source.read("vllm/model_executor/models/registry.py")).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            yield from (key.value for key in node.value.keys
                        if isinstance(key, ast.Constant) and isinstance(key.value, str))


def sglang_names(source: zipfile.ZipFile) -> Iterator[str]:
    """Yield the classes that the models' files enter."""
    for file in source.namelist():
        if file.startswith("sglang/srt/models/") and file.endswith(".py"):
            for node in ast.parse(source.read(file)).body:
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EntryClass":
                    yield from (part.id for part in ast.walk(node.value) if isinstance(part, ast.Name))
