"""Write the pages of docs/reference, or into the folder given, from what the code declares: `make reference`."""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping, Set
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import typer

import planner
from planner.catalog.architecture import Architecture
from planner.catalog.catalog_files import data_dir, describe_model, load_gpu, load_model, mig_slices
from planner.catalog.families import SUPPORTED
from planner.catalog.other_kinds import ACCELERATORS, CLASSES, CLOSED, POOLED, UNMODELLED, WORDS
from planner.catalog.other_kinds import TYPES as TYPES_OF_OTHERS
from planner.catalog.parameters import num_active_parameters, num_parameters
from planner.commands.cli import app
from planner.engines import ENGINES
from planner.engines.dialect import Dialect, Tree
from planner.files.keys import Declared, Key, declared, parts_of
from planner.planning.bracket import UNKNOWNS
from planner.policies.builtin_autoscalers import AUTOSCALERS
from planner.policies.builtin_policies import POLICIES
from planner.policies.builtin_routers import ROUTERS
from planner.policies.policy import KEY_COLUMNS, Policy
from planner.policies.router import ReplicaLoad
from planner.report.answer_schemas import ANSWERS
from planner.results import glossary
from planner.settings.scenario import OPTION_DEFAULTS, Scenario
from planner.steptime.engine_constants import EngineConstants

FOLDER = Path(__file__).with_name("reference")
FORMATS = ("bf16", "fp8", "fp4")
MODEL_KINDS = {None: "text generation", "embed": "embeddings", "score": "reranking"}
MARK = "<!-- docs/make_reference.py writes this page from the code. Change the code, then run make reference. -->"
TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false", NoneType: "null", Any: "any value"}
PLURALS = {**TYPES, str: "texts", int: "whole numbers", float: "numbers", Any: "values"}
RULES = [f for f in fields(Policy) if f.name not in ("name", "plan_step", "admit_key", "victim_key")]


def main() -> None:
    """Write the pages."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (folder / f"{name}.md").write_text(make(), encoding="utf-8")


def cli_page() -> str:
    """Return the page of commands: arguments, options and an example of each."""
    parts = ["# Commands", MARK, "`--help` shows a command's common options, `--help-all` all of them. `planner "
             "--install-completion` adds completion to your shell. Exit codes: 0 done; 1 a target, threshold or "
             "objective missed; 2 wrong usage; 3 bad input. Results go to stdout, diagnostics and progress to stderr. "
             "Options of a scenario, which most commands take, are on [a page of their own](scenario.md)."]
    for name, command in _commands(typer.main.get_command(app)):
        elsewhere = (*_scenario_names(), "help", "short_help", "full_help", "from_command")
        own = [p for p in command.params if p.name not in elsewhere]
        shared = [f.name for f in fields(Scenario) if f.name in {p.name for p in command.params}]
        text, _, example = inspect.cleandoc(command.help or "").partition("Example: ")
        parts += [f"## {name}", text.strip()]
        parts += [f"```\n{' '.join(example.split())}\n```"] if example else []
        parts += [_table(("argument or option", "default", "meaning"), map(_parameter, own))] if own else []
        if shared:
            parts.append(f"Also [options of a scenario](scenario.md): {_taken(set(shared))}.")
    return "\n\n".join(parts) + "\n"


def _taken(shared: Set[str]) -> str:
    """Return which options of a scenario a command takes, by their groups."""
    panels: dict[str, list[str]] = {}
    for field in fields(Scenario):
        panels.setdefault(field.metadata["panel"], []).append(field.name)
    whole = [panel for panel, names in panels.items() if shared >= {*names}]
    said = [f"all of {', '.join(whole)}"] if whole else []
    for panel, names in panels.items():
        taken, others = ([_option_name(each) for each in names if (each in shared) is is_taken]
                         for is_taken in (True, False))
        if taken and others:
            said.append(f"of {panel} all except {', '.join(others)}" if len(others) < len(taken)
                        else f"of {panel} {', '.join(taken)}")
    return "; ".join(said)


def scenario_page() -> str:
    """Return the page of a scenario's options."""
    hints = get_type_hints(Scenario)
    parts = ["# Options of a scenario", MARK,
             "On the command line they are options, with dashes; in studies, sweeps and targets they are keys, with "
             "underscores; in Python they are fields of `planner.Scenario`. What has no default of its own takes the "
             "engine's, in brackets."]
    for panel in dict.fromkeys(f.metadata["panel"] for f in fields(Scenario)):
        rows = ((f"`{f.name}`", _kind(hints[f.name]), _value(f.default), _escaped(f.metadata["help"]))
                for f in fields(Scenario) if f.metadata["panel"] == panel)
        parts += [f"## {panel}", _table(("option", "type", "default", "meaning"), rows)]
    return "\n\n".join(parts) + "\n"


