"""The sidebar: a trace, objectives, and a widget for each option of a scenario; all of it lives in the page's address.

It is drawn by the entry file, so its widgets and uploads stay when the page changes.
"""

import functools
import typing
from collections.abc import Sequence
from dataclasses import Field, dataclass, fields, replace
from typing import Any

import streamlit as st

from planner.errors import UsageError
from planner.model.precision import KV_BYTES_PER_ELEMENT, WEIGHT_FORMATS
from planner.planning.search_options import DEFAULT_ATTAINMENT
from planner.planning.study import Study
from planner.policies.builtin_policies import POLICIES
from planner.policies.builtin_routers import ROUTERS
from planner.settings.objectives import Objectives, given_objectives
from planner.settings.scenario import KINDS, OPTION_TYPES, Scenario
from planner.traces import Trace, read_trace
from planner.traces.synthesis import sample_names
from planner.ui.link import ANY, SWITCH, in_link, number, one_of
from planner.ui.named import PROFILES, named
from planner.ui.own_profiles import kept_file, name_of, names, profile_of
from planner.ui.pasted_command import launch_field
from planner.ui.tasks import read_upload
from planner.ui.waiting import result_of

UPLOAD = "your file"
OWN = "engine's"  # in place of a value: the engine's default
MAIN = ("model", "gpu", "engine", "tensor_parallel_size", "data_parallel_size", "quantization", "policy",
        "max_num_seqs", "max_num_batched_tokens", "rate_scale")
LEFT_OUT = ("autoscale", "calibration", "fleet", "interval", "num_prompts", "num_warmups", "random_input_len",
            "random_output_len", "random_range_ratio", "seed")  # of the server's files, and of the load `random`
UPLOADED = ("tenants",)
ENGINES_PANELS = ("Deployment", "Cache tiers", "Scheduling", "Step time")  # whose options a launch command sets
FIRST = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "rate_scale": 1.0}  # what a new page shows
OBJECTIVES = "ttft:500 tpot:50"
MOST_ROWS = 2_000_000
MOST = {"data_parallel_size": 1_024, "prefill_replicas": 1_023}
RATES = (0.1, 20.0)
KEYS = ("trace", "drop", "slo", "attainment",
        *(f.name for f in fields(Scenario) if f.name not in (*LEFT_OUT, *UPLOADED)))  # in the address


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the sidebar says.

    Parameters
    ----------
    trace : None while there is none, as before an upload.
    study : what to do with it.
    """

    trace: Trace | None
    study: Study


def sidebar() -> Asked:
    """Draw the sidebar and return what it says.

    Raises
    ------
    PlannerError : the trace cannot be read, or an objective or an option is wrong.
    """
    with st.sidebar:
        source, upload = _source()
        options = {f.name: _widget(f) for f in fields(Scenario) if f.name in MAIN}
        slo, attainment = _objectives()
        launch_field(_take)
        for panel in dict.fromkeys(f.metadata["panel"] for f in fields(Scenario)):
            others = [f for f in fields(Scenario) if f.metadata["panel"] == panel and f.name not in (*MAIN, *LEFT_OUT)]
            with st.expander(f"More: {panel.lower()}"):
                options |= {f.name: _tenants() if f.name in UPLOADED else _widget(f) for f in others}
    trace = _sample(source) if source != UPLOAD else _uploaded(upload)
    return Asked(trace=trace, study=_study(source if trace is None else trace.source, options, slo, attainment))


def _study(source: str, options: dict[str, Any], slo: str, attainment: float) -> Study:
    """Return the study that the widgets' values make."""
    tenants = options.pop("tenants")
    options = named({name: value or None if isinstance(value, str) else value for name, value in options.items()})
    if options["rate_scale"] == 1.0 or options["request_rate"] is not None:
        options["rate_scale"] = None
    options |= {option: profile_of(kind, options[option]) for option, kind in PROFILES.items()}
    return Study(name="replay", trace=source, format=None, scenario=Scenario(**options, tenants=tenants),
                 objectives=_read_objectives(slo, attainment))


def _read_objectives(slo: str, attainment: float) -> Objectives | None:
    """Return the objectives; the attainment is of those that have objectives of each request."""
    asked = given_objectives(slo)
    return asked if asked is None or not asked.slo.limits_s else replace(asked, attainment=attainment)


def widget_value(option: str, value: Any) -> Any:
    """Return what an option's widget holds for a value of the option."""
    kind = OPTION_TYPES.get(option)
    if kind == bool | None:
        return OWN if value is None else "on" if value else "off"
    if option in PROFILES and value is not None:
        return name_of(value)
    if kind in (float, float | None) and value is not None:
        return float(value)
    return OWN if value is None and (_names(option) is not None or kind is None) else value


def _take(options: dict[str, Any]) -> None:
    """Set the widgets of an engine to options, and its others to their defaults.

    Raises
    ------
    UsageError : a widget cannot hold its option.
    """
    found = {f.name: f.default for f in fields(Scenario)
             if f.metadata["panel"] in ENGINES_PANELS and f.name not in LEFT_OUT and f.name != "gpu"}
    found |= {"data_parallel_size": 1, "data_parallel_attention": False, **named(options)}
    for name, value in found.items():
        _check_widget(name, value)
    for name, value in found.items():
        st.session_state[name] = widget_value(name, value)


