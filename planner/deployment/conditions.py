"""Conditions of pools: which requests each pool accepts, and the routes that follow for a trace."""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import FleetError, UsageError
from planner.traces import Trace

FIELDS = ("input_tokens", "priority", "tenant", "adapter")  # columns of a trace that conditions read
NUMBERS = ("input_tokens", "priority")  # of these, the others are text
THRESHOLD = "threshold"  # the word for a number that is left open
COMPARISONS: Mapping[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==",
                                              ast.NotEq: "!=", ast.In: "in", ast.NotIn: "not in"}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
HOLDS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "in": lambda column, values: column.is_in(list(values)),
    "not in": lambda column, values: ~column.is_in(list(values))}
EXAMPLES = "input_tokens < 8192, tenant == 'gold', priority <= 1, adapter in ('a', 'b'), or several joined by and"


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a request's column with a value.

    Parameters
    ----------
    field : column of the trace.
    comparison : one of `COMPARISONS`.
    value : a number, text, or several of them; None for a threshold that is left open.
    """

    field: str
    comparison: str
    value: float | str | tuple[float | str, ...] | None

    def __str__(self) -> str:
        return f"{self.field} {self.comparison} {THRESHOLD if self.value is None else repr(self.value)}"


Accepts = tuple[Condition, ...]  # of a pool: all must hold; empty for every request


def parse_conditions(text: Any) -> Accepts:
    """Read the conditions of a pool.

    >>> parse_conditions("512 <= input_tokens < 8192 and tenant == 'gold'")[1]
    Condition(field='input_tokens', comparison='<', value=8192)

    Raises
    ------
    UsageError : the text is no comparison of a known field with a value of its kind, nor several joined by `and`.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (AttributeError, SyntaxError, ValueError):
        raise UsageError(f"accepts = {text!r}: cannot be read; give a condition, as in {EXAMPLES}") from None
    is_joined = isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And)
    parts: list[ast.expr] = tree.values if isinstance(tree, ast.BoolOp) and is_joined else [tree]
    return tuple(condition for part in parts for condition in _comparisons(text, part))


def _comparisons(text: str, part: ast.expr) -> list[Condition]:
    """Return the comparisons of a part, two for one like `1 < x < 3`."""
    if not isinstance(part, ast.Compare):
        raise UsageError(f"accepts = {text!r}: {ast.unparse(part)} is no condition; give conditions as in {EXAMPLES}")
    sides = [part.left, *part.comparators]
    return [_condition(text, left, comparison, right)
            for left, comparison, right in zip(sides, part.ops, sides[1:], strict=False)]


def _condition(text: str, left: ast.expr, comparison: ast.cmpop, right: ast.expr) -> Condition:
    """Return one comparison, with the field on its left."""
    sign = COMPARISONS.get(type(comparison), "")
    if sign in MIRRORED and not _is_field(left) and isinstance(right, ast.Name):
        left, sign, right = right, MIRRORED[sign], left
    name = left.id if isinstance(left, ast.Name) else ast.unparse(left)
    if name not in FIELDS:
        raise UsageError(f"accepts = {text!r}: {name} is no field of requests; must be {', '.join(FIELDS)}")
    is_number = name in NUMBERS
    if not sign or not (is_number or sign in ("==", "!=", "in", "not in")):
        raise UsageError(f"accepts = {text!r}: {name} must be compared with "
                         f"{', '.join(HOLDS) if is_number else '==, !=, in, not in'}")
    is_threshold = isinstance(right, ast.Name) and right.id == THRESHOLD
    if is_threshold and name == "input_tokens" and sign in ("<", "<=", ">", ">="):
        return Condition(name, sign, None)
    try:
        value = ast.literal_eval(right)
    except (ValueError, TypeError, SyntaxError):
        raise UsageError(f"accepts = {text!r}: {ast.unparse(right)} is no value; give a number or text in quotes, as "
                         f"in {EXAMPLES}") from None
    is_several = sign in ("in", "not in")
    values = tuple(value) if isinstance(value, tuple | list) and is_several else (value,)
    kinds = (int, float) if is_number else (str,)
    if is_several != isinstance(value, tuple | list) or not all(type(item) in kinds for item in values):
        raise UsageError(f"accepts = {text!r}: {name} {sign} {ast.unparse(right)}: must be "
                         f"{'several, each ' * is_several}{'a number' if is_number else 'text in quotes'}")
    return Condition(name, sign, values if is_several else value)


def _is_field(side: ast.expr) -> bool:
    return isinstance(side, ast.Name) and side.id in FIELDS


def described(accepts: Accepts) -> str | None:
    """Return conditions as text; None if there are none.

    >>> described(parse_conditions("tenant == 'gold' and 9 > input_tokens"))
    "tenant == 'gold' and input_tokens < 9"
    """
    return " and ".join(map(str, accepts)) or None