def summary_page() -> str:
    """Return the page of a summary's keys and the tables' columns."""
    parts = ["# Keys and columns", MARK,
             "What `planner replay` writes. A number that does not exist for the input is null, never 0; percentiles "
             "are linear between order statistics, as numpy's default. Latencies are on the client's clock.",
             "## The summary (`--json`)", _terms("key", glossary.SUMMARY)]
    tables = (("Requests (`--requests`)", glossary.REQUESTS), ("Steps (`--steps`)", glossary.STEPS),
              ("Schedule (`--schedule`)", glossary.SCHEDULE), ("Preemptions (`--preemptions`)", glossary.PREEMPTIONS),
              ("Attempts (`--attempts`)", glossary.ATTEMPTS),
              ("Scale events (`--scale-events`)", glossary.SCALE_EVENTS))
    for title, terms in tables:
        parts += [f"## {title}", _terms("column", terms)]
    return "\n\n".join([*parts, "A trace's columns are on the page of [formats](../formats.md#our-columns)."]) + "\n"


def answers_page() -> str:
    """Return the page of the keys that commands other than `planner replay` write."""
    parts = ["# Answers", MARK,
             "What `--json` of these commands writes, and what `planner.capacity`, `planner.size` and `planner.sweep` "
             "return in a notebook. Keys stand in this order. A number that does not exist for the input is null. The "
             "keys of `planner replay` are on [a page of their own](summary.md)."]
    shown: set[Any] = set()
    for command, kind in ANSWERS.items():
        parts += [f"## planner {command}", _keys(kind)]
        waiting = _inner(kind)
        while waiting:
            part = waiting.pop(0)
            if part not in shown:
                shown.add(part)
                parts += [f"### {part.__name__}", inspect.getdoc(part), _keys(part)]
                waiting = [*_inner(part), *waiting]
    return "\n\n".join(parts) + "\n"


def _inner(kind: Any) -> list[Any]:
    return [part for each in declared(kind) for part in parts_of(each.hint)]


def _keys(kind: Any) -> str:
    return _table(("key", "type", "unit", "meaning"), map(_key_row, declared(kind)))


def _key_row(each: Declared) -> tuple[str, str, str, str]:
    """Return the row of a key, or of a part whose keys stand among those of the whole."""
    only = f"Only {each.note.only}" if each.note.only else ""
    kind = _type(each.hint).removesuffix(" or null") if only else _type(each.hint)
    meaning = ". ".join(filter(None, (_escaped(each.note.meaning), only)))
    if isinstance(each.note, Key):
        return _key_names(each), kind, each.note.unit, meaning
    return "others" if get_origin(each.hint) is Mapping else "the keys of", kind, "", meaning


def _key_names(each: Declared) -> str:
    """Return a key's names, with the answers of `planner capacity` that have them, if there are several."""
    by_name: dict[str, list[str]] = {}
    for of in UNKNOWNS:
        by_name.setdefault(each.key(of), []).append(of)
    if len(by_name) == 1:
        return f"`{each.name}`"
    return ", ".join(f"`{name}` (--of {' or '.join(of)})" for name, of in by_name.items() if name)


def _type(hint: Any, kinds: Mapping[Any, str] = TYPES) -> str:
    """Return a key's type in words; a part is a link to its table."""
    if is_dataclass(hint):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"  # type: ignore[union-attr]
    inner = [each for each in get_args(hint) if each is not Ellipsis]
    if get_origin(hint) is tuple:
        return f"list of {_type(inner[0], PLURALS)}"
    if get_origin(hint) is Mapping:
        return f"{_type(inner[1], PLURALS)} by name"
    return " or ".join(_type(each, kinds) for each in inner) or kinds[hint]


