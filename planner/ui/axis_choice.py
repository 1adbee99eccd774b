"""A row that adds an option to the axes of a sweep: chosen from a list, with values that fit it."""

import typing
from collections.abc import Sequence

import streamlit as st

from planner.catalog.catalog_files import gpu_names
from planner.policies.builtin_policies import POLICIES
from planner.policies.builtin_routers import ROUTERS
from planner.settings.option_labels import LABELS
from planner.settings.scenario import KINDS
from planner.ui.option_fields import FIELDS

AXES = "axes"  # in the session's state: a line for each option
NEW_OPTION, NEW_VALUES = "new_axis", "new_axis_values"
NAMES: dict[str, Sequence[str]] = {"policy": list(POLICIES), "router": list(ROUTERS), "gpu": gpu_names()[:4]}
FACTORS = (1, 2, 4)  # of 1, where a number has no names


def axis_choice() -> None:
    """Draw the row: an option, its values, and a button that adds both to the axes."""
    options = list(FIELDS)
    left, middle, right = st.columns([2, 3, 1], vertical_alignment="bottom")
    option: str = left.selectbox("add an option", options, options.index("tensor_parallel_size"), key=NEW_OPTION,
                                  format_func=lambda name: f"{LABELS[name].title} ({name})")
    middle.text_input("its values, with commas between", placeholder=suggested(option), key=NEW_VALUES)
    right.button("Add", key="new_axis_add", width="stretch", on_click=_add)


def suggested(option: str) -> str:
    """Return values of an option as text.

    >>> suggested("async_scheduling"), suggested("data_parallel_size"), suggested("preemption")
    ('true,false', '1,2,4', 'recompute,swap')
    """
    words = [word for kind in KINDS[option] for word in typing.get_args(kind)]
    if option in NAMES or words:
        return ",".join(NAMES.get(option, words))
    return "true,false" if KINDS[option] == [bool] else ",".join(map(str, FACTORS))


def with_axis(text: str, option: str, values: str) -> str:
    r"""Return axes with a line for an option, in place of an earlier one.

    >>> with_axis("max_num_seqs=1,2\ngpu=l40s", "max_num_seqs", "8")
    'gpu=l40s\nmax_num_seqs=8'
    """
    others = [line for line in text.splitlines()
              if line.strip() and line.partition("=")[0].strip().replace("-", "_") != option]
    return "\n".join([*others, f"{option}={values}"])


def _add() -> None:
    """Add the chosen option to the axes."""
    option = st.session_state[NEW_OPTION]
    values = st.session_state[NEW_VALUES].strip() or suggested(option)
    st.session_state[AXES] = with_axis(st.session_state[AXES], option, values)
    st.session_state[NEW_VALUES] = ""