def is_open(accepts: Accepts) -> bool:
    """Tell whether a pool's conditions leave their threshold open."""
    return any(condition.value is None for condition in accepts)


def with_threshold(accepts: Accepts, threshold: int) -> Accepts:
    """Return conditions with a number for the threshold that they leave open [tokens]."""
    return tuple(replace(condition, value=threshold) if condition.value is None else condition
                 for condition in accepts)


def accepted(accepts: Accepts, trace: Trace) -> NDArray[np.bool_]:
    """Return which requests of a trace meet all conditions, shape [num_requests].

    A request without a tenant or an adapter has the empty text, one without a priority 0, as for the engines.

    Raises
    ------
    UsageError : a threshold is open, or the trace lacks a column.
    """
    meets = np.ones(trace.num_requests, bool)
    for condition in accepts:
        if condition.value is None:
            raise UsageError(f"accepts = '{condition}': the threshold is open; give a number, or let planner size "
                             f"--fleet find it")
        if condition.field not in trace.requests.columns:
            raise UsageError(f"accepts = '{condition}': {trace.source} has no column {condition.field}; name the "
                             f"column (--column {condition.field}=…), or leave the condition out")
        column = trace.requests[condition.field]
        column = column.cast(pl.Float64).fill_null(0.0) if condition.field in NUMBERS else (
            column.cast(pl.String).fill_null(""))
        meets &= HOLDS[condition.comparison](column, condition.value).to_numpy()
    return meets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Routes:
    """The routes of a trace's requests: requests of one route are accepted by the same pools.

    Parameters
    ----------
    pools : of each route the pools that accept its requests, by number.
    of_request : the route of each request, shape [num_requests]; empty if there is one route.
    """

    pools: tuple[tuple[int, ...], ...]
    of_request: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def is_one(self) -> bool:
        """Whether all requests have the same route."""
        return len(self.pools) == 1

    def rows(self, route: int, num_requests: int) -> NDArray[np.int64]:
        """Return the requests of a route, of `num_requests` in all, by number."""
        return np.arange(num_requests) if self.is_one else np.flatnonzero(self.of_request == route)


def routes_of(accepts: Sequence[Accepts], names: Sequence[str], trace: Trace, where: str) -> Routes:
    """Return the routes of a trace through pools that take requests from the router.

    Parameters
    ----------
    accepts, names : of the pools.
    where : file of the pools, for the errors.

    Raises
    ------
    FleetError : no pool accepts some request; a condition cannot be told of the trace.
    """
    if not any(accepts):
        return Routes(pools=(tuple(range(len(accepts))),))
    meets = np.empty((len(accepts), trace.num_requests), bool)
    for k, conditions in enumerate(accepts):
        try:
            meets[k] = accepted(conditions, trace)
        except UsageError as error:
            raise FleetError(f"{where}: pool {names[k]!r}: {error}") from error
    refused = np.flatnonzero(~meets.any(axis=0))
    if len(refused):
        raise FleetError(f"{where}: {_refusal(accepts, trace, refused)}")
    route = np.zeros(trace.num_requests, np.int64)
    for met in meets:
        _, route = np.unique(2 * route + met, return_inverse=True)
    _, first = np.unique(route, return_index=True)
    pools = tuple(tuple(np.flatnonzero(meets[:, i]).tolist()) for i in first)
    return Routes(pools=pools) if len(pools) == 1 else Routes(pools=pools, of_request=route)


def _refusal(accepts: Sequence[Accepts], trace: Trace, refused: NDArray[np.int64]) -> str:
    """Say which request no pool accepts, by its values, and the remedy."""
    i, table = int(refused[0]), trace.requests
    named = dict.fromkeys(condition.field for conditions in accepts for condition in conditions)
    values = ", ".join(f"{name} = {table[name][i]!r}" for name in named)
    more = f", nor {len(refused) - 1:,} others of {trace.num_requests:,}" if len(refused) > 1 else ""
    return (f"no pool accepts request {table['request_id'][i]!r} of {trace.source} (number {i + 1:,} by arrival: "
            f"{values}){more}; widen a pool's accepts, or add a pool without accepts")


def check_contexts(where: str, names: Sequence[str], contexts: Sequence[int], routes: Routes) -> None:
    """Raise FleetError if pools that accept the same requests differ in their context limit.

    Parameters
    ----------
    contexts : max_model_len of the pools [tokens].
    """
    for pools in routes.pools:
        for k in pools[1:]:
            if contexts[k] != contexts[pools[0]]:
                raise FleetError(
                    f"{where}: max_model_len is {contexts[pools[0]]} in pool {names[pools[0]]!r} and {contexts[k]} in "
                    f"pool {names[k]!r}, and both accept the same requests; give --max-model-len for all, or let "
                    f"accepts tell their requests apart")
