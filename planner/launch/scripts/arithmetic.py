"""Arithmetic of a shell: whole numbers with + - * / % and brackets."""

import ast
from collections.abc import Callable, Mapping

OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda one, two: one + two, ast.Sub: lambda one, two: one - two, ast.Mult: lambda one, two: one * two,
    ast.Div: lambda one, two: int(one / two), ast.Mod: lambda one, two: one - two * int(one / two)}
MOST_LETTERS = 200  # of an expression


def sum_of(text: str) -> int | None:
    """Return the value of an expression, None if it has none. Division cuts towards zero, as in a shell.

    >>> sum_of("2 * (8 - 1) / 4"), sum_of("8 /"), sum_of("1 / 0")
    (3, None, None)
    """
    try:
        return None if len(text) > MOST_LETTERS else _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, OverflowError, RecursionError):
        return None


def _value(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            negated = _value(operand)
            return None if negated is None else -negated
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
            one, two = _value(left), _value(right)
            return None if one is None or two is None else OPERATORS[type(operator)](one, two)
    return None
