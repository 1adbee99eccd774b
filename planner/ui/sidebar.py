"""The sidebar: the log, the model, the GPUs, the load and the targets of all pages, a launch line, and all settings.

It is drawn by the entry file, so its uploads stay when the page changes. Its settings are in `kept_settings`. The first
page has the log and the launch line on the page instead, as the same widgets.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import streamlit as st

from planner.errors import PlannerError
from planner.launch import launch_options
from planner.planning.study import Study
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.synthesis import sample_names
from planner.ui.all_settings import open_settings, tenants_file
from planner.ui.calibration_form import calibration_file
from planner.ui.fleet_form import FLEET_SETTINGS
from planner.ui.kept_settings import Setting, bound, last
from planner.ui.link import SWITCH, TRUTHS, one_of
from planner.ui.named import PROFILES, named
from planner.ui.option_fields import FIELDS, LEFT_OUT, OPTION_SETTINGS, check_value, option_field, widget_value
from planner.ui.own_profiles import profile_of
from planner.ui.targets_form import TARGET_SETTINGS, given_targets, targets_form
from planner.ui.tasks import read_upload
from planner.ui.waiting import result_of
from planner.ui.words import SAMPLES, log_words

UPLOAD = "your file"
LOG_FILE = "log_file"  # in the session's state: the uploaded log, or the log of the study that was opened
ENGINES_PANELS = ("Deployment", "Cache tiers", "Scheduling", "Step time")  # whose options a launch command sets
MOST_ROWS = 2_000_000
LOG_SETTINGS = {"trace": Setting(first="chat", values=lambda: one_of([*sample_names(), UPLOAD]), read=last),
                "drop": Setting(first=False, values=lambda: SWITCH, read=lambda texts: TRUTHS[texts[-1].lower()])}
SETTINGS = {**LOG_SETTINGS, **TARGET_SETTINGS, **FLEET_SETTINGS, **OPTION_SETTINGS}


@dataclass(frozen=True, slots=True, kw_only=True)
class SidebarValues:
    """The values of the sidebar.

    Parameters
    ----------
    trace : None while there is none, as before an upload.
    study : the scenario and the targets for it.
    """

    trace: Trace | None
    study: Study


def sidebar(*, has_log: bool) -> SidebarValues:
    """Draw the sidebar and return its values.

    Parameters
    ----------
    has_log : whether the log and the launch command are in the sidebar; otherwise they are on the page.

    Raises
    ------
    PlannerError : the log cannot be read, or a target or an option is wrong.
    """
    file_place, sample_place, launch_place = [st.sidebar] * 3 if has_log else st.columns([3, 2, 3])
    with file_place:
        file = _file()
    with sample_place:
        upload = _choice(file)
    with st.sidebar:
        for option in ("model", "gpu"):
            option_field(option)
        left, right = st.columns(2)
        option_field("tensor_parallel_size", left, label="GPUs (TP)")
        option_field("data_parallel_size", right, label="× replicas")
        option_field("rate_scale")
        targets_form()
    with launch_place:
        launch_field(_take)
    with st.sidebar:
        is_open = st.button("All settings", icon=":material/tune:", width="stretch", key="all_settings")
    source = st.session_state["trace"]
    trace = _sample(source) if source != UPLOAD else _uploaded(upload)
    study = _study(source if trace is None else trace.source, st.session_state)
    if is_open:
        open_settings(trace, study.scenario)
    return SidebarValues(trace=trace, study=study)


def asked_of(settings: Mapping[str, Any]) -> SidebarValues:
    """Return the values of settings, as of a link; an uploaded trace is the session's, None before the upload.

    Raises
    ------
    PlannerError : a target or an option is wrong.
    """
    source = settings["trace"]
    trace = _sample(source) if source != UPLOAD else st.session_state.get("upload")
    return SidebarValues(trace=trace, study=_study(source if trace is None else trace.source, settings))


def _study(source: str, settings: Any) -> Study:
    """Return the study that settings make."""
    values = {name: settings[name] for name in FIELDS}
    options = named({name: value or None if isinstance(value, str) else value for name, value in values.items()})
    if options["rate_scale"] == 1.0 or options["request_rate"] is not None:
        options["rate_scale"] = None
    options |= {option: profile_of(kind, options[option]) for option, kind in PROFILES.items()}
    return Study(name="replay", trace=source, format=None, objectives=given_targets(settings),
                 scenario=Scenario(**options, tenants=tenants_file(), calibration=calibration_file()))


def _take(options: dict[str, Any]) -> None:
    """Set an engine's settings to options, and its others to their defaults.

    Raises
    ------
    UsageError : a setting cannot hold its option.
    """
    taken = {f.name: f.default for f in fields(Scenario)
             if f.metadata["panel"] in ENGINES_PANELS and f.name not in LEFT_OUT and f.name != "gpu"}
    taken |= {"data_parallel_size": 1, "data_parallel_attention": False, **named(options)}
    for name, value in taken.items():
        check_value(name, value)
    for name, value in taken.items():
        st.session_state[name] = widget_value(name, value)


def _file() -> Any:
    """Ask for a file; return it, None without one."""
    return st.file_uploader("Your log", key="file", on_change=_choose_upload,
                            help=f"Requests with arrival times and token counts: CSV or JSONL, plain, .gz or .zst, at "
                                 f"most {MOST_ROWS:,} requests.")


def _choice(file: Any) -> Any:
    """Ask for a sample, or for the file; return the file with how to read it, None if a sample is chosen."""
    samples = sorted(sample_names(), key=[*SAMPLES].index)
    st.selectbox("or a sample", [*samples, UPLOAD], format_func=log_words,
                 help="Traffic of a kind of application, bundled with the planner.", **bound("trace"))
    if st.session_state["trace"] != UPLOAD:
        return None
    st.checkbox("leave out bad rows", help="The page Workload counts bad rows. If off, the first bad row is an error.",
                **bound("drop"))
    file = st.session_state[LOG_FILE] = file or st.session_state.get(LOG_FILE)
    return None if file is None else (file, st.session_state["drop"])


def _choose_upload() -> None:
    """Take the file that was given, in place of a sample and of a study's log."""
    st.session_state.pop(LOG_FILE, None)
    if st.session_state["file"] is not None:
        st.session_state["trace"] = UPLOAD