def policies_page() -> str:
    """Return the page of policies, routers and autoscalers."""
    parts = ["# Policies, routers and autoscalers", MARK, "## Policies", "`--policy`; one of your own: [a guide]"
             "(../guides/write-a-policy.md). Rules are those in which a policy differs from `fcfs`."]
    rows = ((f"`{name}`", _first_line(policy.plan_step), _order(policy), _rules(policy))
            for name, policy in POLICIES.items())
    parts += [_table(("policy", "a step", "order of admission", "rules"), rows), "### What the rules mean",
              _parameters_of(Policy, {f.name for f in RULES}), "### Columns of sort keys",
              "`admit_key` and `victim_key` of [a policy of your own](../guides/write-a-policy.md) read these arrays "
              "of floats, shape [num_requests].", _terms("column", KEY_COLUMNS),
              "## Routers", "`--router`; one of your own: [a guide](../guides/choose-a-router.md). The replica with "
              "the least score gets the request; of equals, the one that was sent a request the longest ago."]
    routers = ((f"`{name}`", _how(router), _first_line(router.score) if _is_scored(router) else "")
               for name, router in ROUTERS.items())
    scalers = ((f"`{name}`", _first_line(each.metric), "replicas · metric / target" if each.desired is None
                else _first_line(each.desired), ", ".join(f"`{key}`" for key in (*each.needs, *each.uses)))
               for name, each in AUTOSCALERS.items())
    parts += [_table(("router", "chooses", "score"), routers), "### What a router reads",
              "Fields of the `ReplicaLoad` that [a score of your own](../guides/choose-a-router.md) gets.",
              _parameters_of(ReplicaLoad, set(ReplicaLoad._fields)),
              "## Autoscalers", "`name` of a `[[metric]]` in the file of `--autoscale`; one of your own: [a guide]"
              "(../guides/autoscale-a-fleet.md). A fraction counts as a whole replica.",
              _table(("autoscaler", "metric", "asks for", "keys"), scalers)]
    return "\n\n".join(parts) + "\n"


def _weights(arch: Architecture) -> str:
    """Return the formats of a checkpoint's weights, of its attention and of its experts where they differ."""
    usual = arch.quantization or "16 bit"
    parts = (("experts", arch.expert_quantization), ("attention", arch.attention_quantization))
    return ", ".join([usual, *(f"{name} {'16 bit' if each == 'bf16' else each}" for name, each in parts if each)])


def _hub_names(model: str) -> str:
    aliases = describe_model(model).get("aliases")
    return ", ".join(f"`{name}`" for name in aliases if "/" in name) if isinstance(aliases, list) else ""


