"""Options of a scenario as settings of the dashboard: the values that each can have, and the field that sets it."""

import typing
from collections.abc import Sequence
from dataclasses import Field, fields, replace
from typing import Any

import streamlit as st

from planner.catalog.gpu_label import gpu_label
from planner.errors import UsageError
from planner.model.precision import KV_TYPES, WEIGHT_FORMATS
from planner.policies.builtin_policies import POLICIES
from planner.policies.builtin_routers import ROUTERS
from planner.settings.crossing import crossed
from planner.settings.deployment_options import FITTED_LENGTH
from planner.settings.load_options import SEARCHED
from planner.settings.scenario import KINDS, LABELS, OPTION_DEFAULTS, Scenario
from planner.ui.kept_settings import Setting, bound
from planner.ui.link import ANY, SWITCH, TRUTHS, Values, number, one_of
from planner.ui.named import PROFILES, known_name
from planner.ui.own_profiles import name_of, names

# Options of the server's files, of the load `random`, and options that searches set themselves.
LEFT_OUT = ("autoscale", "calibration", "fleet", "interval", "num_prompts", "num_warmups", "random_input_len",
            "random_output_len", "random_range_ratio", "seed", *SEARCHED)
UPLOADED = ("tenants",)
ON_SIGHT = ("model", "gpu", "tensor_parallel_size", "data_parallel_size", "rate_scale")  # fields of the sidebar
FIRST = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "rate_scale": 1.0}  # of a new page
MOST = {"data_parallel_size": 1_024, "prefill_replicas": 1_023}
LEAST = {"max_model_len": FITTED_LENGTH}
OWNER, CROSSED = "engine_before", "engine_note"  # in the session's state: the engine of the values, a note on others
RATES = (0.1, 20.0)  # least and most load, as multiples of the log's rate
KNOWN = {"quantization": WEIGHT_FORMATS, "kv_cache_dtype": KV_TYPES, "policy": POLICIES, "router": ROUTERS}
FIELDS: dict[str, Field[Any]] = {f.name: f for f in fields(Scenario) if f.name not in (*LEFT_OUT, *UPLOADED)}


def widget_value(option: str, value: Any) -> Any:
    """Return an option's value in the form of the session's state."""
    if option in PROFILES and value is not None:
        return name_of(value)
    return float(value) if float in KINDS.get(option, ()) and value is not None else value


def check_value(option: str, value: Any) -> None:
    """Raise UsageError if the field of an option cannot hold a value."""
    known = _words(option, value)
    if option not in FIELDS or (known is not None and value is not None and value not in known):
        raise UsageError(f"{option} = {value!r}: the dashboard has no such value")
    if option in MOST and value > MOST[option]:
        raise UsageError(f"{option} = {value:,}: the dashboard takes up to {MOST[option]:,}")


def option_field(option: str, place: Any = st, *, in_force: str | None = None, label: str | None = None) -> None:
    """Draw the field that sets an option.

    Parameters
    ----------
    place : a container of Streamlit's.
    in_force : the value that holds if none is given; None for the words of the option's help.
    label : in place of the option's own.
    """
    f, kinds = FIELDS[option], KINDS[option]
    if option == "engine":
        st.session_state[OWNER] = st.session_state.get("engine", f.default)
    said: dict[str, Any] = {"on_change": _cross} if option == "engine" else {}
    said |= {"label": label or LABELS[option].title, "help": f"`{option}`: {f.metadata['help']}", **bound(option)}
    empty = in_force or _default_words(f)
    if option == "rate_scale":
        place.slider(**said, min_value=RATES[0], max_value=RATES[1], step=0.1)
    elif kinds == [bool] and f.default is not None:
        place.checkbox(**said)
    elif (words := _words(option, st.session_state.get(option))) is not None:
        is_open = FIRST.get(option, f.default) is None  # then no word means the value in force
        place.selectbox(**said, options=words, format_func=_shown(option),
                        **({"index": None, "placeholder": empty} if is_open else {}))
        if option == "engine" and st.session_state.get(CROSSED):
            place.caption(st.session_state[CROSSED])
    elif kinds in ([int], [float]):
        least, most = _limits(f)
        place.number_input(**said, min_value=least, max_value=most,
                           **({"step": 1} if kinds == [int] else {"step": None, "format": "%g"}),
                           **({"value": None, "placeholder": empty} if f.default is None else {}))
    else:
        place.text_input(**said, **({"value": None, "placeholder": empty} if f.default is None else {}))


def _cross() -> None:
    """Set options that belong to the engine before the change to their defaults, and keep a note on them."""
    owner, engine = st.session_state[OWNER], st.session_state["engine"]
    values = {name: st.session_state[name] or None for name in FIELDS if name in st.session_state}
    kept, notes = crossed(values, dict.fromkeys(values, owner), engine)
    for name in values.keys() - kept.keys():
        st.session_state[name] = widget_value(name, FIELDS[name].default)
    st.session_state[CROSSED] = "; ".join(notes)


def _setting(f: Field[Any]) -> Setting:
    return Setting(first=FIRST.get(f.name, f.default), values=lambda: _values(f),
                   read=lambda texts: _read(f, texts[-1]))


def _values(f: Field[Any]) -> Values:
    """Return the texts that an option can be in the address."""
    kinds = KINDS[f.name]
    if f.name == "rate_scale":
        return number(*RATES, is_whole=False, may_be_empty=False)
    if kinds == [bool]:
        return SWITCH
    if f.name in PROFILES:
        return replace(one_of(names(PROFILES[f.name])), accepts=lambda text: text in (_words(f.name, text) or ()))
    if (words := _words(f.name)) is not None:
        return one_of(words)
    if kinds in ([int], [float]):
        return number(*_limits(f), is_whole=kinds == [int], may_be_empty=f.default is None)
    return ANY


def _read(f: Field[Any], text: str) -> Any:
    kinds = KINDS[f.name]
    if kinds == [bool]:
        return TRUTHS[text.lower()]
    if kinds in ([int], [float]):
        return None if text == "" else int(float(text)) if kinds == [int] else float(text)
    return text


def _limits(f: Field[Any]) -> tuple[int | float, int | None]:
    """Return the least and the most of a number."""
    least = 0.0 if float in KINDS[f.name] else 1 if f.default == 1 else 0
    return LEAST.get(f.name, least), MOST.get(f.name)


def _words(option: str, value: Any = None) -> Sequence[Any] | None:
    """Return all values of an option if they are few: names, words, or on and off.

    Parameters
    ----------
    value : of the option; a checkpoint of a model in the catalog is a value, too.
    """
    if option in PROFILES:
        listed = names(PROFILES[option])
        is_other = value is not None and value not in listed and known_name(PROFILES[option], str(value)) == value
        return [value, *listed] if is_other else listed
    if option in KNOWN:
        return list(KNOWN[option])
    kinds = KINDS.get(option, [])
    if kinds == [bool] and OPTION_DEFAULTS[option] is None:
        return [True, False]
    return [word for kind in kinds for word in typing.get_args(kind)] or None


def _shown(option: str) -> Any:
    """Return the function that writes a value of an option as people do."""
    if option == "gpu":
        return gpu_label
    return lambda value: ("on" if value else "off") if isinstance(value, bool) else str(value)


def _default_words(f: Field[Any]) -> str:
    """Return the words for an option that is not given, from the brackets at the end of its help."""
    _, found, words = str(f.metadata["help"]).rpartition("[")
    return words.rstrip("].") if found and str(f.metadata["help"]).endswith("]") else "not set"


OPTION_SETTINGS = {name: _setting(f) for name, f in FIELDS.items()}
