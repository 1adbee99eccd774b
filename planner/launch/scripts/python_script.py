"""Engines that a Python text starts with values that it states: by a class of their package, or by a command.

Literals are read, and names that are bound once to one; the rest is refused with its line.
"""

import ast
import shlex
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import yaml

from planner.engines import ENGINES
from planner.errors import UsageError
from planner.launch.beginnings import find_launch, shell_script_of, split_words, stated
from planner.launch.described import Described
from planner.launch.manifests.document_values import count_of, flags_of
from planner.launch.manifests.option_files import of_ray
from planner.launch.named_gpus import SMALLEST, GpuOffer, offer_of
from planner.launch.scripts.shell_script import script_launches

PACKAGES = {"ray", "torch", *(name.partition(".")[0] for engine in ENGINES.values() for name in engine.package.classes)}
RAY_SERVE, RAY_DATA = "LLMConfig", "vLLMEngineProcessorConfig"
FILE = "the arguments"  # of a class, as the engine's file has them
CHANGES = ("append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "add_argument")
ENVIRONMENT = ("os.environ", "environ")
# Functions that run a command: of subprocess, os, asyncio, modal's images, and SGLang's documents.
RUN = ("run", "Popen", "call", "check_call", "check_output", "system", "popen", "execv", "execvp", "getoutput",
       "create_subprocess_exec", "create_subprocess_shell", "launch_server_cmd", "execute_shell_command", "entrypoint",
       "cmd")
LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
PARTS = (ast.BinOp, ast.Starred, ast.AugAssign, ast.IfExp, ast.Attribute)  # of a command that the text puts together
MOST_WORDS = 1_000  # of a command
REMEDY = "give the server's log, or the command"


@dataclass(frozen=True, slots=True)
class _PythonText:
    """A Python text.

    Parameters
    ----------
    where : it is called so in messages.
    nodes : of its tree; parents : of each node.
    once : the value of each name that the text binds once and does not change.
    literals : the names in `once` whose value has no other such name in it.
    imported : names with their package, by the name in the text.
    """

    where: str
    nodes: Sequence[ast.AST]
    parents: Mapping[ast.AST, ast.AST]
    once: Mapping[str, ast.expr]
    literals: Set[str]
    imported: Mapping[str, str]

    def named(self, node: ast.expr) -> str:
        """Return the dotted name of an expression with the package that it is imported from."""
        first, dot, rest = ast.unparse(node).partition(".")
        return self.imported.get(first, first) + dot + rest

    def is_of_package(self, node: ast.expr) -> bool:
        """Tell whether a name is one of an engine's package."""
        return self.named(node).partition(".")[0] in PACKAGES

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, from the nearest on."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def value(self, node: ast.expr, unread: list[str]) -> Any:
        """Return the value of an expression; parts that the text does not state are `${…}`, and join `unread`."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case ast.Name(id=name) if name in self.literals:
                return self.value(self.once[name], unread)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                return [self.value(part, unread) for part in parts]
            case ast.Dict(keys=keys, values=values):
                names = (None if key is None else str(self.value(key, unread)) for key in keys)
                return self.table(zip(names, values, strict=True), unread)
            case ast.JoinedStr(values=parts):
                return "".join(str(self.value(part, unread)) for part in parts)
            case ast.FormattedValue(value=value, format_spec=None):
                return self.value(value, unread)
            case ast.Call(func=ast.Name(id="str"), args=[value], keywords=[]):
                return str(self.value(value, unread))
            case ast.Call(func=ast.Name(id="dict"), args=[]):
                return self.arguments(node, unread)
            case ast.Call(func=func) if self.is_of_package(func) and (
                    kind := self.named(func).rpartition(".")[2])[:1].isupper():
                drafts = kind.removesuffix("DecodingConfig")
                return ({} if drafts == kind else {"decoding_type": drafts}) | self.arguments(node, unread)
            case ast.Attribute(attr=name) if self.is_of_package(node):
                return name  # torch.bfloat16, CapacitySchedulerPolicy.MAX_UTILIZATION
        unread.append(ast.unparse(node))
        return f"${{{ast.unparse(node)}}}"

    def arguments(self, call: ast.Call, unread: list[str]) -> dict[str, Any]:
        """Return the arguments of a call by name, or by their place."""
        places = {str(place): self.value(value, unread) for place, value in enumerate(call.args)}
        return places | self.table(((each.arg, each.value) for each in call.keywords), unread)

    def table(self, pairs: Iterable[tuple[str | None, ast.expr]], unread: list[str]) -> dict[str, Any]:
        """Return values by name; a table without a name, as `**options`, is unpacked."""
        table: dict[str, Any] = {}
        for name, node in pairs:
            if name is not None:
                table[name] = self.value(node, unread)
            elif self.named(node) not in ENVIRONMENT:
                inner = self.value(node, unread)
                table |= inner if isinstance(inner, dict) else {}
        return table


def python_launches(text: str, where: str = "the text") -> list[Described]:
    """Return the engines that a Python text starts, in the order of their lines; none if it is no Python.

    Parameters
    ----------
    where : the text is called so in messages.

    >>> [launch.words for launch in python_launches("import vllm\\nvllm.LLM(model='m/m', tensor_parallel_size=2)")]
    [['vllm', 'serve', 'm/m', '--tensor-parallel-size=2']]

    Raises
    ------
    UsageError : the text computes an argument of an engine, or starts engines in a loop.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            source = _read(ast.parse(text), where)
        variables = dict(pair for node in source.nodes for pair in _variables(source, node))
        around = stated(node.value for node in source.nodes if isinstance(node, ast.Constant)) | _usage_context(source)
        launches = [(node, engine) for node in source.nodes for engine in _engines(source, node, variables, around)]
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # no Python, or values with thousands of parts
        return []
    return [engine for _, engine in sorted(launches, key=lambda launch: getattr(launch[0], "lineno", 0))]


def _read(tree: ast.Module, where: str) -> _PythonText:
    """Return a text with the values that it binds to names."""
    nodes, changes = list(ast.walk(tree)), Counter[str]()
    bound, imported = dict[str, ast.expr](), dict[str, str]()
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name) | ast.Attribute(
                    value=ast.Name(id=name), ctx=ast.Store()) | ast.Subscript(
                    value=ast.Name(id=name), ctx=ast.Store()):
                changes[name] += 1
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in CHANGES:
                changes[name] += 1
            case ast.ImportFrom(module=module, names=names):
                imported |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in names}
            case ast.Import(names=names):
                imported |= {alias.asname: alias.name for alias in names if alias.asname}
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(
                    target=ast.Name(id=name), value=ast.expr() as value):
                bound[name] = value
    parents = {child: parent for parent in nodes for child in ast.iter_child_nodes(parent)}
    once = {name: value for name, value in bound.items() if changes[name] == 1}
    literals = {name for name, value in once.items() if not any(
        isinstance(part, ast.Name) and part.id in bound for part in ast.walk(value))}
    return _PythonText(where, nodes, parents, once, literals, imported)


