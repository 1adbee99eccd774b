"""The catalog of GPUs and models: finds, reads, checks and adds their files."""

import functools
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.catalog import families
from planner.catalog.architecture import Architecture
from planner.catalog.checkpoint_names import Checkpoint, as_published, checkpoint_of, known_part, unserved_format
from planner.catalog.gpus import Gpu, read_gpu
from planner.catalog.hf_config import architecture_from_config
from planner.catalog.hf_quantization import quant_method
from planner.catalog.mig import SEPARATOR, Slice, sliced, slices_of
from planner.catalog.other_kinds import gpu_refusal, model_refusal
from planner.catalog.pooling import keys_beside
from planner.catalog.provenance import date_of, text_of
from planner.errors import CatalogError, OutputError, UnknownNameError
from planner.files.nested import parse_json, parse_toml

CHAT = frozenset(("instruct", "it", "chat"))  # words in the names of checkpoints that answer in chats


@functools.cache
def data_dir(name: str) -> Path:
    """Folder of bundled data: `planner/data/<name>` in an installed package, `<name>` at the root of a checkout.

    Raises
    ------
    CatalogError : neither exists.
    """
    package = Path(__file__).resolve().parents[1]
    candidates = (package / "data" / name, package.parent / name)
    for path in candidates:
        if path.is_dir():
            return path
    raise CatalogError(f"{candidates[0]}: bundled data {name!r} is missing; reinstall planner")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises
    ------
    CatalogError : the file is missing or no TOML.
    """
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CatalogError(f"{path}: cannot be read: {error}") from error


def read_rows(path: Path, key: str) -> list[dict[str, Any]]:
    """Read the `[[key]]` rows of a TOML file.

    Raises
    ------
    CatalogError : the file is missing, no TOML, or has no such rows.
    """
    table = read_toml(path)
    if key not in table:
        raise CatalogError(f"{path}: cannot be read: it has no [[{key}]]")
    return list(table[key])


def user_dir() -> Path:
    """Folder of the user's own `gpus` and `models`: $PLANNER_DB, else `planner` in the user's data folder."""
    folder = os.environ.get("PLANNER_DB")
    return Path(folder) if folder else Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "planner"


def gpu_names() -> list[str]:
    """Short names of all GPUs, bundled and the user's."""
    return sorted({path.stem for path in _files("gpus")})


def model_names() -> list[str]:
    """Short names of all models, bundled and the user's."""
    return sorted({path.stem for path in _files("models")})


def load_gpu(name: str) -> Gpu:
    """Load a GPU by short name, alias (case, spaces, dots, "-" and "_" do not matter) or path to its TOML.

    A name with a MIG profile, as h100-sxm:1g.10gb, is a slice of the GPU.

    Raises
    ------
    UnknownNameError : there is no such GPU; it offers the nearest.
    CatalogError : its file is wrong, or it has no such MIG profile.

    >>> load_gpu("NVIDIA H100 80GB HBM3").flops_per_s["bf16"]
    989400000000000.0
    """
    whole, is_slice, profile = ("", "", "") if name.endswith(".toml") else name.rpartition(SEPARATOR)
    if is_slice:
        gpu = load_gpu(whole)
        return sliced(gpu, profile, mig_slices(gpu.name))
    path = Path(name) if name.endswith(".toml") else _find("gpus", name)
    if path is None:
        raise UnknownNameError("GPU", name, gpu_names(), gpu_refusal(_key(name)))
    return _read_gpu(path)


def mig_slices(gpu: str) -> dict[str, Slice]:
    """Return the MIG profiles of a GPU by name; empty if it has none.

    Raises
    ------
    CatalogError : the table is missing or wrong.
    """
    path = data_dir("hardware_db") / "mig.toml"
    return slices_of(gpu, _parse(path), path)


def load_model(name_or_path: str) -> Architecture:
    """Load a model by short name, Hugging Face name, or path to a config.json, a folder with one, or a catalog TOML.

    Raises
    ------
    UnknownNameError : there is no such model; it offers the nearest.
    CatalogError : its file is wrong or its architecture not supported.

    >>> load_model("meta-llama/Llama-3.1-8B-Instruct").num_layers
    32
    """
    return _read_model(*_located(name_or_path))


