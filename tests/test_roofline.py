"""The step-time model keeps to physics: never below the hardware's floor, and monotone in hardware and load."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from planner.architecture import num_active_parameters
from planner.catalog import gpu_names, load_gpu, load_model, model_names
from planner.engine import state as st
from planner.errors import CatalogError, UsageError
from planner.memory import WEIGHT_BYTES_PER_ELEMENT
from planner.roofline import Efficiency, Layout, peak_flops_per_s, roofline
from planner.steptime import TERMS, linear, step_terms

ONE = Layout(tensor_parallel_size=1, pipeline_parallel_size=1)
LLAMA, H100 = load_model("llama-3.1-8b"), load_gpu("h100-sxm")


def step(prompt: int = 0, decodes: int = 0, context: int = 0, cached: int = 0) -> Any:
    """Return one step: a prompt chunk after `cached` tokens, and decodes with `context` tokens each."""
    row = st.records(1, st.STEP_ROW)
    row.num_prompts = int(prompt > 0)
    row.num_prompt_tokens = prompt
    row.prompt_context_tokens = cached
    row.prompt_pairs = prompt * cached + prompt * (prompt + 1) // 2
    row.window_pairs = row.prompt_pairs
    row.num_decodes = decodes
    row.decode_context_tokens = decodes * context
    row.num_sampled = int(prompt > 0) + decodes
    return row


def seconds(step_time: Any, row: Any) -> float:
    return float(sum(values[0] for values in step_terms(step_time, row, 0.0).values()))


def on(gpu: Any = H100, arch: Any = LLAMA, layout: Layout = ONE, quantization: str | None = None) -> Any:
    return roofline(arch, gpu, layout, quantization, 2.0, Efficiency())


@pytest.mark.parametrize("gpu", gpu_names())
@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b", "gpt-oss-120b", "deepseek-v3", "gemma-2-9b"])
@pytest.mark.parametrize(("prompt", "decodes"), [(0, 1), (0, 64), (512, 0), (8192, 0), (1024, 128)])
def test_no_step_beats_the_floor(gpu: str, model: str, prompt: int, decodes: int) -> None:
    arch, hardware = load_model(model), load_gpu(gpu)
    taken = seconds(on(hardware, arch), step(prompt, decodes, 1000))
    fastest = max(hardware.flops_per_s.values())
    head = 2 * arch.vocab_size * arch.hidden_size
    arithmetic = (2 * num_active_parameters(arch) - head) * (prompt + decodes) / fastest
    always_read = on(hardware, arch).weights_bytes / hardware.hbm_bandwidth_bytes_per_s
    assert taken >= max(arithmetic, always_read)


@pytest.mark.parametrize("model", model_names())
def test_every_model_has_a_finite_step_time(model: str) -> None:
    terms = step_terms(on(arch=load_model(model)), step(100, 10, 500), 0.0)
    assert tuple(terms) == TERMS
    assert all(np.isfinite(values).all() and (values >= 0).all() for values in terms.values())


@given(prompt=some.integers(0, 8192), decodes=some.integers(1, 512), context=some.integers(1, 30_000))
@settings(max_examples=60, deadline=None)
def test_more_work_never_takes_less(prompt: int, decodes: int, context: int) -> None:
    base = seconds(on(), step(prompt, decodes, context))
    assert seconds(on(), step(prompt + 64, decodes, context)) >= base
    assert seconds(on(), step(prompt, decodes + 1, context)) >= base
    assert seconds(on(), step(prompt, decodes, context + 100)) >= base


@pytest.mark.parametrize("row", [step(0, 1, 100), step(0, 256, 4000), step(8192), step(2000, 48, 1000, cached=4000)])
@pytest.mark.parametrize("field", ["hbm_bandwidth_bytes_per_s", "scale_up_bandwidth_bytes_per_s"])
def test_doubling_a_bandwidth_never_slows(row: Any, field: str) -> None:
    layout = Layout(tensor_parallel_size=4, pipeline_parallel_size=1)
    faster = replace(H100, **{field: 2 * getattr(H100, field)})
    assert seconds(on(faster, layout=layout), row) <= seconds(on(layout=layout), row)


def test_tensor_parallelism_divides_the_weights_but_adds_collectives() -> None:
    layouts = {tp: Layout(tensor_parallel_size=tp, pipeline_parallel_size=1) for tp in (1, 2, 8)}
    terms = {tp: step_terms(on(layout=layout), step(0, 32, 1000), 0.0) for tp, layout in layouts.items()}
    assert terms[2]["linear_s"][0] == pytest.approx(terms[1]["linear_s"][0] / 2, rel=0.05)
    assert terms[1]["collectives_s"][0] == 0 < terms[2]["collectives_s"][0] < terms[8]["collectives_s"][0]


def test_a_single_decode_is_bound_by_the_weights() -> None:
    """8.03e9 bf16 weights less the input embedding, over 3.35e12 B/s at the efficiency of large reads."""
    read = 2 * (8.03e9 - 128256 * 4096) / (3.35e12 * Efficiency().weights_bandwidth_frac)
    assert seconds(on(), step(0, 1, 1)) == pytest.approx(read + Efficiency().overhead_s, rel=0.02)


def test_quantized_weights_are_read_faster() -> None:
    times = [seconds(on(quantization=name), step(0, 1, 1)) for name in ("bf16", "fp8", "int4")]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("weights", sorted(WEIGHT_BYTES_PER_ELEMENT))
def test_every_weight_format_has_a_peak(weights: str) -> None:
    assert peak_flops_per_s(H100, weights)[0] > 0


def test_a_gpu_without_the_precision_is_refused() -> None:
    with pytest.raises(CatalogError, match="states no FLOP/s for bf16"):
        peak_flops_per_s(replace(H100, flops_per_s={"fp8": 1.0}), "bf16")


@pytest.mark.parametrize(("field", "value"), [("gemm_flops_frac", 1.2), ("overhead_s", -1.0), ("kv_bandwidth_frac", 0)])
def test_efficiencies_stay_physical(field: str, value: float) -> None:
    with pytest.raises(UsageError, match=field):
        Efficiency(**{field: value})


def test_sliding_windows_cap_what_decodes_read() -> None:
    gemma = on(arch=load_model("gemma-2-9b"))
    near, far = (step_terms(gemma, step(0, 8, context), 0.0)["attention_decode_s"][0] for context in (4096, 8192))
    assert far - near == pytest.approx(8 * 4096 * gemma.decode_s_per_context_token)


def test_a_measured_line() -> None:
    terms = step_terms(linear("linear:0.02,5e-05,1e-8"), step(100, 10, 50, cached=7), 0.0)
    assert sum(values[0] for values in terms.values()) == pytest.approx(0.02 + 110 * 5e-5 + (500 + 7) * 1e-8)


@pytest.mark.parametrize("text", ["linear:", "linear:1", "linear:a,b", "linear:-1,2", "linear:nan,1", "linear:1,2,3,4",
                                  "quadratic:1,2", "linear:0,0"])
def test_a_malformed_line_says_what_is_expected(text: str) -> None:
    with pytest.raises(UsageError, match="expected linear:BASE_S,PER_TOKEN_S"):
        linear(text)
