"""GPUs that a Python text asks its platform for in a decorator: Modal's, and BentoML's."""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from planner.launch.gpu_offers import SMALLEST, Offer, offer_of
from planner.launch.scripts.python_values import Computed, Values


def asked_gpus(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, values: Values) -> tuple[Offer, ...]:
    """Return the GPUs that the decorators of a function or class ask for; of a list Modal takes any."""
    return tuple(offer for decorator in node.decorator_list if isinstance(decorator, ast.Call)
                 for keyword in decorator.keywords for offer in _offers(keyword, values))


def _offers(keyword: ast.keyword, values: Values) -> Iterator[Offer]:
    """Yield the GPUs of an argument: `gpu="H100:2"`, `gpu=["H200", "H100"]`, `gpu=modal.gpu.A100(size="80GB")`."""
    value = values.of(keyword.value)
    if keyword.arg == "gpu":
        texts = [_of_class(each.text, values) if isinstance(each, Computed) else each
                 for each in (value if isinstance(value, list | tuple) else [value])]
        yield from (offer_of(text, SMALLEST) for text in texts if isinstance(text, str))
    elif keyword.arg == "resources" and isinstance(value, Mapping) and "gpu" in value:
        yield offer_of(f"{value.get('gpu_type', '')}:{value['gpu']}")


def _of_class(text: str, values: Values) -> str | None:
    """Return the GPUs of one of Modal's classes as a text: `modal.gpu.A100(size="80GB", count=2)`."""
    node = ast.parse(text, mode="eval").body
    if not isinstance(node, ast.Call) or ".gpu." not in f".{ast.unparse(node.func)}":
        return None
    arguments: dict[str | None, Any] = {each.arg: values.of(each.value) for each in node.keywords}
    size = f"-{arguments['size']}" if "size" in arguments else ""
    return f"{ast.unparse(node.func).rpartition('.')[2]}{size}:{arguments.get('count', 1)}"