def _located(name_or_path: str) -> tuple[Path, str, Checkpoint | None]:
    """The file of a model, the variant's name in it, and the checkpoint that the name means, if it is in no file."""
    if is_path(name_or_path):
        file = Path(name_or_path).expanduser()
        return file if file.suffix in (".json", ".toml") else file / "config.json", "", None
    path, checkpoint = _find_model(name_or_path)
    return path, name_or_path if checkpoint is None else checkpoint.base, checkpoint


def stated_method(name_or_path: str) -> str | None:
    """Return the quant_method of a checkpoint's config.json; None if it states none, or only its format is known."""
    path, alias, checkpoint = _located(name_or_path)
    entry = _config_of(path) if path.suffix == ".json" else _parse(path)
    is_known = checkpoint is None and "quantization_config" not in _changed(entry, alias)
    return quant_method(entry.get("config", entry)) if is_known else None


def _changed(entry: Mapping[str, object], alias: str) -> dict[str, object]:
    """The keys of the config that a variant changes in an entry of the catalog."""
    variants = entry.get("variants")
    return next((keys for name, keys in (variants.items() if isinstance(variants, dict) else ())
                 if _key(alias) in (_key(name), _key(name.rpartition("/")[2]))), {})


def is_path(name_or_path: str) -> bool:
    """Tell whether a model is given as the path of a config.json, of a folder with one, or of a catalog's TOML."""
    return name_or_path.endswith((".json", ".toml")) or os.path.isfile(Path(name_or_path).expanduser() / "config.json")


def describe_model(name: str) -> dict[str, object]:
    """Return the data beside a model's config in its file: name, aliases, variants, source, date and note."""
    path = Path(name) if name.endswith((".json", ".toml")) else _find_model(name)[0]
    entry = _parse(path)
    return {key: entry[key] for key in ("name", "aliases", "variants", "source", "date", "note") if key in entry}


def hub_name(name: str) -> str:
    """Return the Hugging Face name of a model that is called by a short one; the name itself if it has none.

    Of checkpoints that begin with the short name, one for chats is the first choice.

    >>> hub_name("llama-3.1-8b"), hub_name("llama-3.3-70b")
    ('meta-llama/Llama-3.1-8B', 'meta-llama/Llama-3.3-70B-Instruct')
    """
    path, checkpoint = (None, None) if "/" in name else _find_model(name)
    if path is None or checkpoint is not None:
        return name
    entry, key = _parse(path), _key(name)
    aliases, variants = ([str(x) for x in listed if "/" in str(x)] if isinstance(listed, (list, dict)) else []
                         for listed in (entry.get("aliases"), entry.get("variants")))
    keys = {alias: _key(alias.rpartition("/")[2]) for alias in (*aliases, *variants)}
    longer = sorted((alias for alias in aliases if keys[alias].startswith(f"{key}-")),
                    key=lambda alias: not CHAT & {*keys[alias].split("-")})
    return next(iter((*(alias for alias in keys if keys[alias] == key), *longer, *aliases)), name)


def other_checkpoint(name: str) -> str | None:
    """Return the checkpoint that `hub_name` finds for an alias that no checkpoint's name begins with; else None.

    >>> other_checkpoint("llama-70b"), other_checkpoint("llama-3.3-70b")
    ('meta-llama/Llama-3.1-70B', None)
    """
    path = None if "/" in name or is_path(name) else _find("models", name)
    if path is None or path.stem == _slug(name):
        return None
    hub = hub_name(name)
    return None if hub == name or f"{_key(hub.rpartition('/')[2])}-".startswith(f"{_key(name)}-") else hub