def catalog_page() -> str:
    """Return the page of GPUs, models and the constants of engines."""
    gpus = map(load_gpu, _names("gpus"))
    rows = ((f"`{g.name}`", f"{g.hbm_capacity_bytes / 1e9:.1f}", f"{g.hbm_bandwidth_bytes_per_s / 1e12:.2f}",
             *(f"{g.flops_per_s[each] / 1e12:,.0f}" if each in g.flops_per_s else "–" for each in FORMATS),
             f"{g.price_usd_per_hour:.2f}") for g in gpus)
    parts = ["# GPUs and models", MARK, "`planner db show NAME` has every number with its source; `planner db add-gpu` "
             "and `add-model` add your own, a model from its `config.json`.", "## GPUs",
             _table(("GPU", "memory [GB]", "HBM [TB/s]", *(f"dense {each} [TFLOP/s]" for each in FORMATS),
                     "price [USD/h]"), rows),
             "MIG slices are GPUs too, as in `h100-sxm:1g.10gb`. Their profiles:",
             _table(("GPU", "MIG profiles"), ((f"`{name}`", ", ".join(f"`{each}`" for each in mig_slices(name)))
                                              for name in _names("gpus") if mig_slices(name))), "## Models"]
    models = map(load_model, _names("models"))
    listed = ((f"`{m.name}`", _hub_names(m.name), MODEL_KINDS[m.pooling], f"{num_parameters(m) / 1e9:,.1f}",
               f"{num_active_parameters(m) / 1e9:,.1f}", _weights(m), f"{m.max_model_len:,}") for m in models)
    parts.append(_table(("model", "names", "kind", "parameters [10⁹]", "active [10⁹]", "weights",
                         "longest context [tokens]"), listed))
    parts += ["## Model types", "`--model` and `planner db add-model` take the `config.json` of any model of these "
              "types; of a multimodal one, its language model.",
              ", ".join(f"`{name}`" for name in sorted(SUPPORTED)) + "."]
    kinds = {kind: sorted(name for name, other in TYPES_OF_OTHERS.items() if other == kind)
             for kind in sorted({*TYPES_OF_OTHERS.values(), *WORDS, *CLASSES.values()})}
    layers = {part: sorted(name for name, other in UNMODELLED.items() if other == part)
              for part in sorted({*UNMODELLED.values()})}
    refused = [*((kind, kinds[kind]) for kind in kinds if kind not in POOLED or kinds[kind]),
               *((f"text generation with {part}", layers[part]) for part in layers)]
    parts += ["## Kinds that are refused", "The error says the kind, and suggests no other model. A model is known by "
              "the type or the class in its `config.json`, or by words of its name. Closed models "
              f"({', '.join(CLOSED)}) are refused by their names. An embedding model or a reranker that is not in the "
              f"table above needs its `config.json`. Accelerators without a profile: {'; '.join(ACCELERATORS)}.",
              _table(("kind", "model types"), [(kind, ", ".join(f"`{name}`" for name in names) or "–")
                                               for kind, names in refused])]
    constants = ((f"`{f.name}`", f.metadata["unit"], f"{f.metadata['low']:g} to {f.metadata['high']:g}",
                  _escaped(f.metadata["help"])) for f in fields(EngineConstants))
    parts += ["## Constants of engines", "What `planner calibrate` fits, within these ranges.",
              _table(("constant", "unit", "range", "meaning"), constants)]
    return "\n\n".join(parts) + "\n"


def files_page() -> str:
    """Return the page of the package's files: the first line of each one's docstring, by room."""
    package = Path(planner.__file__).parent
    alone = "Files that stand alone"
    rows: dict[str, list[tuple[str, str]]] = {alone: []}
    for path in sorted(package.rglob("*.py"), key=lambda path: path.relative_to(package).parts):
        name, text = path.relative_to(package), ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        room = f"`{name.parts[0]}/`" if len(name.parts) > 1 else alone
        rows.setdefault(room, []).append((f"`{name.as_posix()}`", _escaped((text or "").split("\n")[0])))
    parts = ["# Files", MARK, "What each file of `planner/` is for, in its own words; how they work together is in "
             "[architecture](../architecture.md)."]
    for room, files in rows.items():
        parts += [f"## {room}", _table(("file", "what"), files)]
    return "\n\n".join(parts) + "\n"


def launch_flags_page() -> str:
    """Return the page of engines' launch flags, by their effect on a prediction."""
    parts = ["# Launch flags", MARK, "Every flag of `vllm serve`, `sglang.launch_server` and `trtllm-serve`, up to the "
             "newest releases, as [`--from-command`](../guides/start-from-a-launch-command.md) reads it. Keys of "
             "TensorRT-LLM's YAML file and of tables are written as flags with a path."]
    for engine in ENGINES.values():
        dialect = engine.dialect
        modelled = {entry.names: entry.option for entry in (*dialect.entries, *dialect.file_entries)
                    if not isinstance(entry, Tree)}
        rows = [(_flag_names(names), f"`{option}`") for names, option in modelled.items()
                if option in OPTION_DEFAULTS]
        parts += [f"## {engine.title}", "### Modelled", _table(("flag", "option"), rows),
                  f"Also read: {', '.join(map(_flag_names, _read_with_others(dialect)))}.",
                  "### Not modelled, and would change the answer"]
        parts.append(_table(("effect", "flags"), [
            (f"{'Refused: ' if group.is_refused else ''}{group.effect}", ", ".join(
                _flag_names(flag.names) for flag in group.flags)) for group in dialect.table.unmodelled]))
        parts += ["### Without an effect on a prediction",
                  f"{', '.join(_flag_names(flag.names) for flag in dialect.table.no_effect)}."]
    return "\n\n".join(parts) + "\n"


