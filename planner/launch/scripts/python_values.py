"""Values of a Python text that stand in it: literals, variables, sums, texts put together, and defaults."""

import ast
import json
import operator
import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_ITEMS = 100_000  # of a text or a list, and digits of a number, which a loop may double again and again
PACKAGES = ("vllm", "sglang", "tensorrt_llm", "ray", "torch")
OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.BitOr: operator.or_, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.In: lambda one, all_: one in all_, ast.NotIn: lambda one, all_: one not in all_,
    ast.Is: operator.is_, ast.IsNot: operator.is_not}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "str": str, "int": int, "float": float, "bool": bool, "len": len, "max": max, "min": min, "dict": dict,
    "list": list, "tuple": tuple, "sorted": sorted, "range": range, "shlex.split": shlex.split,
    "shlex.join": shlex.join, "shlex.quote": shlex.quote, "json.dumps": json.dumps, "os.path.join": posixpath.join,
    "Path": str, "pathlib.Path": str}
PLAIN = re.compile(r"(?:[^%]|%[sd%])*")  # of a text before %
FIELDS = re.compile(r"(?:[^{}]|\{\w*\})*")  # of a text with places of format()
CLASS = re.compile(r"[A-Z]|vLLM")
CASTS = ("str", "int", "float", "Path", "pathlib.Path")
VARIABLE_OF = ("os.environ.get", "os.getenv", "environ.get", "getenv")
METHODS = {str: ("join", "split", "strip", "lower", "upper", "replace", "removeprefix", "removesuffix", "startswith",
                 "endswith", "splitlines", "rstrip", "lstrip", "partition", "rpartition"),
           list: ("append", "extend", "insert", "copy"), dict: ("get", "update", "copy", "items", "keys", "values",
                                                                "setdefault")}


@dataclass(frozen=True, slots=True)
class Computed:
    """A value that does not stand in the text; as a word it is a variable without a value."""

    text: str

    def __str__(self) -> str:
        return f"${{{self.text}}}"


@dataclass(frozen=True, slots=True)
class Made:
    """An instance of a class of a package or of the text: an engine, its options, or a part of them.

    Parameters
    ----------
    name : of the class, with its package.
    arguments : by name; those without a name by their place.
    """

    name: str
    arguments: dict[str, Any]