def add_gpu(path: Path, folder: Path | None = None) -> Path:
    """Check a GPU's TOML and copy it into the user's catalog; it takes precedence over a bundled GPU of that name.

    Parameters
    ----------
    path : file.
    folder : of another catalog; None for the user's.

    Returns
    -------
    Path
        The copy.

    Raises
    ------
    CatalogError : the file is wrong; nothing is written then.
    OutputError : the copy cannot be written.
    """
    gpu = _read_gpu(path)
    return _copy(path.read_bytes(), (folder or user_dir()) / "gpus" / f"{_slug(gpu.name)}.toml")


def add_model(path: Path, name: str | None = None, folder: Path | None = None) -> Path:
    """Check a model's TOML or config.json (or the folder of one) and copy it into the user's catalog.

    Parameters
    ----------
    path : file or folder.
    name : short name; by default the TOML's own, or that of the folder which holds the config.json.
    folder : of another catalog; None for the user's.

    Returns
    -------
    Path
        The copy.

    Raises
    ------
    CatalogError : the file is wrong; nothing is written then.
    OutputError : the copy cannot be written.
    """
    source = path / "config.json" if path.is_dir() else path
    model = _read_model(source, "")
    copied = _config_of(source) if source.suffix == ".json" else None
    content = source.read_bytes() if copied is None or copied == _parse(source) else json.dumps(copied).encode()
    return _copy(content, (folder or user_dir()) / "models" / f"{_slug(name or model.name)}{source.suffix}")


def bundled_like(copy: Path) -> str | None:
    """Return the bundled GPU or model that is called as a file of the user's catalog, which goes before it."""
    bundled = data_dir("hardware_db") / copy.parent.name
    name = _key(copy.stem)
    return next((path.stem for path in sorted(bundled.glob("*.toml")) if name in _keys_of(path)), None)


def _files(kind: str) -> Iterator[Path]:
    """The files of "gpus" or "models", the user's before the bundled."""
    for folder in (user_dir() / kind, data_dir("hardware_db") / kind):
        if folder.is_dir():
            yield from sorted(path for path in folder.iterdir() if path.suffix in (".toml", ".json"))


def _find(kind: str, name: str) -> Path | None:
    """The file called `name`, or else the one that has it as an alias."""
    stem = _slug(name)
    for folder in (user_dir() / kind, data_dir("hardware_db") / kind):
        for suffix in (".toml", ".json"):
            if os.path.isfile(path := folder / f"{stem}{suffix}"):  # of any length, which Path refuses
                return path
    wanted = _key(name)
    return next((path for path in _files(kind) if wanted in _keys_of(path)), None)


def _find_model(name: str) -> tuple[Path, Checkpoint | None]:
    """The file of a model, and the checkpoint that a name means which is in no file: a copy, or another format."""
    path = _find("models", name)
    if path is not None:
        return path, None
    known: dict[str, Path] = {}
    for file in _files("models"):
        for key in _keys_of(file):
            known.setdefault(key, file)
    key = _key(name)
    unserved = unserved_format(key)
    checkpoint = checkpoint_of(key, known) if unserved is None else None
    if checkpoint is not None:
        return known[checkpoint.base], checkpoint
    refusal = model_refusal(key)
    if refusal is not None:
        raise UnknownNameError("model", name, model_names(), refusal)
    base = known_part(key, known)
    if unserved is not None:
        raise UnknownNameError("model", name, model_names(), f"it is in {unserved}; give the model's own checkpoint, "
                               f"or --quantization with a format that an engine has (int4, awq, fp8, …)")
    raise UnknownNameError("model", name, model_names(), None if base is None else
                           f"if it is {known[base].stem} in another format, give --model {known[base].stem} and "
                           f"--quantization with the format (fp8, int4, int8, w8a16, nvfp4, …); else give its "
                           f"config.json")


def _slug(name: str) -> str:
    """A name as a file stem."""
    return re.sub(r"[\s_/\\]+", "-", name.strip().lower())


def _key(name: str) -> str:
    """A name without the parts that do not matter: case, separators, and the maker in front of a GPU's."""
    key = re.sub(r"[\s_.-]+", "-", name.strip().lower())
    return re.sub(r"^(nvidia|amd)-(instinct-)?", "", key)


