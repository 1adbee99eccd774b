"""A GPU's or a model's profile as `planner db show` prints it, with memory and step times by term."""

from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any

from planner.catalog.architecture import Architecture
from planner.catalog.catalog_files import describe_model, gpu_names, load_gpu, load_model, model_names
from planner.catalog.gpus import Gpu
from planner.catalog.kv_cache import kv_bytes_per_token
from planner.catalog.parameters import num_active_parameters, num_parameters
from planner.catalog.profile_answer import ArchitectureAnswer, GpuAnswer
from planner.deployment.deploy import Deployment, deploy
from planner.errors import UnknownNameError
from planner.files import keys
from planner.loop.rows import STEP_ROW
from planner.loop.state import engine_state as st
from planner.model.precision import kv_bytes_per_element
from planner.report.text import Grid, Text
from planner.results.memory_notes import graph_memory
from planner.settings.scenario import Scenario
from planner.steptime.by_term import step_terms

# Steps that make the terms comparable: (name, prompt tokens, decodes, context tokens of each decode).
STEP_CLASSES = (
    ("decode of 1 at 1k", 0, 1, 1024),
    ("decode of 32 at 1k", 0, 32, 1024),
    ("decode of 128 at 1k", 0, 128, 1024),
    ("decode of 32 at 8k", 0, 32, 8192),
    ("prompt of 512", 512, 0, 0),
    ("prompt of 2,048", 2048, 0, 0),
    ("prompt of 8,192", 8192, 0, 0),
    ("32 decodes, 2,016 of prompt", 2016, 32, 1024),
)


def show_profile(name: str, scenario: Scenario) -> tuple[dict[str, Any], Text]:
    """Return a profile as values and as text; of a model with a GPU also its memory use and step times.

    Raises
    ------
    UnknownNameError : neither a GPU nor a model has that name.
    """
    try:
        return _show_gpu(load_gpu(name))
    except UnknownNameError:
        pass
    try:
        load_model(name)
    except UnknownNameError as error:
        remedy = str(error).partition("; ")[2]
        raise UnknownNameError("GPU or model", name, [*gpu_names(), *model_names()],
                               remedy if "--model" in remedy else None) from error
    return _show_model(name, scenario)


def _show_gpu(gpu: Gpu) -> tuple[dict[str, Any], Text]:
    values = {field: {"value": q.value, "unit": q.unit, "source": q.source, "date": q.date, "dense": q.dense,
                      "note": q.note} for field, q in gpu.provenance.items()}
    borrowed = f"; kernels of {gpu.kernels_of}" if gpu.kernels_of != gpu.name else ""
    rows = [(field, f"{q.value:.5g}", q.unit + " dense" * q.dense, f"{q.source}, {q.date}")
            for field, q in gpu.provenance.items()]
    answer = GpuAnswer(name=gpu.name, kernels_of=gpu.kernels_of, collectives_of=gpu.collectives_of, values=values)
    return keys.asdict(answer), Text([
        f"{gpu.name} ({gpu.vendor}); also {', '.join(gpu.aliases)}; scale-up link {gpu.scale_up_link}{borrowed}",
        Grid(heads=("", "", "", ""), rows=rows, left=(0, 2, 3), indent=2)])


