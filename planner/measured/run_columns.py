"""The columns of a table of runs: their names, the scenario's options among them, and bad cells."""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from planner.errors import TraceError, UsageError
from planner.measured.statistics import OF_ALL, is_statistic
from planner.schema import MAX_TOKENS
from planner.settings.load_options import MEASURING, OF_SESSIONS, SEARCHED
from planner.settings.scenario import KINDS, names_in, parse_scenario

NOTE = "note_"  # a column whose name begins with this is kept by the table and read by nothing
MEASURED = "measured_"
# Columns that only InferenceMAX's collected points have; rows with them are its own.
INFERENCEMAX = ("image", "spec_decoding", "dp_attention")

# The names of a column, ours first; the scenario's are among them.
NAMES: Mapping[str, tuple[str, ...]] = {
    "gpu": ("gpu", "system"), "engine": ("engine", "backend"), "model": ("model",),
    "isl": ("isl", "random_input_len"), "osl": ("osl", "random_output_len"),
    "concurrency": ("concurrency", "max_concurrency"), "tp": ("tp", "tensor_parallel_size"),
    "pp": ("pp", "pipeline_parallel_size"), "dp": ("dp", "data_parallel_size", "attention_dp"), "ep": ("moe_ep", "ep"),
    "version": ("engine_version", "backend_version"), "num_prompts": ("num_prompts", "num_requests"),
}
REQUIRED = ("gpu", "engine", "model", "isl", "osl", "concurrency", "tp")
# Columns of runs with prefill and decode apart, for each side. The labels tp and ep are the source's, and tp is not
# read: a worker's GPUs are its side's GPUs over its workers, and with dp_attention each GPU is a rank.
OF_SIDES = tuple(f"{side}_{name}" for side in ("prefill", "decode")
                 for name in ("num_workers", "gpus", "dp_attention"))
LABELS_OF_SIDES = tuple(f"{side}_{name}" for side in ("prefill", "decode") for name in ("tp", "ep"))
DATES = ("measured_date", "date")
ALSO_READ = ("id", "client", "precision", "gemm_quant_mode", *DATES, "n_gpus", "n_chips", "spec_decoding",
             "dp_attention")
# Columns that no prediction depends on.
RECORDED_ONLY = ("source", "part", "moe_quant_mode", "moe_tp", "num_warmups", "image", "checkpoint", "framework")
LOAD = ("num_prompts", "random_range_ratio", "request_rate", "seed")  # options on the requests that a client sent
LAYOUT = ("data_parallel_attention", "expert_parallel")  # options that say how the row's GPUs are shared
# Options that a run of one engine under a benchmark's load cannot have, as `planner validate` has none of them.
REFUSED = ("interval", "start_at", "duration", "limit", "rate_scale", "wait_for_parents", *SEARCHED, *OF_SESSIONS,
           *MEASURING, *names_in("Overload"), *names_in("Cache tiers"),
           *(name for name in names_in("Fleet") if name not in ("data_parallel_size", "data_parallel_attention")))
# Options that go to the scenario as they are.
OPTIONS = tuple(name for name in KINDS
                if name not in {*RECORDED_ONLY, *LOAD, *LAYOUT, *REFUSED, *sum(NAMES.values(), ())})
KNOWN = (*sum(NAMES.values(), ()), *ALSO_READ, *RECORDED_ONLY, *LOAD, *LAYOUT, *OPTIONS, "measured_ttft_ms",
         "measured_tpot_ms")

# The largest value of each number. All are above 0, except the counts of ranks, for which 0 is none.
MOST = {MEASURED: 1e12, "isl": MAX_TOKENS, "osl": MAX_TOKENS, "concurrency": 1e6, "tp": 1e4,
        "pp": 1e4, "dp": 1e4, "ep": 1e4, "moe_tp": 1e4, "n_gpus": 1e6, "n_chips": 1e6}
RANKS = ("tp", "pp", "dp", "ep", "moe_tp")
WHOLE = tuple(name for name in MOST if name != MEASURED)
MEAN = " (mean)"  # behind a length that is the mean over requests


def measured_columns(columns: Sequence[str]) -> list[str]:
    """Return the columns of measured values."""
    return [name for name in columns if is_measured(name)]


def is_measured(column: str) -> bool:
    """Tell whether a column has measured values."""
    return column.startswith(MEASURED) and is_statistic(column.removeprefix(MEASURED))


def is_inferencemax(columns: Sequence[str]) -> bool:
    """Tell whether a table has InferenceMAX's collected points, which name no client."""
    return "client" not in columns and (set(INFERENCEMAX) <= set(columns) or is_apart(columns))


