"""Engines that a Python text starts: its statements, read in their order with the values that stand in it."""

import ast
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from planner.launch.described import Described
from planner.launch.gpu_offers import Offer
from planner.launch.scripts.decorator_gpus import asked_gpus
from planner.launch.scripts.python_engines import RUN, described_class, described_command, is_engine, stated
from planner.launch.scripts.python_values import Computed, Made, Values, texts_in

MOST_TURNS, MOST_DEPTH = 64, 8  # of a loop, and of functions within functions
Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_launches(text: str) -> list[Described]:
    """Return the engines that a Python text starts; none if it is no Python.

    >>> [launch.words for launch in python_launches("import vllm\\nvllm.LLM(model='m/m', tensor_parallel_size=2)")]
    [['vllm', 'serve', 'm/m', '--tensor-parallel-size=2']]

    Raises
    ------
    UsageError : the arguments of an engine do not stand in the text.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    reader = Reader()
    reader.read(tree)
    around = stated(node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    variables = {name: str(value) for name, value in reader.values.variables.items()}
    found: list[Described] = []
    for line, each, offers in reader.found:
        place, gpus = f"line {line}", offers[0].count if len({offer.count for offer in offers}) == 1 else None
        names = tuple(dict.fromkeys(named for offer in offers for named in offer.names))
        engines = described_class(each, place, gpus, variables, around) if isinstance(each, Made) else (
            described_command(each, place, gpus, variables, around))
        found += [replace(engine, gpu_names=names or engine.gpu_names) for engine in engines]
    return found


@dataclass(slots=True)
class Reader:
    """Reads the statements of a Python text.

    Parameters
    ----------
    values : of its variables.
    functions, classes : that it defines, by name.
    found : engines that it starts, each with its line and the GPUs that its platform may take.
    called : names of functions that it calls.
    depth : of functions within functions.
    gpus : that the platform may take for the function that is read.
    """

    values: Values = field(init=False)
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    found: list[tuple[int, Made | list[str], tuple[Offer, ...]]] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    depth: int = 0
    gpus: tuple[Offer, ...] = ()

    def __post_init__(self) -> None:
        self.values = Values(call=self.call)

    def read(self, tree: ast.Module) -> None:
        """Read a text: its statements, then the functions that it does not call itself."""
        for node in ast.walk(tree):
            if isinstance(node, Function):
                self.functions.setdefault(node.name, node)
            elif isinstance(node, ast.ClassDef):
                self.classes.setdefault(node.name, node)
            elif isinstance(node, ast.ImportFrom):
                self.values.imported |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
            elif isinstance(node, ast.Import):
                self.values.imported |= {each.asname: each.name for each in node.names if each.asname}
        self.block(tree.body)
        for node in self.classes.values():
            self.gpus = asked_gpus(node, self.values)
            methods = [each for each in node.body if isinstance(each, Function)]
            for method in methods:
                if not {method.name, f"{node.name}.{method.name}"} & self.called:
                    self.enter(method, {})
                self.functions.pop(method.name, None)
        for name, function in self.functions.items():
            if name not in self.called:
                self.gpus = asked_gpus(function, self.values)
                self.enter(function, {})

    def block(self, statements: Sequence[ast.stmt], prefix: str = "") -> Any:
        """Read statements, and return the value of the first `return`."""
        for statement in statements:
            returned = self.statement(statement, prefix)
            if returned is not None:
                return returned
        return None

    def statement(self, statement: ast.stmt, prefix: str) -> Any:
        """Read a statement; return the value that it returns from its function."""
        match statement:
            case ast.Assign(targets=targets, value=value):
                found = self.value(value)
                for target in targets:
                    self.assign(target, found, prefix)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assign(target, self.value(value), prefix)
            case ast.AugAssign(target=target, op=op, value=value):
                whole = ast.parse(f"{ast.unparse(target)}", mode="eval").body
                self.assign(target, self.value(ast.copy_location(ast.BinOp(whole, op, value), statement)), prefix)
            case ast.Expr(value=value):
                self.value(value)
            case ast.Return(value=value):
                return self.value(value)
            case ast.If(test=test, body=body, orelse=orelse):
                return self.branch(test, body, orelse)
            case ast.For(target=target, iter=items, body=body) | ast.AsyncFor(target=target, iter=items, body=body):
                self.loop(target, items, body)
            case ast.While(body=body):
                return self.block(body)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                for item in items:
                    self.assign(item.optional_vars or ast.Name("_"), self.value(item.context_expr), "")
                return self.block(body)
            case ast.Try(body=body, orelse=orelse, finalbody=last):
                return self.block([*body, *orelse, *last])
            case ast.ClassDef(name=name, body=body):
                self.block([each for each in body if not isinstance(each, Function)], prefix=f"{name}.")
        return None

    def branch(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> Any:
        """Read the branch that is taken, or both; a variable that both leave with different values has none."""
        is_so = "__main__" in ast.unparse(test) or self.value(test)
        if not isinstance(is_so, Computed):
            return self.block(body if is_so else orelse)
        before = dict(self.values.known)
        returned = self.block(body)
        after = self.values.known
        self.values.known = before
        other = self.block(orelse)
        for name, value in after.items():
            if name not in before:
                self.values.known[name] = value
            elif before[name] != value:
                self.values.known[name] = Computed(name)
        return returned if other is None or returned == other else other if returned is None else Computed("return")

    def loop(self, target: ast.expr, items: ast.expr, body: Sequence[ast.stmt]) -> None:
        """Read a loop for each value, or once if its values are not known."""
        values = self.value(items)
        turns = list(values)[:MOST_TURNS] if isinstance(values, (list, tuple, range, dict)) else [
            Computed(ast.unparse(target))]
        for turn in turns:
            self.assign(target, turn, "")
            self.block(body)

    def assign(self, target: ast.expr, value: Any, prefix: str) -> None:
        """Take an assignment over: of a variable, an attribute, an item, or several."""
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                is_fit = isinstance(value, (list, tuple)) and len(value) == len(parts)
                for part, each in zip(parts, value if is_fit else [Computed(ast.unparse(one)) for one in parts],
                                      strict=True):
                    self.assign(part, each, prefix)
            case ast.Subscript(value=holder, slice=index):
                self.assign_item(holder, self.values.of(index), value)
            case ast.Name() | ast.Attribute():
                self.values.known[prefix + ast.unparse(target)] = value
                made = self.values.of(target.value) if isinstance(target, ast.Attribute) else None
                if isinstance(made, Made) and isinstance(target, ast.Attribute):
                    made.arguments[target.attr] = value

    def assign_item(self, holder: ast.expr, index: Any, value: Any) -> None:
        """Take the assignment of an item over: of the environment, a table or a list."""
        if self.values.is_environment(holder):
            self.values.variables[str(index)] = value
            return
        found = self.values.of(holder)
        if isinstance(found, dict):
            found[str(index)] = value
        elif isinstance(found, list) and isinstance(index, int) and -len(found) <= index < len(found):
            found[index] = value

    def value(self, node: ast.expr | None) -> Any:
        """Return the value of an expression, and list the engines that its calls start."""
        self.values.made.clear()
        outer, self.values.seen = self.values.seen, {}
        found = self.values.of(node)
        made = [(call.lineno, each) for call, each in self.values.made if is_engine(each.name)]
        for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)) if node is not None else ():
            self.noticed(call)
        self.values.seen = outer
        consumed = self.values.consumed
        self.found = [each for each in self.found if not any(each[1] is one for one in consumed)]
        self.found += [(line, each, self.gpus) for line, each in made if not any(each is one for one in consumed)]
        return found

    def noticed(self, call: ast.Call) -> None:
        """Record the effects of a call: a command, an option of the script, variables."""
        name = self.values.named(call.func)
        last = name.rpartition(".")[2]
        if last == "add_argument":
            self.option(call)
        elif last == "set_defaults":
            self.values.defaults |= {str(each.arg): self.values.again(each.value) for each in call.keywords}
        elif last in ("env", "update") or any(keyword.arg in ("env", "envs") for keyword in call.keywords):
            self.environment(call, is_env=last == "env" or self.values.is_environment(call.func))
        if last in RUN:
            arguments = [self.values.again(each) for each in call.args] + [
                self.values.again(each.value) for each in call.keywords if each.arg == "args"]
            words = [word for each in arguments for word in ([each] if isinstance(each, Computed) else texts_in(each))]
            if words:
                self.found.append((call.lineno, [str(word) for word in words], self.gpus))

    def option(self, call: ast.Call) -> None:
        """Take the default of one of the script's own options over."""
        names = [name for each in call.args if isinstance(name := self.values.again(each), str)]
        keywords = {each.arg: self.values.again(each.value) for each in call.keywords}
        whole = keywords.get("dest") or next((name for name in names if name.startswith("--")), "".join(names[:1]))
        default = keywords.get("default", False if keywords.get("action") == "store_true" else None)
        name, is_missing = str(whole).lstrip("-").replace("-", "_"), default is None and bool(keywords.get("required"))
        self.values.defaults[name] = Computed(f"args.{name}") if is_missing else default

    def environment(self, call: ast.Call, *, is_env: bool) -> None:
        """Take the variables over that a call sets: `os.environ.update({…})`, modal's `.env({…})`, `env={…}`."""
        tables = [self.values.again(each) for each in call.args] if is_env else []
        tables += [self.values.again(each.value) for each in call.keywords if each.arg in ("env", "envs")]
        for table in tables:
            if isinstance(table, Mapping):
                self.values.variables |= {str(name): value for name, value in table.items()}

    def call(self, node: ast.Call, arguments: Mapping[str, Any]) -> Any:
        """Return what a function of the text returns for the arguments of a call, or an instance of its class."""
        name = ast.unparse(node.func)
        own = name.removeprefix("self.").removeprefix("cls.")
        made = arguments.get("0")
        if name.endswith(".from_engine_args") and isinstance(made, Made) and "usage_context" in arguments:
            made.arguments["usage_context"] = str(arguments["usage_context"]).lower()
        if name in self.classes:
            given = self.of_class(self.classes[name])
            start = next((each for each in self.classes[name].body if isinstance(each, Function)
                          and each.name == "__init__"), None)
            if start is not None and self.depth < MOST_DEPTH:
                self.called.add(f"{name}.__init__")
                self.enter(start, arguments)
            return Made(name, given | {key: value for key, value in arguments.items() if not key.isdigit()})
        if own not in self.functions or self.depth >= MOST_DEPTH:
            return Computed(ast.unparse(node))
        self.called.add(own)
        return self.enter(self.functions[own], arguments)

    def of_class(self, node: ast.ClassDef) -> dict[str, Any]:
        """Return the attributes that a class has by itself."""
        prefix, known = f"{node.name}.", self.values.known
        return {name.removeprefix(prefix): value for name, value in known.items() if name.startswith(prefix)}

    def enter(self, function: Function, arguments: Mapping[str, Any]) -> Any:
        """Read a function with arguments, by name or place; others have their defaults."""
        given = dict(_parameters(function, arguments, self.values))
        before = dict(self.values.known)
        self.values.known |= given
        self.depth += 1
        made, self.values.made = self.values.made, []
        try:
            return self.block(function.body)
        finally:
            self.depth -= 1
            self.values.made = made
            kept = {name: value for name, value in self.values.known.items() if "." in name}
            self.values.known = before | kept


def _parameters(function: Function, arguments: Mapping[str, Any], values: Values) -> Iterator[tuple[str, Any]]:
    """Yield a function's parameters with their values."""
    own = function.args
    names = [each.arg for each in (*own.posonlyargs, *own.args) if each.arg not in ("self", "cls")]
    defaults = dict(zip(reversed(names), reversed(own.defaults), strict=False))
    defaults |= {each.arg: default for each, default in zip(own.kwonlyargs, own.kw_defaults, strict=True)
                 if default is not None}
    for place, name in enumerate([*names, *(each.arg for each in own.kwonlyargs)]):
        if name in arguments or str(place) in arguments:
            yield name, arguments.get(name, arguments.get(str(place)))
        else:
            yield name, values.of(defaults[name]) if name in defaults else Computed(name)
    if own.kwarg is not None:
        known = {*names, *(each.arg for each in own.kwonlyargs)}
        yield own.kwarg.arg, {key: value for key, value in arguments.items() if key not in known and not key.isdigit()}