@dataclass(slots=True)
class Values:
    """Variables of a Python text.

    Parameters
    ----------
    call : gives the value of a call of the text's own functions.
    known : values by name; attributes by their dotted text.
    imported : names with their package, by the name in the text.
    defaults : of the script's own options on its command line, by name.
    variables : of the environment that the text sets.
    made : instances of packages' classes since it was emptied, each with its call.
    seen : values of the parts of the statement that is read, by the identity of each.
    consumed : instances that are arguments of others, as the EngineArgs of an LLM.
    """

    call: Callable[[ast.Call, Mapping[str, Any]], Any]
    known: dict[str, Any] = field(default_factory=dict)
    imported: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    made: list[tuple[ast.Call, Made]] = field(default_factory=list)
    consumed: list[Made] = field(default_factory=list)
    seen: dict[int, Any] = field(default_factory=dict)

    def is_environment(self, node: ast.expr) -> bool:
        """Tell whether an expression is the environment's variables, or a method of them."""
        return self.named(node).removeprefix("os.").partition(".")[0] == "environ"

    def named(self, node: ast.expr) -> str:
        """Return the dotted name of an expression with the package that it is imported from."""
        text = ast.unparse(node)
        first, dot, rest = text.partition(".")
        return self.imported.get(first, first) + dot + rest

    def of(self, node: ast.expr | None) -> Any:
        """Return the value of an expression; `Computed` if it does not stand in the text."""
        if node is None:
            return None
        try:
            found = self._of(node)
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError):
            found = Computed(ast.unparse(node))
        self.seen[id(node)] = found
        return found

    def again(self, node: ast.expr) -> Any:
        """Return the value of a part of the statement that is read, without running its calls once more."""
        return self.seen[id(node)] if id(node) in self.seen else self.of(node)

    def _of(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name() | ast.Attribute():
                return self._variable(node)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                return self._items(parts)
            case ast.Dict(keys=keys, values=values):
                return self._table(keys, values)
            case ast.JoinedStr(values=parts):
                return self._text(node, parts)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._either(node, test, body, orelse)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return self._joined(node, op, left, right)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in OPERATORS:
                return self._joined(node, op, left, right)
            case ast.BoolOp(op=op, values=values):
                return self._truth(node, isinstance(op, ast.And), values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                value = self.of(operand)
                return Computed(ast.unparse(node)) if isinstance(value, Computed) else not value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.of(operand)
            case ast.Subscript(value=value, slice=index):
                return self._item(node, value, index)
            case ast.Call():
                return self._called(node)
            case ast.Starred(value=value) | ast.Await(value=value):
                return self.of(value)
        return Computed(ast.unparse(node))

    def _variable(self, node: ast.Name | ast.Attribute) -> Any:
        text = ast.unparse(node)
        if text in self.known:
            return self.known[text]
        if isinstance(node, ast.Attribute):
            holder = self.of(node.value)
            if isinstance(holder, Made) and node.attr in holder.arguments:
                return holder.arguments[node.attr]
            name = self.named(node)
            if name.partition(".")[0] in PACKAGES:  # torch.bfloat16, CapacitySchedulerPolicy.MAX_UTILIZATION
                return node.attr
        return Computed(text)

    def _items(self, parts: list[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for part in parts:
            value = self.of(part)
            if isinstance(part, ast.Starred) and isinstance(value, (list, tuple, dict)):
                found += value
            else:
                found.append(value)
        return found

    def _table(self, keys: list[ast.expr | None], values: list[ast.expr]) -> Any:
        found: dict[Any, Any] = {}
        for key, each in zip(keys, values, strict=True):
            value = self.of(each)
            if key is not None:
                found[str(self.of(key))] = value
            elif isinstance(value, dict):
                found |= value
            elif isinstance(value, Made):
                self.consumed.append(value)
                found |= value.arguments
            elif not self.is_environment(each):
                return Computed(ast.unparse(each))
        return found

    def _text(self, node: ast.expr, parts: list[ast.expr]) -> Any:
        found = ""
        for part in parts:
            if isinstance(part, ast.FormattedValue):
                if part.format_spec is not None:
                    return Computed(ast.unparse(node))
                found += str(self.of(part.value))
            else:
                found += str(self.of(part))
        return found[:MOST_ITEMS]

    def _either(self, node: ast.expr, test: ast.expr, body: ast.expr, orelse: ast.expr) -> Any:
        is_so, one, other = self.of(test), self.of(body), self.of(orelse)
        if isinstance(is_so, Computed):
            return one if one == other else Computed(ast.unparse(node))
        return one if is_so else other

    def _joined(self, node: ast.expr, op: ast.AST, left: ast.expr, right: ast.expr) -> Any:
        one, other = self.of(left), self.of(right)
        if isinstance(one, Made) and isinstance(op, ast.BitOr):  # asdict(engine_args) | {…}
            self.consumed.append(one)
            one = one.arguments
        if isinstance(one, Computed) or isinstance(other, Computed):
            if isinstance(op, ast.Add) and (isinstance(one, str) or isinstance(other, str)):
                return f"{one}{other}"
            return Computed(ast.unparse(node))
        if isinstance(op, ast.Mult) and any(_size(each) > MOST_ITEMS for each in (one, other)):
            return Computed(ast.unparse(node))
        if isinstance(op, ast.Mod) and isinstance(one, str):
            values = tuple(other) if isinstance(other, list) else other
            return one % values if PLAIN.fullmatch(one) else Computed(ast.unparse(node))
        if isinstance(op, ast.Div) and isinstance(one, str):  # Path("/models") / name
            return posixpath.join(one, str(other))
        value = OPERATORS[type(op)](one, other)
        return value if _size(value) <= MOST_ITEMS else Computed(ast.unparse(node))

    def _truth(self, node: ast.expr, is_and: bool, values: list[ast.expr]) -> Any:
        found: Any = is_and
        for each in values:
            found = self.of(each)
            if isinstance(found, Computed):
                return Computed(ast.unparse(node))
            if bool(found) != is_and:
                return found
        return found

    def _item(self, node: ast.expr, value: ast.expr, index: ast.expr) -> Any:
        if self.is_environment(value):
            return self.variables.get(str(self.of(index)), Computed(ast.unparse(node)))
        holder, place = self.of(value), self.of(index)
        return Computed(ast.unparse(node)) if isinstance(place, Computed) else holder[place]

    def arguments(self, node: ast.Call) -> dict[str, Any] | Computed:
        """Return the arguments of a call by name or by their place; `Computed` if some are not known."""
        found: dict[str, Any] = {str(place): value for place, value in enumerate(self._items(node.args))}
        for keyword in node.keywords:
            value = self.of(keyword.value)
            if keyword.arg is not None:
                found[keyword.arg] = value
            elif isinstance(value, Made):
                self.consumed.append(value)
                found |= value.arguments
            elif isinstance(value, dict):
                found |= value
            else:
                return Computed(f"**{ast.unparse(keyword.value)}")
        return found

    def _called(self, node: ast.Call) -> Any:
        name, arguments = self.named(node.func), self.arguments(node)
        if name.partition(".")[0] in PACKAGES and CLASS.match(name.rpartition(".")[2]):
            made = Made(name, {"**": arguments} if isinstance(arguments, Computed) else arguments)
            self.made.append((node, made))
            return made
        if isinstance(arguments, Computed):
            return arguments
        if name in VARIABLE_OF:
            value = self.variables.get(str(arguments.get("0")))
            default = arguments.get("1", arguments.get("default", Computed(ast.unparse(node))))
            return default if value is None else value
        if name.endswith((".parse_args", ".parse_known_args")):
            return Made("parse_args", dict(self.defaults))
        if name in ("asdict", "dataclasses.asdict", "vars") and isinstance(arguments.get("0"), Made):
            return arguments["0"]
        if name in FUNCTIONS:
            return self._built_in(node, name, arguments)
        if isinstance(node.func, ast.Attribute):
            holder, method = self.of(node.func.value), node.func.attr
            if method == "format" and isinstance(holder, str) and FIELDS.fullmatch(holder):
                places = {key: value for key, value in arguments.items() if key.isdigit()}
                return holder.format(*places.values(), **{key: value for key, value in arguments.items()
                                                          if key not in places})
            if any(isinstance(holder, kind) and method in methods for kind, methods in METHODS.items()):
                return self._method(node, holder, method, list(arguments.values()))
        return self.call(node, arguments)

    def _built_in(self, node: ast.Call, name: str, arguments: Mapping[str, Any]) -> Any:
        values = [value for key, value in arguments.items() if key.isdigit()]
        if unknown := next((value for value in values if isinstance(value, Computed)), None):
            return unknown if name in CASTS else Computed(ast.unparse(node))
        return FUNCTIONS[name](*values, **{key: value for key, value in arguments.items() if not key.isdigit()})

    def _method(self, node: ast.Call, holder: Any, method: str, values: list[Any]) -> Any:
        if method == "join" and values and isinstance(values[0], list):
            return holder.join(map(str, values[0]))
        if isinstance(holder, str) and any(isinstance(value, Computed) for value in values):
            return Computed(ast.unparse(node))
        if isinstance(holder, list) and len(holder) > MOST_ITEMS:
            return Computed(ast.unparse(node))
        return getattr(holder, method)(*values)


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in a value: its own, or those of its items."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts_in(item)


def plain(value: Any) -> Any:
    """Return a value as JSON has it: classes of an engine's package as tables, and computed values as variables."""
    match value:
        case Made(name=name, arguments=arguments):
            return {**_decoding_type(name), **{key: plain(each) for key, each in arguments.items()}}
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple() | range():
            return [plain(each) for each in value]
        case bool() | int() | float() | None:
            return value
    return str(value)


def _decoding_type(name: str) -> dict[str, str]:
    """Return the method that a class of TensorRT-LLM drafts by, as its file has it."""
    kind = name.rpartition(".")[2].removesuffix("DecodingConfig")
    return {"decoding_type": kind} if name.endswith("DecodingConfig") else {}


def _size(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else len(value) if isinstance(value, (str, list)) else 0
