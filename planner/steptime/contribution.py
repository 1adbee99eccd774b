"""One operator's contribution to a step's time, and the sum over all operators."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.loop.state.count_table import node_counts
from planner.loop.state.engine_state import records
from planner.loop.state.terms import CURVE, STEP_TIME, StepTime


class Contribution(NamedTuple):
    """One operator's contribution.

    Parameters
    ----------
    name : of the operator, as in tables and tests.
    terms : by the field of `STEP_TIME`.
    curve : by the field of `CURVE`: a value for each count of the curve, or one for all.
    """

    name: str
    terms: Mapping[str, Any] = {}
    curve: Mapping[str, Any] = {}


def summed(contributions: Iterable[Contribution]) -> StepTime:
    """Return the sum of contributions, in their order; no tokens run no kernels.

    >>> first = Contribution("qkv_proj", {"prompt_s": 1.0}, {"linear_s": 2.0})
    >>> time = summed([first, Contribution("o_proj", {"prompt_s": 1.5})])
    >>> float(time.terms.prompt_s), time.curve.linear_s[:3].tolist()
    (2.5, [0.0, 2.0, 2.0])
    """
    terms, curve = records(1, STEP_TIME)[0], records(len(node_counts()), CURVE)
    for _, of_terms, of_curve in contributions:
        for name, value in of_terms.items():
            terms[name] += value
        for name, value in of_curve.items():
            curve[name] += value
    curve[0] = np.zeros(1, CURVE)[0]
    curve.tokens_s = tokens_s(curve)
    return StepTime(terms=terms, curve=curve)


def tokens_s(curve: Any) -> NDArray[np.float64]:
    """Return the time that a step takes for its number of tokens, by a record of parts, shape of `node_counts` [s]."""
    total: NDArray[np.float64] = (
        curve.linear_s + curve.experts_s + curve.activations_s + curve.collectives_s + curve.draft_s)
    return total