def _show_model(name: str, scenario: Scenario) -> tuple[dict[str, Any], Text]:
    arch = load_model(name)
    answer = ArchitectureAnswer(
        name=arch.name, profile=describe_model(name), num_parameters=num_parameters(arch),
        num_active_parameters=num_active_parameters(arch), kv_bytes_per_token_bf16=kv_bytes_per_token(arch, 2.0),
        architecture={field: _as_values(getattr(arch, field)) for field in arch.__slots__})
    own = arch.kv_cache_dtype
    in_own = "" if own is None else (
        f", {kv_bytes_per_token(arch, kv_bytes_per_element(own, None, scenario.engine)):,.0f} in {own}")
    lines: list[str | Grid] = [f"{arch.name}: {answer.num_parameters / 1e9:.2f}e9 parameters, "
             f"{answer.num_active_parameters / 1e9:.2f}e9 active, {answer.kv_bytes_per_token_bf16:,.0f} B of KV a "
             f"token in bf16{in_own}; weights in {_stored(arch)}"]
    lines += [f"  {field:<32}{setting}" for field, setting in answer.architecture.items()
              if setting and not isinstance(setting, (list, dict))]
    lines += [f"  {group.pop('count')} × {_words(group)}" for part in ("layers", "mlps")
              for group in map(dict, answer.architecture[part])]
    if scenario.gpu:
        deployment = deploy(replace(scenario, model=name))
        terms, memory = step_class_terms(deployment), deployment.memory
        answer = replace(answer, step_terms_s=terms, memory=None if memory is None else asdict(memory))
        lines += [f"on {deployment.layout.num_gpus} × {scenario.gpu}", str(memory),
                  *(f"note: {note}" for note in graph_memory(deployment)), _terms(terms)]
    return keys.asdict(answer), Text(lines)


def _stored(arch: Architecture) -> str:
    """Return the formats of a checkpoint's weights: of most, then of the parts that have another."""
    most = arch.quantization or "bf16"
    parts = {"experts": arch.expert_quantization, "attention": arch.attention_quantization,
             "linear attention": arch.linear_quantization, "LM head": arch.head_quantization}
    return ", ".join([most, *(f"{part} in {form}" for part, form in parts.items() if form not in (None, most))])


def _as_values(part: Any) -> Any:
    """Return a part of an architecture as values: of layers their kind, and shapes that differ from the defaults."""
    if isinstance(part, tuple):
        return [_as_values(each) for each in part]
    if not is_dataclass(part):
        return part
    shapes = {field.name: _as_values(getattr(part, field.name)) for field in fields(part)
              if getattr(part, field.name) != field.default}
    return shapes if "count" in shapes else {"kind": type(part).__name__, **shapes}


def _words(shapes: dict[str, Any]) -> str:
    """Return the shapes of a group of layers in a line: each kind, then its values."""
    return ", ".join(_words(value) if isinstance(value, dict) else str(value) if name == "kind" else f"{name} {value}"
                     for name, value in shapes.items())


def step_class_terms(deployment: Deployment) -> dict[str, dict[str, float]]:
    """Return, for each of STEP_CLASSES, how long a step takes by term and in all [s]."""
    steps, window = st.records(len(STEP_CLASSES), STEP_ROW), int(deployment.step_time.terms.window_tokens)
    for row, (_, prompt_tokens, decodes, context) in zip(steps, STEP_CLASSES, strict=True):
        row.num_prompts = 1 if prompt_tokens else 0
        row.num_prompt_tokens = prompt_tokens
        row.prompt_pairs = prompt_tokens * (prompt_tokens + 1) // 2
        seen = min(prompt_tokens, window)
        row.window_pairs = seen * (seen + 1) // 2 + (prompt_tokens - seen) * window
        row.num_decodes = decodes
        row.decode_context_tokens = decodes * context
        row.num_sampled = row.num_prompts + decodes
    terms = step_terms(deployment.step_time, steps, 0.0)
    return {
        name: {**{term: float(values[k]) for term, values in terms.items()},
               "total_s": float(sum(values[k] for values in terms.values()))}
        for k, (name, *_) in enumerate(STEP_CLASSES)
    }


def _terms(terms: dict[str, dict[str, float]]) -> Grid:
    names = [name for name in next(iter(terms.values())) if any(row[name] > 0 for row in terms.values())]
    rows = [(step, *(f"{1e3 * row[name]:.3f}" for name in names)) for step, row in terms.items()]
    return Grid(heads=("step time by term [ms]", *(name.removesuffix("_s") for name in names)), rows=rows, indent=2)
