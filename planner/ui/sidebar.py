"""The sidebar: a trace, and a widget for each option of a scenario; all of it lives in the page's address."""

import functools
import types
import typing
from collections.abc import Sequence
from dataclasses import Field, fields, replace
from typing import Any

import streamlit as st

from planner.choices.policies import POLICIES
from planner.choices.routers import ROUTERS
from planner.errors import UsageError
from planner.model.precision import KV_BYTES_PER_ELEMENT, WEIGHT_FORMATS
from planner.planning.study import Study
from planner.settings.objectives import given_objectives
from planner.settings.scenario import OPTION_TYPES, Scenario
from planner.synthetic import sample_names
from planner.trace import Trace, read_trace
from planner.trace.read import BadRows
from planner.ui.own_profiles import name_of, names, profile_of
from planner.ui.uploads import as_file

UPLOAD = "your file"
OWN = "engine's"  # in place of a value: the engine's default
MAIN = ("model", "gpu", "engine", "tensor_parallel_size", "data_parallel_size", "quantization", "policy",
        "max_num_seqs", "max_num_batched_tokens", "rate_scale")
LEFT_OUT = ("autoscale", "calibration", "fleet", "interval", "num_prompts", "num_warmups", "random_input_len",
            "random_output_len", "random_range_ratio", "seed")  # of the server's files, and of the load `random`
FIRST = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "rate_scale": 1.0}  # what a new page shows
MOST_ROWS = 2_000_000


def sidebar() -> tuple[Trace, Study] | None:
    """Draw the sidebar; return the trace and what to do with it, None while there is no trace.

    Raises
    ------
    PlannerError : the trace cannot be read, or an objective is wrong.
    """
    with st.sidebar:
        trace = _trace()
        options = {f.name: _widget(f) for f in fields(Scenario) if f.name in MAIN}
        slo = st.text_input("slo", value="ttft:500 tpot:50", key="slo", bind="query-params",
                            help="Objectives in ms: of each request, 'ttft:500 tpot:50', or of a statistic over all, "
                                 "'p99_ttft:1000'.")
        for panel in dict.fromkeys(f.metadata["panel"] for f in fields(Scenario)):
            others = [f for f in fields(Scenario) if f.metadata["panel"] == panel and f.name not in (*MAIN, *LEFT_OUT)]
            with st.expander(f"More: {panel.lower()}"):
                options |= {f.name: _widget(f) for f in others}
    if trace is None:
        return None
    if options["rate_scale"] == 1.0 or options["request_rate"] is not None:
        options["rate_scale"] = None
    options |= {kind: profile_of(kind, options[kind]) for kind in ("gpu", "model")}
    return trace, Study(name="replay", trace=trace.source, format=None, scenario=Scenario(**options),
                        objectives=given_objectives(slo))


def widget_value(option: str, value: Any) -> Any:
    """Return what an option's widget holds for a value of the option."""
    kind = OPTION_TYPES.get(option)
    if kind == bool | None:
        return OWN if value is None else "on" if value else "off"
    if option in ("gpu", "model") and value is not None:
        return name_of(value)
    return OWN if value is None and (_names(option) is not None or kind is None) else value


def _trace() -> Trace | None:
    """Return the chosen trace; an uploaded one is read once and kept with the session alone."""
    chosen = st.selectbox("trace", [*sample_names(), UPLOAD], key="trace", bind="query-params",
                          help="A bundled sample, or a file of yours: CSV or JSONL, plain, .gz or .zst.")
    if chosen != UPLOAD:
        return _sample(chosen)
    file = st.file_uploader("trace file", key="file", help=f"At most {MOST_ROWS:,} requests; CSV or JSONL, "
                            "plain, .gz or .zst.")
    drops = st.checkbox("leave out bad rows", key="drop", bind="query-params",
                        help="They are counted on the page of the workload; else the first of them is shown.")
    if file is None:
        return None
    key = file.file_id, drops
    if st.session_state.get("upload_key") != key:
        st.session_state["upload"] = _read(file.name, file.getvalue(), "drop" if drops else "error")
        st.session_state["upload_key"] = key
    upload: Trace = st.session_state["upload"]
    return upload


@functools.lru_cache(maxsize=8)
def _sample(name: str) -> Trace:
    return read_trace(name)


def _read(name: str, content: bytes, on_bad_rows: BadRows) -> Trace:
    """Read uploaded bytes as a trace that is called by the upload's name."""
    with as_file(name, content) as path:
        read = read_trace(str(path), limit=MOST_ROWS + 1, on_bad_rows=on_bad_rows)
    trace = replace(read, source=name, account=replace(read.account, source=name))
    if trace.num_requests > MOST_ROWS:
        raise UsageError(f"{name}: has more than {MOST_ROWS:,} requests; use the command line for it")
    return trace


def _widget(f: Field[Any]) -> Any:
    """Draw the widget of an option and return its value."""
    kind = OPTION_TYPES[f.name]
    kinds = [each for each in typing.get_args(kind) if each is not types.NoneType] if isinstance(
        kind, types.UnionType) else [kind]
    common: dict[str, Any] = {"key": f.name, "help": f.metadata["help"], "bind": "query-params"}
    if (names := _names(f.name)) is not None:
        return _choice(f, names, common)
    if f.name == "rate_scale":
        return st.slider("load, times the trace's", 0.1, 20.0, 1.0, 0.1, **common)
    if choices := [word for each in kinds for word in typing.get_args(each)]:
        return _choice(f, choices, common)
    if kinds == [bool]:
        if f.default is None:
            picked = _choice(f, ["on", "off"], common)
            return None if picked is None else picked == "on"
        return st.checkbox(f.name, value=f.default, **common)
    if kinds in ([int], [float]):
        step, least = (1, 1 if f.default == 1 else 0) if kinds == [int] else (None, 0.0)
        return st.number_input(f.name, value=f.default, step=step, min_value=least, placeholder=OWN, **common)
    return st.text_input(f.name, value=f.default, **common)


def _choice(f: Field[Any], names: Sequence[str], common: dict[str, Any]) -> Any:
    """Draw a choice; where the option may be left to the engine, that comes first."""
    first = FIRST.get(f.name, f.default)
    options = list(names) if first is not None else [OWN, *names]
    picked = st.selectbox(f.name, options, index=options.index(first) if first in options else 0, **common)
    return None if picked == OWN else picked


def _names(option: str) -> Sequence[str] | None:
    """Return the known names of an option that has them."""
    if option in ("model", "gpu"):
        return names(option)
    known = {"quantization": WEIGHT_FORMATS, "kv_cache_dtype": KV_BYTES_PER_ELEMENT, "policy": POLICIES,
             "router": ROUTERS}
    return list(known[option]) if option in known else None