def _keys_of(path: Path) -> set[str]:
    """All keys by which a file is found: its stem, aliases and variants, with and without their owner."""
    entry = _parse(path) if path.suffix == ".toml" else {}
    aliases, variants = entry.get("aliases", ()), entry.get("variants", ())
    names = [path.stem, *(str(alias) for listed in (aliases, variants) if isinstance(listed, (list, dict))
                          for alias in listed)]
    return {_key(form) for name in names for form in (name, name.rpartition("/")[2])}


def _parse(path: Path) -> dict[str, object]:
    """The content of a TOML or JSON file; parsed once as long as the file stays as it is."""
    try:
        stamp = path.stat()
    except OSError as error:
        raise CatalogError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    return _parse_once(path, stamp.st_mtime_ns, stamp.st_size)


@functools.lru_cache(maxsize=256)
def _parse_once(path: Path, modified_ns: int, size: int) -> dict[str, object]:
    try:
        content = path.read_text(encoding="utf-8")
        parsed = parse_json(content) if path.suffix == ".json" else parse_toml(content)
    except OSError as error:
        raise CatalogError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except ValueError as error:
        raise CatalogError(f"{path}: is not valid {path.suffix[1:].upper()} ({error})") from error
    if not isinstance(parsed, dict):
        raise CatalogError(f"{path}: must hold one table of keys")
    return parsed


def _read_gpu(path: Path) -> Gpu:
    """The GPU in a file; one whose kernels it takes must be there, by any of its names."""
    gpu = read_gpu(_parse(path), path)
    if gpu.kernels_of == gpu.name:
        return gpu
    like = _find("gpus", gpu.kernels_of)
    if like is None:
        raise UnknownNameError(f"kernels_of in {path}", gpu.kernels_of, gpu_names())
    other = read_gpu(_parse(like), like)
    joined = other if other.scale_up_link == gpu.scale_up_link else gpu
    return replace(gpu, kernels_of=other.name, collectives_of=joined.name)


def _read_model(path: Path, alias: str, checkpoint: Checkpoint | None = None) -> Architecture:
    """The architecture in a file, with the keys that the variant called `alias` changes, in a checkpoint's format."""
    if path.suffix == ".json":
        name, stated = path.stem if path.stem != "config" else path.resolve().parent.name, _config_of(path)
        stated = stated if checkpoint is None else as_published(stated, checkpoint)
        return architecture_from_config(stated, name=name, where=str(path))
    entry = _parse(path)
    config = entry.get("config")
    if not isinstance(config, dict) or not isinstance(entry.get("variants", {}), dict):
        raise CatalogError(f"{path}: [config] is missing; it holds the keys of the model's config.json")
    text_of(entry, "source", path)
    date_of(entry, path)
    keys: dict[str, object] = {**config, **_changed(entry, alias)}
    keys = keys if checkpoint is None else as_published(keys, checkpoint)
    return architecture_from_config(keys, name=text_of(entry, "name", path), where=str(path))


def _config_of(path: Path) -> dict[str, object]:
    """A config.json, with the formats and the pooling that files beside it state."""
    entry, beside = {**_parse(path), **keys_beside(path)}, path.with_name("hf_quant_config.json")
    inner = [entry.get(key) for key in families.INNER]
    if any(isinstance(part, dict) and "quantization_config" in part for part in (entry, *inner)) or (
            not beside.is_file()):
        return entry
    stated = _parse(beside).get("quantization")
    if not isinstance(stated, dict):
        raise CatalogError(f"{beside}: quantization is missing; it says what ModelOpt made of the weights")
    return {**entry, "quantization_config": {"quant_method": "modelopt", **stated}}


def _copy(content: bytes, target: Path) -> Path:
    """Write a copy so that a reader sees the old one or the new one, never a part."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".part", delete=False) as part:
            part.write(content)
        os.replace(part.name, target)
    except (OSError, ValueError) as error:  # a name with a NUL is no path
        why = getattr(error, "strerror", None) or error
        raise OutputError(f"{target}: cannot be written ({why}); set PLANNER_DB to a writable folder") from error
    return target
