"""Values that a Python text states: literals, names that are bound once to one, and classes of an engine's package."""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from planner.engines import ENGINES

PACKAGES = {"ray", "torch", *(name.partition(".")[0] for engine in ENGINES.values() for name in engine.package.classes)}
CHANGES = ("append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "add_argument")
MOST_STEPS = 1_000_000
ENVIRONMENT = ("os.environ", "environ")


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of a Python text.

    Parameters
    ----------
    nodes : the value of each name that the text binds once and does not change.
    bound : all values that the text binds to each name.
    imported : names with their package, by the name in the text.
    steps : that are left for values, since lists of lists may double again and again.
    """

    nodes: Mapping[str, ast.expr]
    bound: Mapping[str, list[ast.expr]]
    imported: Mapping[str, str]
    steps: Iterator[int] = field(default_factory=lambda: iter(range(MOST_STEPS)))

    def named(self, node: ast.expr) -> str:
        """Return the dotted name of an expression with the package that it is imported from."""
        first, dot, rest = ast.unparse(node).partition(".")
        return self.imported.get(first, first) + dot + rest

    def value(self, node: ast.expr, unread: list[str]) -> Any:
        """Return the value of an expression; parts that the text does not state are `${…}`, and join `unread`.

        Raises
        ------
        RecursionError : values have too many parts.
        """
        if next(self.steps, None) is None:
            raise RecursionError
        match node:
            case ast.Constant(value=value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case ast.Name(id=name) if name in self.nodes:
                return self._without(name).value(self.nodes[name], unread)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                return [self.value(part, unread) for part in parts]
            case ast.Dict(keys=keys, values=values):
                names = (None if key is None else str(self.value(key, unread)) for key in keys)
                return self._table(zip(names, values, strict=True), unread)
            case ast.JoinedStr(values=parts):
                return "".join(str(self.value(part, unread)) for part in parts)
            case ast.FormattedValue(value=value, format_spec=None):
                return self.value(value, unread)
            case ast.Call(func=ast.Name(id="str"), args=[value], keywords=[]):
                return str(self.value(value, unread))
            case ast.Call(func=ast.Name(id="dict"), args=[]):
                return self.arguments(node, unread)
            case ast.Call() if self.named(node.func).partition(".")[0] in PACKAGES and (
                    kind := self.named(node.func).rpartition(".")[2])[:1].isupper():
                drafts = kind.removesuffix("DecodingConfig")
                return ({} if drafts == kind else {"decoding_type": drafts}) | self.arguments(node, unread)
            case ast.Attribute(attr=name) if self.named(node).partition(".")[0] in PACKAGES:
                return name  # torch.bfloat16, CapacitySchedulerPolicy.MAX_UTILIZATION
        unread.append(ast.unparse(node))
        return f"${{{ast.unparse(node)}}}"

    def arguments(self, call: ast.Call, unread: list[str]) -> dict[str, Any]:
        """Return the arguments of a call by name, or by their place."""
        places = {str(place): self.value(value, unread) for place, value in enumerate(call.args)}
        return places | self._table(((each.arg, each.value) for each in call.keywords), unread)

    def _table(self, pairs: Iterator[tuple[str | None, ast.expr]], unread: list[str]) -> dict[str, Any]:
        """Return values by name; a table without a name, as `**options`, is unpacked."""
        table: dict[str, Any] = {}
        for name, node in pairs:
            if name is not None:
                table[name] = self.value(node, unread)
            elif self.named(node) not in ENVIRONMENT:
                inner = self.value(node, unread)
                table |= inner if isinstance(inner, dict) else {}
        return table

    def _without(self, name: str) -> "Constants":
        """Return the constants without one, which its own value cannot name."""
        return replace(self, nodes={key: node for key, node in self.nodes.items() if key != name})


def constants_of(tree: ast.Module) -> Constants:
    """Return the constants of a Python text."""
    bound: dict[str, list[ast.expr]] = {}
    counts, imported = Counter[str](), dict[str, str]()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                counts[name] += 1
            case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store()) | ast.Subscript(
                    value=ast.Name(id=name), ctx=ast.Store()):
                counts[name] += 1
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in CHANGES:
                counts[name] += 1
            case ast.ImportFrom(module=module, names=names):
                imported |= {each.asname or each.name: f"{module}.{each.name}" for each in names}
            case ast.Import(names=names):
                imported |= {each.asname: each.name for each in names if each.asname}
            case ast.Assign(targets=targets, value=value):
                for name, part in (pair for target in targets for pair in _bound(target, value)):
                    bound.setdefault(name, []).append(part)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) | ast.AugAssign(
                    target=ast.Name(id=name), value=value):
                bound.setdefault(name, []).append(value)
    return Constants({name: values[0] for name, values in bound.items() if counts[name] == 1}, bound, imported)


def _bound(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that an assignment binds, each with its value."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for part, each in zip(target.elts, value.elts, strict=True):
            yield from _bound(part, each)
