"""The code's shape: imports go one way, every file is on the map, and sizes stay readable."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import planner

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "planner").rglob("*.py"))

# A module may import from the layers before its own, and from its own package.
LAYERS = (
    ("errors", "finite", "nested", "schema", "defaults", "statistics", "pareto", "phases", "limits", "answers",
     "versions", "glossary"),
    ("table_file", "scrape", "acceptance"),
    ("files", "policy", "router", "autoscaler", "scenario", "settings", "slo", "architecture", "layout",
     "operators", "rate_series", "format_spec", "scaling", "provenance"),
    ("hf_config", "gpus", "projections", "small_kernels", "objectives", "conservation", "engine", "burstiness"),
    ("catalog", "policies", "routers", "autoscalers", "recommendation", "bracket", "explanation", "spans",
     "gaps"),
    ("precision", "kernels", "published", "story", "engines", "recipes", "trace", "loading", "launch",
     "drafting", "draft_time"),
    ("memory", "stack", "spread", "fused_norms"),
    ("lora",),
    ("options", "tiers", "synthetic", "workload", "client", "sharing", "export", "uncertainty"),
    ("tenants", "prefix", "dependencies", "requests", "attention_time", "collective_time", "steptime", "measured",
     "traffic", "relative", "fitting", "anomalies"),
    ("initial", "roofline", "recorded", "study", "description"),
    ("driver", "benchmarks", "scraped", "targets", "pools", "autoscale"),
    ("deployment",),
    ("roofs", "grid", "attempts", "timers", "kv_store"),
    ("results",),
    ("shares",),
    ("tier_totals", "saved", "resolved"),
    ("metrics",),
    ("utilization", "notes", "validate"),
    ("pool_rows",),
    ("disaggregation", "failures", "recent"),
    ("overload",),
    ("interleaved", "scaler"),
    ("fleet",),
    ("run", "runs", "steplog", "highest_rate", "fewest"),
    ("sizing",),
    ("observations", "accuracy", "fingerprint", "advice", "closeness"),
    ("calibrate", "target", "baseline", "sweeping", "comparison"),
    ("identify", "gate", "optimize"),
    ("calibration",),
    ("tables", "traffic_tables", "profiles", "figures"),
    ("report",),
    ("commands", "notebook", "pytest_plugin", "ui"),
    ("trace_commands",),
    ("trace_cli",),
    ("db_cli",),
    ("cli",),
)
PLACE = {name: place for place, layer in enumerate(LAYERS) for name in layer}

# Reading a bundled sample by name generates it, and only then.
ALLOWED = {("trace", "synthetic"), ("trace", "workload")}


def module_of(path: Path) -> str:
    return path.relative_to(ROOT / "planner").parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Yield the top-level modules of ours that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("planner."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.ImportFrom) and node.module == "planner":
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_imports_backwards(path: Path) -> None:
    own = module_of(path)
    if own == "__init__":
        return
    assert own in PLACE, f"{own} has no layer; give it one"
    backward = {name for name in imported(path) if name != own and PLACE[name] >= PLACE[own]}
    assert not {(own, name) for name in backward} - ALLOWED


def test_every_file_is_on_the_map_with_its_own_words() -> None:
    """docs/architecture.md has a line for each file, equal to the first line of its docstring."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    for path in FILES:
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        assert docstring, f"{path} has no docstring"
        line = f"| `{path.relative_to(ROOT / 'planner')}` | {docstring.splitlines()[0]} |"
        assert line in text, f"docs/architecture.md lacks: {line}"


def test_no_public_name_is_a_modules() -> None:
    """Importing `planner.x` sets the attribute `x` of the package, over a public name."""
    assert not set(planner.__all__) & {module_of(path) for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_short(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            docstring = ast.get_docstring(node, clean=False) or ""
            length = (node.end_lineno or 0) - node.lineno + 1 - docstring.count("\n")
            assert length <= 60, f"{path}:{node.lineno} {node.name} has {length} lines"