def is_apart(columns: Sequence[str]) -> bool:
    """Tell whether a table has runs with prefill and decode apart."""
    return set(OF_SIDES) <= set(columns)


def check_columns(path: Path, columns: Sequence[str]) -> None:
    """Raise a TraceError if a table lacks a column, or has one that nothing reads."""
    apart = is_apart(columns)
    needed = [name for name in REQUIRED if (name != "concurrency" or "request_rate" not in columns)
              and (name != "tp" or not apart)]
    known = {*KNOWN, *OF_SIDES, *LABELS_OF_SIDES} if apart else set(KNOWN)
    missing = [name for name in needed if not set(NAMES[name]) & set(columns)]
    missing += [] if measured_columns(columns) else ["measured_ttft_ms or measured_tpot_ms"]
    if missing:
        raise TraceError(f"{path}: lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; a table of "
                         f"measured runs has {', '.join(REQUIRED)}, and what was measured: measured_ttft_ms, "
                         f"measured_tpot_ms, or statistics such as measured_p99_ttft_ms")
    for name in columns:
        if name in REFUSED:
            raise TraceError(f"{path}: column {name}: a row is a run of one engine under a benchmark's load, and this "
                             f"option has no effect there; leave the column out, or rename it to {NOTE}{name}")
        if apart and name.removeprefix(MEASURED) in OF_ALL:
            raise TraceError(f"{path}: column {name}: is of all GPUs, and this table has prefill and decode apart; "
                             f"give {MEASURED}{OF_ALL[name.removeprefix(MEASURED)]}")
        if name not in known and not name.startswith(NOTE) and not is_measured(name):
            close = difflib.get_close_matches(name.lower(), KNOWN, n=1)
            hint = f"did you mean {close[0]}? To keep it as a note, " if close else "to keep it as a note, "
            raise TraceError(f"{path}: column {name}: is neither a column of a table of runs nor an option of a "
                             f"scenario; {hint}rename it to {NOTE}{name}")


def check_numbers(path: Path, table: pl.DataFrame) -> None:
    """Raise a TraceError if a number of the table is none, or out of range; an empty cell was not measured."""
    for column in table.columns:
        name = next((name for name, names in NAMES.items() if column in names), column)
        name = MEASURED if is_measured(column) else name
        if name not in MOST:
            continue
        text = table[column].cast(pl.String).str.strip_chars()
        if name in ("isl", "osl"):
            text = text.str.strip_suffix(MEAN)
        value = text.cast(pl.Float64, strict=False)
        above = (value >= 0) if name in RANKS else (value > 0)
        if name in WHOLE:
            above &= value % 1 == 0
        bad = ~(above & value.is_finite() & (value <= MOST[name])).fill_null(False) & (text.fill_null("") != "")
        if bad.any():
            row = int(bad.arg_true()[0])
            least = "of at least 0" if name in RANKS else "above 0"
            kind = "a whole number" if name in WHOLE else "a number"
            raise TraceError(f"{path} row {row}: {column} = {text[row]}; must be {kind} {least}, at most "
                             f"{MOST[name]:g}; correct it, or leave the row out")


def text_of(row: Mapping[str, Any], *names: str) -> str:
    """Return the value that a row has in one of these columns, as text; empty if all are.

    Raises
    ------
    UsageError : two of the columns have different values.
    """
    texts = {name: text for name in names if row.get(name) is not None and (text := str(row[name]).strip())}
    first = next(iter(texts), "")
    for name, text in texts.items():
        if text != texts[first]:
            raise UsageError(f"{name} = {text} beside {first} = {texts[first]}: two names of a column; leave one out")
    return texts.get(first, "")


def options_of(row: Mapping[str, Any], names: Sequence[str], **sizes: int) -> dict[str, Any]:
    """Return a row's values of these options, without empty cells.

    Parameters
    ----------
    sizes : parallel sizes of the row by the scenario's names, which some options depend on.

    Raises
    ------
    UsageError : a cell has another type than its option, is none of its choices, or does not fit another.
    """
    cells = {name: _value(name, text) for name in names if (text := text_of(row, *NAMES.get(name, (name,))))}
    scenario = parse_scenario(cells | sizes)
    return {name: getattr(scenario, name) for name in cells}


def _value(name: str, text: str) -> Any:
    """Return a cell as a number or a truth value if its option can be one and the text is one; else as text."""
    kinds = KINDS[name]
    if bool in kinds:
        return {"true": True, "false": False}.get(text.lower(), text)
    if not {int, float} & set(kinds):
        return text
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if int in kinds and value.is_integer() else value
