"""Two pools divided by the prompt length, on the page Sizing: their form, their file, and the tried thresholds."""

import json
from dataclasses import dataclass
from typing import Any

import streamlit as st

from planner.catalog.gpu_label import gpu_label
from planner.planning.search_options import RANKS, parse_thresholds
from planner.planning.size_answer import SizeAnswer
from planner.report.split_tables import split_words
from planner.ui.kept_settings import Setting, bound, last
from planner.ui.link import ANY, SWITCH, in_link, number, one_of
from planner.ui.own_profiles import kept_file, names, profile_of
from planner.ui.words import plain, without_paths

FILE = "pools.toml"
POOLS = (("short", "input_tokens < threshold", "l40s"), ("long", "input_tokens >= threshold", "h100-sxm"))
KEYS = ("pools", "thresholds", *(f"{name}_{part}" for name, _, _ in POOLS for part in ("ranks", "context")))
POOL_SETTINGS = {f"{name}_gpu": Setting(first=usual, values=lambda: one_of(names("gpu")), read=last)
                 for name, _, usual in POOLS}
CHOSEN = ("name", "gpu", "tensor_parallel_size", "max_model_len")  # keys of a pool that the form sets
STAR = "★"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """Two pools that are asked for.

    Parameters
    ----------
    gpus : of both.
    toml : the fleet's file.
    thresholds : of the prompt length to try; none for quantiles of the trace's [tokens].
    """

    gpus: tuple[str, str]
    toml: str
    thresholds: tuple[int, ...]

    def kept(self) -> str:
        """Keep the file for the session; return its path."""
        return kept_file(FILE, self.toml.encode())


def pools_form() -> Pools | None:
    """Ask whether short and long prompts have replicas of their own, and of which kind; None if not.

    Raises
    ------
    UsageError : the thresholds are wrong.
    """
    if not st.checkbox("Two pools by prompt length", value=False, **in_link("pools", False, SWITCH),
                       help="Short prompts go to one kind of replica and long prompts to another. The search finds the "
                            "threshold and the replicas of each."):
        return None
    tables, gpus = [], []
    for name, accepts, _ in POOLS:
        gpu, table = _pool(name, accepts)
        gpus.append(gpu)
        tables.append(table)
    text = st.text_input("Thresholds to try [tokens]", "", placeholder="seven quantiles of the prompt lengths",
                         help="As in 2048,8192.", **in_link("thresholds", "", ANY))
    return Pools(gpus=(gpus[0], gpus[1]), toml="\n".join(tables),
                 thresholds=parse_thresholds(text) if text.strip() else ())


def _pool(name: str, accepts: str) -> tuple[str, str]:
    """Ask for a pool; return its GPU, and its table in the file."""
    left, middle, right = st.columns(3)
    gpu: str = left.selectbox(f"GPU for {name} prompts", names("gpu"), format_func=gpu_label, **bound(f"{name}_gpu"))
    ranks = middle.selectbox(f"GPUs a replica, {name} prompts", RANKS,
                             **in_link(f"{name}_ranks", RANKS[0], one_of(list(map(str, RANKS)))))
    context = right.number_input(f"Context limit, {name} prompts [tokens]", 1, None, None, 1024,
                                 placeholder="the model's", **in_link(f"{name}_context", None, number(
                                     1, None, is_whole=True, may_be_empty=True)))
    values = {"name": name, "accepts": accepts, "gpu": profile_of("gpu", gpu), "tensor_parallel_size": ranks,
              **({} if context is None else {"max_model_len": int(context)})}
    return gpu, "\n".join(["[[pool]]", *(f"{key} = {json.dumps(value)}" for key, value in values.items()), ""])


def draw_pools(found: SizeAnswer, toml: str | None) -> None:
    """Draw the cheapest two pools against one pool, and the thresholds that were tried.

    Parameters
    ----------
    toml : the fleet's file; None if the search had no pools.
    """
    if found.split is None or toml is None:
        return
    st.subheader("Two pools by prompt length", anchor=False)
    first, *words = split_words(found)
    saves = found.split.saving is not None and found.split.saving > 0
    (st.success if saves else st.info)(plain(first), icon=":material/call_split:")
    best = None if found.split.fleet is None else found.split.fleet.threshold_tokens
    st.dataframe([{"": STAR if row.threshold_tokens == best else "", "threshold [tokens]": row.threshold_tokens,
                   "replicas, short + long": row.replicas, "GPUs": row.num_gpus, "USD an hour": row.cost_usd_per_hour,
                   "why none": None if row.reason is None else without_paths(row.reason)}
                  for row in found.split.thresholds], hide_index=True, alt="thresholds",
                 column_config={"USD an hour": st.column_config.NumberColumn(format="%.2f")})
    for line in words:
        st.caption(plain(line))
    st.download_button("Pools, TOML", toml, FILE, "application/toml", on_click="ignore")


def words_of(pools: Pools | None) -> dict[str, Any]:
    """Return the form's values that an answer depends on."""
    if pools is None:
        return {"two pools": None, "thresholds": None}
    kinds = [line.partition(" = ")[2] for line in pools.toml.splitlines() if line.startswith(CHOSEN)]
    return {"two pools": " ".join(kinds).replace('"', ""), "thresholds": ",".join(map(str, pools.thresholds)) or None}
