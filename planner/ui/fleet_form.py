"""The parts of fleets, on the pages Plan and Sizing: the GPUs to compare, and their prices, edited in place."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from planner.catalog.catalog_files import load_gpu
from planner.catalog.gpu_label import gpu_label
from planner.files.finite import number_in
from planner.ui.kept_settings import Setting, bound, last
from planner.ui.link import Values
from planner.ui.own_profiles import names, profile_of

USUAL_GPUS = ("h100-sxm", "h200-sxm", "b200-sxm", "l40s")  # that most clouds rent
PRICE = "USD per GPU-hour"


def gpus_form(place: Any) -> list[str]:
    """Ask for the GPUs to compare.

    Parameters
    ----------
    place : a container of Streamlit's.
    """
    chosen: list[str] = place.multiselect("GPUs to compare", names("gpu"), format_func=gpu_label, **bound("gpus"))
    return chosen


def prices_form(gpus: Sequence[str]) -> None:
    """Draw the prices of GPUs, and let the user change them; they are in the session's state as `price`."""
    own = given_prices()
    rows = [{"GPU": gpu_label(gpu), PRICE: own.get(gpu, list_price(gpu)), "list price": list_price(gpu)}
            for gpu in gpus]
    key = f"prices_{sorted(own.items())}_{list(gpus)}"  # a change of prices is in the rows: the editor begins anew
    with st.expander("Prices"):
        st.data_editor(rows, hide_index=True, key=key, disabled=["GPU", "list price"], on_change=_take_prices,
                       args=(key, list(gpus)), column_config={
                           PRICE: st.column_config.NumberColumn(min_value=0.0, step=0.01, format="%.2f", required=True),
                           "list price": st.column_config.NumberColumn(format="%.2f")})
        st.caption("Click on a price to change it. The search takes the prices that stand here.")


def given_prices() -> dict[str, float]:
    """Return the prices that differ from the catalog's, by GPU [USD per GPU-hour]."""
    return _prices(st.session_state["price"])


def prices_text(prices: Mapping[str, float]) -> str:
    """Return prices as `--price` takes them.

    >>> prices_text({"h100-sxm": 2.5, "l40s": 1.0})
    'h100-sxm=2.5,l40s=1'
    """
    return ",".join(f"{gpu}={price:g}" for gpu, price in prices.items())


def list_price(gpu: str) -> float:
    """Return the catalog's price of a GPU [USD per GPU-hour]."""
    return load_gpu(str(profile_of("gpu", gpu))).price_usd_per_hour


def _take_prices(key: str, gpus: list[str]) -> None:
    """Keep the prices that were edited; a price equal to the catalog's is none of one's own."""
    prices = given_prices()
    for row, cells in st.session_state[key]["edited_rows"].items():
        gpu = gpus[int(row)]
        if cells[PRICE] == list_price(gpu):
            prices.pop(gpu, None)
        else:
            prices[gpu] = float(cells[PRICE])
    st.session_state["price"] = prices_text(prices)


def _prices(text: str) -> dict[str, float]:
    """Read prices as `--price` takes them; no name in them is looked up, since it could be a path."""
    parts = (part.partition("=") for part in text.replace(",", " ").split())
    return {gpu: number_in(price) for gpu, _, price in parts}


def _is_price_list(text: str) -> bool:
    known = names("gpu")
    return all(gpu in known and 0 <= price < math.inf for gpu, price in _prices(text).items())


def _gpus() -> Values:
    known = names("gpu")
    return Values(lambda text: text == "" or text in known, f"must be one of {', '.join(known)}", known)


FLEET_SETTINGS = {
    "gpus": Setting(first=[*USUAL_GPUS], values=_gpus, read=lambda texts: [text for text in texts if text]),
    "price": Setting(first="", read=last, values=lambda: Values(
        _is_price_list, "must be GPUs with prices in USD per GPU-hour, as in 'h100-sxm=2.5'"))}
