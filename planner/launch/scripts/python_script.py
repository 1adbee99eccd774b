"""Engines that a Python text starts with values that it states: by a class of their package, or by a command."""

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.errors import UsageError
from planner.launch.beginnings import find_launch, split_words, stated
from planner.launch.described import Described
from planner.launch.gpu_offers import SMALLEST, Offer, offer_of
from planner.launch.scripts.python_constants import CHANGES, ENVIRONMENT, Constants, constants_of
from planner.launch.scripts.python_engines import described_class, described_command, is_engine

# Functions that run a command: of subprocess, os, asyncio, modal's images, and SGLang's documents.
RUN = ("run", "Popen", "call", "check_call", "check_output", "system", "popen", "execv", "execvp", "getoutput",
       "create_subprocess_exec", "create_subprocess_shell", "launch_server_cmd", "execute_shell_command", "entrypoint",
       "cmd")
LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
PARTS = (ast.BinOp, ast.Starred, ast.AugAssign, ast.IfExp)  # of a command that the text puts together
MOST_WORDS = 1_000  # of a command; a list may have more
REMEDY = "give the server's log, or the command"


def python_launches(text: str, where: str = "the text") -> list[Described]:
    """Return the engines that a Python text starts; none if it is no Python.

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
            tree = ast.parse(text)
        constants = constants_of(tree)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    try:
        return _Script(where, tree, constants, parents).launches()
    except RecursionError:  # of names with thousands of parts, and lists of lists
        return []


@dataclass(frozen=True, slots=True)
class _Script:
    """A Python text: its tree, its constants, and the parent of each node."""

    where: str
    tree: ast.Module
    constants: Constants
    parents: Mapping[ast.AST, ast.AST]

    def launches(self) -> list[Described]:
        """Return the engines in the order of their lines."""
        nodes = list(ast.walk(self.tree))
        around = stated(node.value for node in nodes if isinstance(node, ast.Constant))
        context = next((self.constants.value(each.value, []) for node in nodes if isinstance(node, ast.Call)
                        and ast.unparse(node.func).endswith(".from_engine_args") for each in node.keywords
                        if each.arg == "usage_context"), None)
        around |= {} if context is None else {"usage_context": str(context).lower()}
        variables = dict(pair for node in nodes for pair in self.variables(node))
        launches: list[tuple[int, Described]] = []
        for node in nodes:
            engines = list(self.engines(node, variables, around))
            if engines and any(isinstance(above, LOOPS) for above in self.above(node)):
                raise self.refusal(node, "starts an engine in a loop")
            offers = self.offers(node) if engines else ()
            gpus = offers[0].count if len({offer.count for offer in offers}) == 1 else None
            names = tuple(dict.fromkeys(named for offer in offers for named in offer.names))
            launches += [(getattr(node, "lineno", 0), replace(
                engine, gpus=gpus, gpu_names=names or engine.gpu_names)) for engine in engines]
        return [engine for _, engine in sorted(launches, key=lambda launch: launch[0])]

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, from the nearest on."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def refusal(self, node: ast.AST, why: str) -> UsageError:
        """Return the error for a launch that the text does not state."""
        return UsageError(f"--from-command {self.where}: line {getattr(node, 'lineno', 1)} {why}, and Python is not "
                          f"run; {REMEDY}")

    def engines(self, node: ast.AST, variables: Mapping[str, str], around: Mapping[str, Any]) -> Iterator[Described]:
        """Yield the engines that a node starts.

        Raises
        ------
        UsageError : the text computes their arguments.
        """
        unread: list[str] = []
        if isinstance(node, ast.Call) and is_engine(name := self.constants.named(node.func)):
            arguments = self.constants.arguments(node, unread)
            if unread:
                raise self.refusal(node, f"computes {unread[0]}, an argument of {name.rpartition('.')[2]}")
            yield from described_class(name, arguments, f"line {node.lineno}", variables, around)
            return
        place = f"line {getattr(node, 'lineno', 1)}"
        engines = list(described_command(self.words(node, unread), place, variables, around))
        if engines and unread:
            raise self.refusal(node, f"computes {unread[0]}, a part of a command")
        yield from engines

    def words(self, node: ast.AST, unread: list[str]) -> list[str]:
        """Return the words of a command: a list that launches an engine, or the texts that a function runs.

        Raises
        ------
        UsageError : the text puts the command together.
        """
        if isinstance(node, ast.List | ast.Tuple):
            if len(node.elts) > MOST_WORDS:
                return []
            words = [str(self.constants.value(part, unread)) for part in node.elts]
            if not _launches(words):
                return []
            if not self.is_whole(node):
                raise self.refusal(node, "puts a command together")
            return words
        if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] not in RUN:
            return []
        arguments = [*node.args, *(each.value for each in node.keywords if each.arg == "args")]
        if any(_launches([text]) for argument in arguments for text in self.texts(argument)):
            raise self.refusal(node, "puts a command together")
        return [value for each in arguments if isinstance(value := self.constants.value(each, unread), str)]

    def is_whole(self, node: ast.List | ast.Tuple) -> bool:
        """Tell whether a list is a whole command, which the text does not change later."""
        parent, constants = self.parents[node], self.constants
        names = {name for name, values in constants.bound.items() if any(value is node for value in values)}
        if isinstance(parent, PARTS) or (isinstance(parent, ast.Assign | ast.AnnAssign) and not names):
            return False
        is_added = isinstance(parent, ast.Call) and getattr(parent.func, "attr", "") in CHANGES
        return not is_added and names <= constants.nodes.keys()

    def texts(self, node: ast.expr) -> Iterator[str]:
        """Yield the texts from which an expression computes another one; a literal has none."""
        unread: list[str] = []
        self.constants.value(node, unread)
        if not unread or isinstance(node, ast.JoinedStr):
            return
        parts = list(ast.walk(node))
        for name in [part.id for part in parts if isinstance(part, ast.Name)]:
            parts += [part for value in self.constants.bound.get(name, ()) for part in ast.walk(value)]
        yield from (part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)
                    and " " in part.value)

    def variables(self, node: ast.AST) -> Iterator[tuple[str, str]]:
        """Yield the variables of the environment that a node sets: `os.environ["A"] = …`, `.env({…})`, `env={…}`."""
        tables: list[ast.expr] = []
        match node:
            case ast.Assign(targets=[ast.Subscript(value=holder, slice=name)], value=value) if (
                    self.constants.named(holder) in ENVIRONMENT):
                tables = [ast.Dict([name], [value])]
            case ast.Call(func=func, args=arguments, keywords=keywords):
                tables = arguments if ast.unparse(func).endswith((".env", "environ.update")) else []
                tables = [*tables, *(each.value for each in keywords if each.arg in ("env", "envs"))]
        for table in (self.constants.value(each, []) for each in tables):
            yield from ((name, str(value)) for name, value in (table.items() if isinstance(table, dict) else ()))

    def offers(self, node: ast.AST) -> tuple[Offer, ...]:
        """Return the GPUs that decorators around a node ask for: Modal's `gpu`, and BentoML's `resources`."""
        return tuple(offer for above in self.above(node) for decorator in getattr(above, "decorator_list", ())
                     for keyword in getattr(decorator, "keywords", ()) for offer in self.offers_of(keyword))

    def offers_of(self, keyword: ast.keyword) -> Iterator[Offer]:
        """Yield the GPUs of an argument: `gpu="H100:2"`, `gpu=["H200", "H100"]`, `gpu=modal.gpu.A100(size="80GB")`."""
        node = self.constants.nodes.get(getattr(keyword.value, "id", ""), keyword.value)
        value = self.constants.value(node, [])
        if keyword.arg == "gpu" and isinstance(node, ast.Call) and ".gpu." in (name := ast.unparse(node.func)):
            arguments = self.constants.arguments(node, [])
            size = f"-{arguments['size']}" if "size" in arguments else ""
            yield offer_of(f"{name.rpartition('.')[2]}{size}:{arguments.get('count', 1)}", SMALLEST)
        elif keyword.arg == "gpu":
            yield from (offer_of(text, SMALLEST) for text in (value if isinstance(value, list) else [value])
                        if isinstance(text, str) and not text.startswith("$"))
        elif keyword.arg == "resources" and isinstance(value, dict) and "gpu" in value:
            yield offer_of(f"{value.get('gpu_type', '')}:{value['gpu']}")


def _launches(words: list[str]) -> bool:
    """Tell whether words, or the words of a text, launch an engine."""
    try:
        return bool(words) and find_launch(words if len(words) > 1 else split_words(words[0])) is not None
    except UsageError:  # a quote is open
        return False
