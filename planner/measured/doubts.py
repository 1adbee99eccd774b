"""Errors too large for a deployment that was read right: which runs have them, and the likely causes."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Median error, as a factor, from which runs are questioned. Of 85 published deployments, 12 reach it in TPOT and one of
# 62 in TTFT, which varies more; the largest ran fallback kernels (reports/accuracy.md). FP8 that is taken for 16 bit is
# off by 1.6 in TPOT.
QUESTIONED, QUESTIONED_TTFT = 1.5, 2.0
LOADS = "check their load, and the limits on sequences, tokens of a step and KV blocks"
FAR = 10.0  # error of one run, as a factor, from which it is named
FEWEST = 3  # runs of a group that is questioned apart from the others
CHUNKS = ("check stream_interval, which can be a column of the table: a server that sends several tokens in one "
          "message has longer gaps")
CAUSES = ("check the unit (ms), the GPU, the model, the weights' format (precision or quantization), kv_cache_dtype, "
          "tp, concurrency and client; a setting that is not given is the checkpoint's or the server's default")


def doubts(log_errors: Mapping[str, Floats], groups: Sequence[Mapping[str, str]] = ()) -> list[str]:
    """Return a sentence for each metric whose median error is so large that the runs are questioned.

    Parameters
    ----------
    log_errors : log(predicted / measured) by metric, shape [num_runs]; NaN without one.
    groups : of each run; if all together are not questioned, each value of a group with FEWEST runs is.

    >>> doubts({"tpot_ms": np.log([0.3, 0.3, 0.4])})[0].partition(". ")[0]
    'tpot_ms of 3 runs: median prediction 0.3 times the measured value'
    """
    texts = []
    for metric, errors in log_errors.items():
        whole = _doubt(metric, errors, "")
        texts += [whole] if whole else _by_group(metric, errors, groups)
    return [f"{sentence}. Correctly described runs rarely have such errors: {_causes(sentence)}" for sentence in texts]


def _causes(sentence: str) -> str:
    """Return the likely causes of errors; of the gaps between messages, the tokens that a message has."""
    return f"{CHUNKS}; also {CAUSES}" if sentence.partition(" ")[0].endswith("itl_ms") else CAUSES


def far_off(log_errors: Mapping[str, Floats], ids: Sequence[str]) -> list[str]:
    """Return a sentence for each metric with runs that are off by a factor of FAR or more, which a median hides.

    Parameters
    ----------
    log_errors : as `doubts`.
    ids : of each run.
    """
    texts = []
    for metric, errors in log_errors.items():
        rows = np.flatnonzero(np.abs(np.nan_to_num(errors)) >= math.log(FAR))
        if len(rows):
            named = ", ".join(ids[k] for k in rows[:3]) + (", …" if len(rows) > 3 else "")
            texts.append(f"{metric} of {len(rows):,} of {len(errors):,} runs is off by a factor of {FAR:g} or more "
                         f"({named}): {CHUNKS if metric.endswith('itl_ms') else LOADS}")
    return texts


def _by_group(metric: str, errors: Floats, groups: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the group of the largest median error, if that error is questioned."""
    kinds = dict.fromkeys((name, value) for row in groups for name, value in row.items())
    parts = [(f" with {name} {value}", errors[[row.get(name) == value for row in groups]]) for name, value in kinds]
    large = [(part, name) for name, part in parts if np.isfinite(part).sum() >= FEWEST]
    worst = max(large, key=lambda row: _median_size(row[0]), default=None)
    sentence = _doubt(metric, *worst) if worst else None
    return [sentence] if sentence else []


def _doubt(metric: str, errors: Floats, of: str) -> str | None:
    kept = errors[np.isfinite(errors)]
    limit = QUESTIONED_TTFT if "ttft" in metric else QUESTIONED
    if not len(kept) or _median_size(kept) < math.log(limit):
        return None
    unit = " (a factor of 1,000: seconds, or microseconds?)" if abs(_median_size(kept) - math.log(1e3)) < 1 else ""
    runs = f"{len(kept):,} run{'s' * (len(kept) > 1)}{of}"
    return f"{metric} of {runs}: median prediction {math.exp(np.median(kept)):.3g} times the measured value{unit}"


def _median_size(errors: Floats) -> float:
    kept = errors[np.isfinite(errors)]
    return float(np.median(np.abs(kept))) if len(kept) else 0.0