def _flag_names(names: tuple[str, ...]) -> str:
    return " ".join(f"`{name}`" for name in names)


def _read_with_others(dialect: Dialect) -> Iterator[tuple[str, ...]]:
    """Yield the flags that set no option alone: the model, files, roles, and flags that make an option together."""
    yield from filter(None, (dialect.model, dialect.files, dialect.experts, dialect.kv_tokens, dialect.connectors))
    yield from ((name,) for name in (*dialect.roles, *dialect.role_switches))
    if dialect.tier is not None:
        yield (dialect.tier.size,)
    for entry in (*dialect.entries, *dialect.file_entries):
        if isinstance(entry, Tree) or entry.option not in OPTION_DEFAULTS:
            yield entry.names


PAGES = {"launch-flags": launch_flags_page, "cli": cli_page, "scenario": scenario_page, "summary": summary_page,
         "answers": answers_page,
         "policies": policies_page, "catalog": catalog_page, "files": files_page}


def _commands(group: Any, prefix: str = "planner") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _names(kind: str) -> list[str]:
    """Return the bundled profiles' names, without those of a user's own catalog."""
    return sorted(path.stem for path in (data_dir("hardware_db") / kind).glob("*.toml"))


def _scenario_names() -> list[str]:
    return [f.name for f in fields(Scenario)]


def _option_name(name: str) -> str:
    return f"`--{name.replace('_', '-')}`"


def _parameter(p: Any) -> tuple[str, str, str]:
    if p.param_type_name == "argument":
        return f"`{_escaped(p.metavar or p.name.upper())}`", "", _escaped(getattr(p, "help", "") or "")
    return ", ".join(f"`{each}`" for each in (*p.opts, *p.secondary_opts)), _value(p.default), _escaped(p.help or "")


def _kind(hint: Any) -> str:
    kinds = [hint, *get_args(hint)] if not get_args(hint) else list(get_args(hint))
    choices = [str(each) for kind in kinds for each in (get_args(kind) or (kind,)) if each is not type(None)]
    return ", ".join({"<class 'str'>": "text", "<class 'int'>": "whole number", "<class 'float'>": "number",
                      "<class 'bool'>": "yes or no"}.get(each, f"`{each}`") for each in choices)


def _value(value: Any) -> str:
    if value is None or value is MISSING or value is False:
        return "no" if value is False else ""
    return "yes" if value is True else f"`{value}`"


def _escaped(text: str) -> str:
    return " ".join(text.replace("\\[", "[").replace("|", "\\|").split())


def _first_line(function: Any) -> str:
    text = _escaped(inspect.getdoc(function).split("\n\n")[0]).removeprefix("Return ")  # type: ignore[union-attr]
    return text[0].upper() + text[1:]


def _order(policy: Policy) -> str:
    return "arrival" if policy.admit_key is None else _first_line(policy.admit_key)


def _rules(policy: Policy) -> str:
    return ", ".join(f"{f.name} {getattr(policy, f.name)}" for f in RULES if getattr(policy, f.name) != f.default)


def _is_scored(router: Any) -> bool:
    return not router.takes_turns and router.num_choices != 1


def _how(router: Any) -> str:
    if router.takes_turns:
        return "by turn"
    among = {0: "of all", 1: "at random", 2: "of two drawn at random"}[router.num_choices]
    return among + (", once for a session" if router.is_sticky else "")


def _parameters_of(kind: Any, names: set[str]) -> str:
    """Return the lines of a docstring's parameters as a list."""
    section = inspect.getdoc(kind).split("----------\n")[1]  # type: ignore[union-attr]
    entries = " ".join(f"\0{line}" if not line.startswith(" ") else line.strip() for line in section.splitlines())
    found = (entry.split(" : ", 1) for entry in entries.split("\0") if " : " in entry)
    return "\n".join(f"- `{name}`: {meaning.strip()}" for name, meaning in found if name in names)


def _terms(what: str, terms: Mapping[str, glossary.Term]) -> str:
    return _table((what, "unit", "meaning"), ((f"`{name}`", *term) for name, term in terms.items()))


def _table(head: tuple[str, ...], rows: Any) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


if __name__ == "__main__":
    main()
