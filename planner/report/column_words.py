"""Names of columns and quantities in words with their units, and numbers with the prefix that suits them."""

import math

UNITS = {  # by the end of a name, the longest first
    "_usd_per_million_output_tokens": "USD per million output tokens", "_usd_per_hour": "USD/h",
    "_usd_per_month": "USD a month", "_usd_per_year": "USD a year", "_kg_per_month": "kg a month",
    "_bytes_per_s": "B/s", "_flops_per_s": "FLOP/s", "_j_per_byte": "J/B", "_per_s": "1/s", "_rps": "requests/s",
    "_bytes": "B", "_kw": "kW", "_ms": "ms", "_w": "W", "_s": "s", "_j": "J"}
WORDS = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "end to end", "e2el": "end to end", "kv": "KV",
         "gpu": "GPU", "gpus": "GPUs", "hbm": "HBM", "tdp": "TDP", "id": "ID", "flop": "FLOP", "co2": "CO₂",
         "cpu": "host", "cum": "cumulated"}
UNSAID = ("num", "is")  # words of a name that only tell the kind of its value
PREFIXES = {1e15: "P", 1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k", 1.0: "", 1e-3: "m", 1e-6: "µ", 1e-9: "n", 1e-12: "p"}


def column_words(name: str) -> str:
    """Return the name of a column in words, with its unit.

    >>> column_words("p99_ttft_ms"), column_words("num_replicas"), column_words("power_usd_per_month")
    ('p99 TTFT [ms]', 'replicas', 'power [USD a month]')
    """
    end = next((end for end in UNITS if name.endswith(end) and name != end[1:]), "")
    words = [WORDS.get(word, word) for word in name.removesuffix(end).split("_") if word not in UNSAID]
    return " ".join(words) + (f" [{UNITS[end]}]" if end else "")


def quantity_text(value: float, unit: str) -> str:
    """Return a number with its unit, with the prefix that leaves the fewest digits.

    >>> quantity_text(3.35e12, "B/s"), quantity_text(4.18e-6, "s"), quantity_text(8.0, "GPUs"), quantity_text(0.5, "1")
    ('3.35 TB/s', '4.18 µs', '8 GPUs', '0.5')
    """
    if unit == "1":
        return f"{value:g}"
    if value == 0 or unit.startswith(("GPU", "USD")) or 1 <= abs(value) < 1e3:
        return f"{value:,.4g} {unit}"
    scale = next((scale for scale in PREFIXES if abs(value) >= scale), min(PREFIXES))
    if math.isclose(scale, 1.0):
        return f"{value:,.4g} {unit}"
    return f"{value / scale:,.4g} {PREFIXES[scale]}{unit}"
