"""The flags that the newest wheels of vLLM and SGLang define, found in their source without importing it."""

import ast
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

Flags = dict[tuple[str, ...], str]  # words that follow a flag, by its names: nothing, one, several, or "" if not told


@cache
def wheel(package: str, folder: Path) -> zipfile.ZipFile | None:
    """Return a package's newest wheel; None if the index is not reachable."""
    done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
                           "--dest", str(folder), package], capture_output=True, text=True, check=False, timeout=500)
    found = sorted(folder.glob(f"{package}-*.whl"))
    return zipfile.ZipFile(found[-1]) if done.returncode == 0 and found else None


def vllm_flags(source: zipfile.ZipFile) -> Flags:
    """Return the flags of `vllm serve`: those that are added one by one, and the fields of the frontend's arguments."""
    found: Flags = {}
    for name in ("vllm/engine/arg_utils.py", "vllm/entrypoints/common/cli_args.py"):
        tree = ast.parse(source.read(name))
        found |= dict(_added(tree))
        classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
        for cls in (each for each in classes if each.name.endswith("FrontendArgs")):
            for field in cls.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    found[(f"--{field.target.id.replace('_', '-')}",)] = _words(ast.unparse(field.annotation))
    return {tuple(each for each in names if each.startswith("-")): words for names, words in found.items()
            if any(each.startswith("-") for each in names)}


def vllm_kv_types(source: zipfile.ZipFile) -> list[str]:
    """Return the values of `--kv-cache-dtype`: the literal type `CacheDType`."""
    return _values(source, "vllm/config/cache.py", "CacheDType")


def vllm_methods(source: zipfile.ZipFile) -> list[str]:
    """Return the values of `--quantization`."""
    return _values(source, "vllm/model_executor/layers/quantization/__init__.py", "QuantizationMethods")


def sglang_methods(source: zipfile.ZipFile) -> list[str]:
    """Return the values of `--quantization`."""
    return _values(source, "sglang/srt/arg_groups/choices.py", "QUANTIZATION_CHOICES")


def _values(source: zipfile.ZipFile, name: str, variable: str) -> list[str]:
    """Return the values of a list, or of a literal type."""
    value = next(node.value for node in ast.parse(source.read(name)).body if isinstance(node, ast.Assign)
                 and ast.unparse(node.targets[0]) == variable)
    return list(ast.literal_eval(value.slice if isinstance(value, ast.Subscript) else value))


def sglang_kv_types(source: zipfile.ZipFile) -> list[str]:
    """Return the values of `--kv-cache-dtype`: the choices of the field."""
    tree = ast.parse(source.read("sglang/srt/arg_groups/fields/model.py"))
    field = next(node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)
                 and ast.unparse(node.target) == "kv_cache_dtype")
    return next(list(ast.literal_eval(keyword.value)) for keyword in ast.walk(field.annotation)
                if isinstance(keyword, ast.keyword) and keyword.arg == "choices")


def sglang_flags(source: zipfile.ZipFile) -> Flags:
    """Return the flags of `sglang.launch_server`: annotated fields, and those that are added one by one."""
    found = dict(_added(ast.parse(source.read("sglang/srt/server_args.py"))))
    for name in source.namelist():
        if name.startswith("sglang/srt/arg_groups/fields/") and name.endswith(".py"):
            for node in ast.walk(ast.parse(source.read(name))):
                if isinstance(node, ast.AnnAssign) and (flag := _annotated(node)) is not None:
                    found[flag[0]] = flag[1]
    return found


def _annotated(field: ast.AnnAssign) -> tuple[tuple[str, ...], str] | None:
    """Return the flag of a field `name: A[type, …]`; None if it has none."""
    annotation = field.annotation
    if not (isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "A"
            and isinstance(annotation.slice, ast.Tuple) and isinstance(field.target, ast.Name)):
        return None
    names = [f"--{field.target.id.replace('_', '-')}"]
    keywords: dict[str | None, ast.expr] = {}
    for each in annotation.slice.elts[1:]:
        if isinstance(each, ast.Call):
            keywords |= {keyword.arg: keyword.value for keyword in each.keywords}
    if "no_cli" in keywords:
        return None
    if "cli_name" in keywords:
        names = [ast.literal_eval(keywords["cli_name"])]
    if "aliases" in keywords:
        names += ast.literal_eval(keywords["aliases"])
    return tuple(names), _words(ast.unparse(annotation.slice.elts[0]))


def _added(tree: ast.AST) -> Iterator[tuple[tuple[str, ...], str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            names = tuple(each.value for each in node.args
                          if isinstance(each, ast.Constant) and isinstance(each.value, str))
            if names:
                yield names, ""


def _words(annotation: str) -> str:
    kind = annotation.removeprefix("Optional[").removesuffix("]") if annotation.startswith("Optional") else annotation
    kind = kind.removesuffix(" | None")
    return "nothing" if kind == "bool" else "several" if kind.lower().startswith("list[") else "one"
