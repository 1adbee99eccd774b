"""The axes of a sweep: options that vary, each with its values, chosen from a list or given as text."""

import typing
from collections.abc import Sequence

import streamlit as st

from planner.catalog.catalog_files import gpu_names
from planner.policies.builtin_policies import POLICIES
from planner.policies.builtin_routers import ROUTERS
from planner.settings.scenario import KINDS, LABELS
from planner.ui.link import ANY, in_link
from planner.ui.option_fields import FIELDS
from planner.ui.words import plain

AXES = "axes"  # in the session's state: a line for each option
NEW_OPTION, NEW_VALUES = "new_axis", "new_axis_values"
NAMES: dict[str, Sequence[str]] = {"policy": list(POLICIES), "router": list(ROUTERS), "gpu": gpu_names()[:4]}
FACTORS = (1, 2, 4)  # suggested values of a numeric option


def axes_form(first: str) -> str:
    """Draw the options that vary, a row that adds another, and all of them as text; return the text.

    Parameters
    ----------
    first : the text on a new page.
    """
    st.markdown("**Options that vary**")
    chosen = st.container(horizontal=True, gap="small")
    options = list(FIELDS)
    left, middle, right = st.columns([2, 3, 1], vertical_alignment="bottom")
    option: str = left.selectbox("Add an option", options, options.index("tensor_parallel_size"), key=NEW_OPTION,
                                  format_func=lambda name: LABELS[name].title)
    middle.text_input("Its values, with commas between", placeholder=suggested(option), key=NEW_VALUES)
    right.button("Add", key="new_axis_add", width="stretch", on_click=_add)
    with st.expander("As text"):
        text: str = st.text_area("An option with its values on each line", first, height=120,
                                 **in_link(AXES, first, ANY))
    for option, words in axis_words(text).items():
        chosen.button(f"{plain(words)} ✕", key=f"axis_{option}", on_click=_drop, args=(option,))
    return text


def axis_words(text: str) -> dict[str, str]:
    r"""Return by option each axis in words.

    >>> axis_words("max_num_seqs=32,64\nnonsense=1")
    {'max_num_seqs': 'running sequences, at most: 32, 64', 'nonsense': 'nonsense: 1'}
    """
    lines = [line.partition("=") for line in text.splitlines() if line.strip()]
    names = [(name.strip().replace("-", "_"), values) for name, _, values in lines]
    return {name: f"{LABELS[name].words if name in LABELS else name}: {', '.join(values.replace(',', ' ').split())}"
            for name, values in names}


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


def _drop(option: str) -> None:
    """Take an option away from the axes."""
    st.session_state[AXES] = "\n".join(line for line in st.session_state[AXES].splitlines()
                                       if line.partition("=")[0].strip().replace("-", "_") != option)


def _add() -> None:
    """Add the chosen option to the axes."""
    option = st.session_state[NEW_OPTION]
    values = st.session_state[NEW_VALUES].strip() or suggested(option)
    st.session_state[AXES] = with_axis(st.session_state[AXES], option, values)
    st.session_state[NEW_VALUES] = ""