def _check_widget(option: str, value: Any) -> None:
    """Raise UsageError where the widget of an option cannot hold a value."""
    known = _names(option) or [word for kind in KINDS[option] for word in typing.get_args(kind)]
    if option not in KEYS or (known and value is not None and value not in known):
        raise UsageError(f"{option} = {value!r}: the dashboard has no such value")
    if option in MOST and value > MOST[option]:
        raise UsageError(f"{option} = {value:,}: the dashboard takes up to {MOST[option]:,}")


def _objectives() -> tuple[str, float]:
    """Ask for the objectives of all pages."""
    slo = st.text_input("slo", value=OBJECTIVES, **in_link("slo", OBJECTIVES, ANY),
                        help="Objectives in ms: of each request, 'ttft:500 tpot:50 e2el:5000', or of a percentile of "
                             "all requests, 'p99_ttft:1000'.")
    shares = number(0.01, 1.0, is_whole=False, may_be_empty=False)
    return slo, st.number_input("attainment", 0.01, 1.0, DEFAULT_ATTAINMENT, 0.01,
                                **in_link("attainment", DEFAULT_ATTAINMENT, shares),
                                help="Required share of requests that meet the objectives of each request.")


def _source() -> tuple[str, Any]:
    """Ask for a trace: a sample, or a file with how to read it."""
    samples = [*sample_names(), UPLOAD]
    chosen = st.selectbox("trace", samples, **in_link("trace", samples[0], one_of(samples)),
                          help="A bundled sample, or a file of yours: CSV or JSONL, plain, .gz or .zst.")
    if chosen != UPLOAD:
        return chosen, None
    file = st.file_uploader("trace file", key="file", help=f"At most {MOST_ROWS:,} requests; CSV or JSONL, "
                            "plain, .gz or .zst.")
    drops = st.checkbox("leave out bad rows", **in_link("drop", False, SWITCH),
                        help="The workload page counts bad rows. If off, the first bad row is an error.")
    return chosen, None if file is None else (file, drops)


def _uploaded(upload: Any) -> Trace | None:
    """Return an uploaded trace, read once and kept with the session alone; None where there is none."""
    if upload is None:
        return None
    file, drops = upload
    key = file.file_id, drops
    if st.session_state.get("upload_key") != key:
        st.session_state["upload"] = result_of(read_upload, file.name, file.getvalue(), MOST_ROWS,
                                               "drop" if drops else "error", said=f"Reading {file.name} …")
        st.session_state["upload_key"] = key
    trace: Trace = st.session_state["upload"]
    return trace


@functools.lru_cache(maxsize=8)
def _sample(name: str) -> Trace:
    return read_trace(name)


def _tenants() -> str | None:
    """Ask for the file of tenants; return the path of the session's copy."""
    file = st.file_uploader("tenants", key="tenants", type=["toml"], max_upload_size=1,
                            help=Scenario.__dataclass_fields__["tenants"].metadata["help"])
    return None if file is None else kept_file("tenants.toml", file.getvalue())


def _widget(f: Field[Any]) -> Any:
    """Draw the widget of an option and return its value."""
    kinds, help_text = KINDS[f.name], f.metadata["help"]
    if (known := _names(f.name)) is not None:
        return _choice(f, known)
    if f.name == "rate_scale":
        rates = number(*RATES, is_whole=False, may_be_empty=False)
        return st.slider("load, times the trace's", *RATES, 1.0, 0.1, help=help_text, **in_link(f.name, 1.0, rates))
    if choices := [word for kind in kinds for word in typing.get_args(kind)]:
        return _choice(f, choices)
    if kinds == [bool]:
        if f.default is None:
            picked = _choice(f, ["on", "off"])
            return None if picked is None else picked == "on"
        return st.checkbox(f.name, value=f.default, help=help_text, **in_link(f.name, f.default, SWITCH))
    if kinds in ([int], [float]):
        return _number(f, is_whole=kinds == [int])
    return st.text_input(f.name, value=f.default, help=help_text, **in_link(f.name, f.default, ANY))


def _number(f: Field[Any], *, is_whole: bool) -> Any:
    """Draw a number within the limits of an option."""
    step, least = (1, 1 if f.default == 1 else 0) if is_whole else (None, 0.0)
    values = number(least, MOST.get(f.name), is_whole=is_whole, may_be_empty=f.default is None)
    return st.number_input(f.name, value=f.default, step=step, min_value=least, max_value=MOST.get(f.name),
                           placeholder=OWN, help=f.metadata["help"], **in_link(f.name, f.default, values))


def _choice(f: Field[Any], known: Sequence[str]) -> Any:
    """Draw a choice; where the option may be left to the engine, that comes first."""
    first = FIRST.get(f.name, f.default)
    options = list(known) if first is not None else [OWN, *known]
    place = options.index(first) if first in options else 0
    picked = st.selectbox(f.name, options, index=place, help=f.metadata["help"],
                          **in_link(f.name, options[place], one_of(options)))
    return None if picked == OWN else picked


def _names(option: str) -> Sequence[str] | None:
    """Return the known names of an option that has them."""
    if option in PROFILES:
        return names(PROFILES[option])
    known = {"quantization": WEIGHT_FORMATS, "kv_cache_dtype": KV_BYTES_PER_ELEMENT, "policy": POLICIES,
             "router": ROUTERS}
    return list(known[option]) if option in known else None