def _variables(text: _PythonText, node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the variables of the environment that a node sets: `os.environ["A"] = …`, `.env({…})`, `env={…}`."""
    tables: list[ast.expr] = []
    match node:
        case ast.Assign(targets=[ast.Subscript(value=holder, slice=name)], value=value) if (
                text.named(holder) in ENVIRONMENT):
            tables = [ast.Dict([name], [value])]
        case ast.Call(func=func, args=arguments, keywords=keywords):
            tables = arguments if ast.unparse(func).endswith((".env", "environ.update")) else []
            tables = [*tables, *(each.value for each in keywords if each.arg in ("env", "envs"))]
    for table in (text.value(each, []) for each in tables):
        yield from ((name, str(value)) for name, value in (table.items() if isinstance(table, dict) else ()))


def _usage_context(text: _PythonText) -> dict[str, str]:
    """Return the context that the text gives an engine of vLLM, which has default limits by it."""
    return next(({"usage_context": str(text.value(each.value, [])).lower()} for node in text.nodes
                 if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".from_engine_args")
                 for each in node.keywords if each.arg == "usage_context"), {})


def _engines(text: _PythonText, node: ast.AST, variables: Mapping[str, str], around: Mapping[str, Any]
             ) -> Iterator[Described]:
    """Yield the engines that a node starts, by a class or by a command, which may be a shell's script.

    Parameters
    ----------
    variables : of the environment that the text sets.
    around : options that the rest of the text states.

    Raises
    ------
    UsageError : the text computes their arguments, or starts them in a loop.
    """
    unread: list[str] = []
    if isinstance(node, ast.Call) and text.is_of_package(node.func) and (
            engines := _of_class(text.named(node.func), text.arguments(node, unread), variables, around)):
        part = f"an argument of {text.named(node.func).rpartition('.')[2]}"
    else:
        words, part = _words(text, node, unread), "a part of a command"
        script, arguments = shell_script_of(words) or (words[0] if len(words) == 1 else shlex.join(words), ())
        options = {name: value for name, value in around.items() if name != "usage_context"}
        engines = [replace(engine, options=options) for engine in script_launches(script, variables, arguments)]
    if engines and unread:
        raise _refusal(text, node, f"computes {unread[0]}, {part}")
    if engines and any(isinstance(each, LOOPS) for each in text.above(node)):
        raise _refusal(text, node, "starts an engine in a loop")
    offers = list(_offers(text, node)) if engines else []
    gpus = offers[0].count if len({offer.count for offer in offers}) == 1 else None
    names = tuple(dict.fromkeys(named for offer in offers for named in offer.names))
    yield from (replace(engine, place=f"line {getattr(node, 'lineno', 1)}", gpus=gpus,
                        gpu_names=names or engine.gpu_names) for engine in engines)


def _refusal(text: _PythonText, node: ast.AST, why: str) -> UsageError:
    """Return the error for a launch that the text does not state."""
    return UsageError(f"--from-command {text.where}: line {getattr(node, 'lineno', 1)} {why}, and Python is not run; "
                      f"{REMEDY}")


def _of_class(name: str, arguments: dict[str, Any], variables: Mapping[str, str], around: Mapping[str, Any]
              ) -> list[Described]:
    """Return the engines that a class of a package starts, as commands with the same options; none if it starts none.

    Parameters
    ----------
    arguments : of its call, by name or by their place.
    """
    package, last = name.partition(".")[0], name.rpartition(".")[2]
    if package == "ray" and last.endswith(RAY_SERVE):
        return list(of_ray({"llm_configs": [arguments]}))
    if package == "ray" and last.endswith(RAY_DATA):  # whose engines are replicas
        words = ["vllm", "serve", str(arguments.get("model_source")), *flags_of(arguments.get("engine_kwargs") or {})]
        return [Described(words=words, place=last, replicas=count_of(arguments.get("concurrency")),
                          options={"usage_context": "engine_context"})]
    engine = next((engine for engine in ENGINES.values() if f"{package}.{last}" in engine.package.classes), None)
    if engine is None:
        return []
    dialect, files = engine.dialect, {}
    model = next((arguments.pop(key) for key in ("model", "model_path", "0") if key in arguments), None)
    options = {key: value for key, value in arguments.items() if not key.isdigit()}
    if engine.package.class_backends:
        backend = next(value for part, value in engine.package.class_backends.items() if part in name)
        files = {FILE: yaml.safe_dump({"backend": backend, **options}, sort_keys=False)}
    words = [*(dialect.command if model is None else (*dialect.launch, str(model))),
             *([dialect.files[0], FILE] if files else flags_of(options))]
    known = {name: value for name, value in variables.items() if name in dialect.known_variables}
    return [Described(words=words, place=last, files=files, variables=known,
                      options={**engine.package.classes[f"{package}.{last}"], **around})]


def _words(text: _PythonText, node: ast.AST, unread: list[str]) -> list[str]:
    """Return the words of a command: a list that launches an engine, or the texts that a function runs.

    Raises
    ------
    UsageError : the text puts the command together.
    """
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) if len(parts) <= MOST_WORDS:
            words = [str(text.value(part, unread)) for part in parts]
        case ast.Constant(value=str() as value) if " " in value and not _is_whole(text, node):
            words = [value]
        case ast.Call(func=func, args=arguments, keywords=keywords) if ast.unparse(func).rpartition(".")[2] in RUN:
            arguments = [*arguments, *(keyword.value for keyword in keywords if keyword.arg == "args")]
            return [value for argument in arguments if isinstance(value := text.value(argument, unread), str)]
        case _:
            return []
    if _launches(words) and not _is_whole(text, node):
        raise _refusal(text, node, "puts a command together")
    return words if _launches(words) else []


def _is_whole(text: _PythonText, node: ast.AST) -> bool:
    """Tell whether a list or a text is a whole command, which the text does not change later."""
    match text.parents[node]:
        case ast.Assign() | ast.AnnAssign():
            return any(value is node for value in text.once.values())
        case ast.Call(func=ast.Attribute(attr=method)):
            return method not in CHANGES
        case ast.JoinedStr() as parent:
            return not isinstance(text.parents[parent], ast.Assign)
        case parent:
            return not isinstance(parent, PARTS)


def _launches(words: list[str]) -> bool:
    """Tell whether words, or the words of a text, launch an engine."""
    try:
        return bool(words) and find_launch(words if len(words) > 1 else split_words(words[0])) is not None
    except UsageError:  # a quote is open
        return False


def _offers(text: _PythonText, node: ast.AST) -> Iterator[GpuOffer]:
    """Yield the GPUs that decorators around a node ask for: Modal's `gpu="H100:2"` or list, BentoML's `resources`."""
    for keyword in [keyword for above in text.above(node) for decorator in getattr(above, "decorator_list", ())
                    for keyword in getattr(decorator, "keywords", ())]:
        value = text.value(keyword.value, [])
        if keyword.arg == "gpu":
            yield from (offer_of(each, SMALLEST) for each in (value if isinstance(value, list) else [value])
                        if isinstance(each, str) and not each.startswith("$"))
        elif keyword.arg == "resources" and isinstance(value, dict) and "gpu" in value:
            yield offer_of(f"{value.get('gpu_type', '')}:{value['gpu']}")
