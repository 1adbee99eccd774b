"""Values of options written as text: one, or a list with commas between."""

import math
import typing
from typing import Any

from planner.errors import UnknownNameError, UsageError
from planner.files.finite import number_in
from planner.settings.option_types import of_no_type
from planner.settings.scenario import ALIASES, KINDS, OPTION_DEFAULTS

# Options of which one value has commas in it.
ONE_VALUE = ("step_time", "speculative_acceptance", "num_speculative_tokens_per_batch_size", "fail_replica",
             "session_start_fraction")
_TRUTHS = {"true": True, "false": False}


def takes_list(name: str) -> bool:
    """Tell whether commas separate values of an option: its value has none, and it is no flag."""
    return name not in ONE_VALUE and bool not in KINDS[name]


def option_values(name: str, text: str, where: str) -> list[Any]:
    """Read values of an option, with commas between.

    >>> option_values("max_num_seqs", "64, 128", "--max-num-seqs '64, 128'")
    [64, 128]
    >>> option_values("kv_offloading_size", "none,64", "--axis kv_offloading_size=none,64")
    [None, 64.0]

    Parameters
    ----------
    where : the flag or the axis with its text, for errors.

    Raises
    ------
    UnknownNameError : there is no such option.
    UsageError : a value is missing, given twice, or not of the option's type.
    """
    option = ALIASES.get(name, name)
    if option not in KINDS:
        raise UnknownNameError("option", name, (*KINDS, *ALIASES))
    values = [option_value(option, part.strip(), where) for part in text.split(",")]
    if any(value in values[:place] for place, value in enumerate(values)):
        raise UsageError(f"{where}: has a value twice")
    return values


def is_none(option: str, value: Any) -> bool:
    """Tell whether a value leaves an option out: the text none, if the option is out by default and has no such choice.

    >>> is_none("kv_offloading_size", "none"), is_none("cudagraph_mode", "none"), is_none("max_num_seqs", 64)
    (True, False, False)
    """
    name = ALIASES.get(option, option)
    return value == "none" and name in KINDS and OPTION_DEFAULTS[name] is None and not any(
        value in typing.get_args(kind) for kind in KINDS[name])


def option_value(option: str, text: str, where: str) -> Any:
    """Read one value of an option.

    Parameters
    ----------
    where : as of `option_values`.

    Raises
    ------
    UsageError : the value is not of the option's type.
    """
    if is_none(option, text):
        return None
    for kind in KINDS[option]:
        choices = typing.get_args(kind)
        if text in choices or (kind is str and text):
            return text
        if kind is bool and text in _TRUTHS:
            return _TRUTHS[text]
        if kind is int and text.removeprefix("-").isdecimal():
            return int(text)
        if kind is float and not math.isnan(number := number_in(text)):
            return number
    left_out = ", or none to leave the option out" if is_none(option, "none") else ""
    raise UsageError(f"{where}: {of_no_type(option, text, KINDS[option])}{left_out}")