def _uploaded(upload: Any) -> Trace | None:
    """Return an uploaded trace, read once and kept with the session alone; None if there is none."""
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


TEXT, SAID, WRONG = "launch", "launch_notes", "launch_error"  # in the session's state

Take = Callable[[dict[str, Any]], None]


def launch_field(take: Take) -> None:
    """Draw the field.

    Parameters
    ----------
    take : sets the widgets to options of a scenario; raises UsageError if one of them cannot be set.
    """
    st.text_area("Launch command", key=TEXT, height=68, placeholder="vllm serve Qwen/Qwen3-32B -tp 2 …",
                 help="Paste vllm serve …, python -m sglang.launch_server … or trtllm-serve …: its options become the "
                      "settings of model and engine.")
    st.button("Use its options", key="launch_take", on_click=_take_command, args=(take,), width="stretch")
    if wrong := st.session_state.get(WRONG):
        st.error(wrong, icon=":material/error:")
    for note in st.session_state.get(SAID, ()):
        st.caption(note)


def _take_command(take: Take) -> None:
    """Set the widgets to the command's options; keep its notes, or its error."""
    st.session_state[SAID], st.session_state[WRONG] = (), None
    try:
        options, notes = launch_options(st.session_state[TEXT], reads_files=False)
        take(options)
    except PlannerError as error:
        st.session_state[WRONG] = _as_field(str(error))
        return
    st.session_state[SAID] = tuple(_as_field(note) for note in notes)


def _as_field(text: str) -> str:
    """Return text of the command line's option as text of this field."""
    return text.removeprefix("--from-command: ").replace("--from-command", "the launch command")
