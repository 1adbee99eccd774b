"""Embedding models and rerankers: names, traces without outputs, schedules, attention to both sides, memory."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import EVERYTHING, trace_of
from hypothesis import given
from hypothesis import strategies as some

from planner.catalog.catalog_files import load_model
from planner.deployment.deploy import resolve
from planner.errors import CatalogError, TraceError, UsageError
from planner.launch import launch_command, launch_options
from planner.planning.capacity import capacity
from planner.planning.grid import DEFAULT_FRONT, plan_sweep
from planner.planning.search_options import Choices, Search
from planner.planning.sizing import size
from planner.report.summary_tables import summary_table
from planner.report.target_cards import cards
from planner.run import Outcome, replay
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.steptime.roofline import roofline
from planner.traces import Trace
from planner.traces.shaping.client_load import read_load

Rows = list[tuple[float, int]]
QWEN, BGE = "Qwen/Qwen3-Embedding-0.6B", "BAAI/bge-m3"
SHAPES = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
          "vocab_size": 30522, "max_position_embeddings": 512}


@pytest.mark.parametrize(("name", "pooling", "is_bidirectional", "length"), [
    ("Qwen/Qwen3-Embedding-0.6B", "embed", False, 32768), ("Qwen/Qwen3-Embedding-4B", "embed", False, 40960),
    ("Qwen3-Embedding-8B", "embed", False, 40960), ("intfloat/e5-mistral-7b-instruct", "embed", False, 4096),
    ("BAAI/bge-m3", "embed", True, 8192), ("BAAI/bge-large-en-v1.5", "embed", True, 512),
    ("intfloat/multilingual-e5-large", "embed", True, 512), ("Alibaba-NLP/gte-modernbert-base", "embed", True, 8192),
    ("sentence-transformers/all-MiniLM-L6-v2", "embed", True, 256), ("Qwen/Qwen3-Reranker-0.6B", "score", False, 40960),
    ("tomaarsen/Qwen3-Reranker-4B-seq-cls", "score", False, 40960), ("Qwen3-Reranker-8B", "score", False, 40960),
    ("BAAI/bge-reranker-v2-m3", "score", True, 8192), ("jinaai/jina-embeddings-v3", "embed", True, 8192),
    ("jinaai/jina-reranker-v2-base-multilingual", "score", True, 1024),
    ("jinaai/jina-embeddings-v4", "embed", False, 128000), ("Qwen/Qwen3-8B", None, False, 40960)])
def test_names_of_the_catalog(name: str, pooling: str | None, is_bidirectional: bool, length: int) -> None:
    arch = load_model(name)
    assert (arch.pooling, arch.is_bidirectional, arch.max_model_len) == (pooling, is_bidirectional, length)


@pytest.mark.parametrize(("model_type", "architecture", "pooling", "is_bidirectional"), [
    ("bert", "BertModel", "embed", True), ("roberta", "RobertaModel", "embed", True),
    ("xlm-roberta", "XLMRobertaModel", "embed", True), ("modernbert", "ModernBertModel", "embed", True),
    ("new", "NewModel", "embed", True), ("bert", "BertForMaskedLM", "embed", True),
    ("qwen2", "Qwen2Model", "embed", False), ("mistral", "MistralModel", "embed", False),
    ("llama", "LlamaBidirectionalModel", "embed", True), ("qwen3", "Qwen3EmbeddingModel", "embed", False),
    ("bert", "BertForSequenceClassification", "score", True),
    ("roberta", "RobertaForSequenceClassification", "score", True),
    ("xlm-roberta", "XLMRobertaForSequenceClassification", "score", True),
    ("modernbert", "ModernBertForSequenceClassification", "score", True),
    ("new", "NewForSequenceClassification", "score", True), ("qwen2", "Qwen2ForSequenceClassification", "score", False),
    ("qwen3", "Qwen3ForSequenceClassification", "score", False),
    ("llama", "LlamaForSequenceClassification", "score", False),
    ("llama", "LlamaBidirectionalForSequenceClassification", "score", True),
    ("qwen2", "Qwen2ForRewardModel", "score", False), ("llama", "LlamaForCausalLM", None, False),
    ("qwen3", "Qwen3ForCausalLM", None, False)])
def test_a_config_says_its_kind(model_type: str, architecture: str, pooling: str | None, is_bidirectional: bool,
                                tmp_path: Path) -> None:
    config = SHAPES | {"model_type": model_type, "architectures": [architecture]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    arch = load_model(str(tmp_path))
    assert (arch.pooling, arch.is_bidirectional) == (pooling, is_bidirectional)


def test_files_beside_a_config_say_its_pooling(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPES | {"model_type": "qwen3"}))
    assert load_model(str(tmp_path)).pooling is None
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 384}')
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    arch = load_model(str(tmp_path))
    assert (arch.pooling, arch.max_model_len, arch.needs_whole_prompts) == ("embed", 384, True)
    (tmp_path / "1_Pooling" / "config.json").write_text("{")
    with pytest.raises(CatalogError, match=re.escape("1_Pooling/config.json: cannot be read")):
        load_model(str(tmp_path))


def test_a_gated_encoder_has_three_matrices_and_windows_on_both_sides() -> None:
    bert, modern = load_model("bge-large-en-v1.5"), load_model("gte-modernbert-base")
    assert (bert.dense_mlp.num_matrices, modern.dense_mlp.num_matrices) == (2, 3)
    assert [(group.count, group.window) for group in modern.layers] == [(8, 0), (14, 65)]


@pytest.mark.parametrize("text", [
    "arrival_s,input_tokens\n0,100\n1,20\n", "arrival_s,input_tokens,output_tokens\n0,100,0\n1,20,0\n",
    "timestamp,prompt_tokens,model\n2026-11-01T00:00:00,100,e\n2026-11-01T00:00:01,20,e\n",
    '{"arrival_s": 0, "input_tokens": 100}\n{"arrival_s": 1, "input_tokens": 20}\n',
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6,100,0\n2023-11-16 18:15:47.6,20,0\n"])
def test_a_trace_of_a_pooling_model_needs_no_output_tokens(text: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(text)
    source = str(tmp_path / "log")
    trace = read_load(source, Scenario(model=QWEN), None, "error")
    assert trace.requests["input_tokens"].to_list() == [100, 20]
    assert replay(trace, Scenario(model=QWEN, gpu="l4")).summary["completed"] == 2
    with pytest.raises(TraceError, match="output"):
        read_load(source, Scenario(model="qwen3-8b"), None, "error")


def test_a_log_without_outputs_asks_for_the_model_first(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("arrival_s,input_tokens\n0,100\n1,20\n")
    with pytest.raises(UsageError, match="is an embedding model that the catalog does not have"):
        read_load(str(tmp_path / "log.csv"), Scenario(model="nomic-embed-text-v1.5"), None, "error")


def served(rows: Rows, model: str = QWEN, **options: Any) -> Outcome:
    """Replay prompts with a linear step time, or on a GPU if one is given."""
    plain = {} if "gpu" in options else {"step_time": "linear:0.01,0.0001", "num_gpu_blocks": 10**6}
    trace = trace_of([(at_s, tokens, 7) for at_s, tokens in rows])
    return replay(trace, Scenario(model=model, **{**plain, **options}), recording=EVERYTHING)


def pooled_steps(rows: Rows, budget: int, seats: int, *, cuts: bool) -> tuple[list[int], list[float]]:
    """Return each step's tokens and each request's end by the rules of vLLM's scheduler, written from its source.

    vllm/v1/core/sched/scheduler.py, `schedule`: running requests, then waiting ones while a seat and tokens are left; a
    prompt that does not fit waits if prompts are not cut. `update_from_output`: a pooled request ends with its prompt.
    """
    now_s, arrived, left = 0.0, 0, [tokens for _, tokens in rows]
    running: list[int] = []
    waiting: list[int] = []
    steps, ends = [], [0.0] * len(rows)
    while arrived < len(rows) or waiting or running:
        if not waiting and not running:
            now_s = max(now_s, rows[arrived][0])
        while arrived < len(rows) and rows[arrived][0] <= now_s:
            waiting.append(arrived)
            arrived += 1
        room, batch = budget, {}
        for request in running:
            batch[request] = min(left[request], room)
            room -= batch[request]
        while waiting and room > 0 and len(running) < seats and (cuts or left[waiting[0]] <= room):
            request = waiting.pop(0)
            running.append(request)
            batch[request] = min(left[request], room)
            room -= batch[request]
        now_s += 0.01 + 0.0001 * sum(batch.values())
        steps.append(sum(batch.values()))
        for request, tokens in batch.items():
            left[request] -= tokens
            if left[request] == 0:
                running.remove(request)
                ends[request] = now_s
    return steps, ends


@some.composite
def loads(draw: some.DrawFn) -> tuple[Rows, int, int]:
    gaps = draw(some.lists(some.sampled_from([0.0, 0.003, 0.0211, 0.17]), min_size=1, max_size=25))
    tokens = draw(some.lists(some.integers(1, 700), min_size=len(gaps), max_size=len(gaps)))
    at_s = [round(float(at), 6) for at in np.cumsum([0.0, *gaps[1:]])]
    return list(zip(at_s, tokens, strict=True)), draw(some.sampled_from([700, 1000, 4096])), draw(some.integers(1, 9))


@given(loads(), some.sampled_from([QWEN, BGE]))
def test_the_schedule_is_vllms(load: tuple[Rows, int, int], model: str) -> None:
    rows, budget, seats = load
    outcome = served(rows, model, max_num_batched_tokens=budget, max_num_seqs=seats, max_model_len=700)
    steps, ends = pooled_steps(rows, budget, seats, cuts=model == QWEN)
    assert outcome.steps["num_prompt_tokens"].to_list() == steps
    assert outcome.requests["finished_at_s"].to_list() == pytest.approx(ends)


@given(loads(), some.sampled_from([QWEN, BGE, "gte-modernbert-base"]), some.sampled_from(["vllm", "sglang", "tei"]))
def test_laws(load: tuple[Rows, int, int], model: str, engine: str) -> None:
    """All prompts are computed once, and nobody decodes."""
    rows, budget, seats = load
    outcome = served(rows, model, engine=engine, max_num_batched_tokens=budget, max_num_seqs=seats, gpu="l4")
    summary, steps = outcome.summary, outcome.steps
    assert summary["completed"] == len(rows)
    assert steps["num_prompt_tokens"].sum() == sum(tokens for _, tokens in rows)
    assert steps["num_decodes"].sum() == summary["total_output_tokens"] == 0
    absent = [key for key in summary if "tpot" in key or "itl" in key or "ttft" in key]
    assert {summary[key] for key in [*absent, "output_throughput", "cost_usd_per_million_output_tokens"]} == {None}


@pytest.mark.parametrize("model", [QWEN, BGE, "gte-modernbert-base", "bge-reranker-v2-m3"])
def test_a_longer_prompt_never_takes_less(model: str) -> None:
    times_s = [served([(0.0, tokens)], model, gpu="h100-sxm").requests["e2e_s"][0]
               for tokens in (1, 60, 64, 65, 200, 512, 513, 2000, 8000)]
    assert all(one <= other for one, other in itertools.pairwise(times_s))


def test_an_encoders_prompt_has_a_closed_form() -> None:
    """FLOP: 2 for each weight of the layers and token, and 4 · heads · head_dim for each pair of tokens and layer."""
    tokens, hidden, layers = 1000, 1024, 24
    step = served([(0.0, tokens)], BGE, gpu="h100-sxm").steps.row(0, named=True)
    weights = layers * 12 * hidden**2
    flops = 2 * weights * tokens + layers * 4 * hidden * tokens**2
    assert step["compute_s"] == pytest.approx(flops / 989.4e12)
    memory = resolve(Scenario(model=BGE, gpu="h100-sxm"), trace_of([(0.0, 10, 1)])).memory
    assert memory is not None
    assert (memory.weight_bytes, memory.kv_bytes_per_token) == (2 * (weights + 250002 * hidden), 0.0)


def test_attention_to_both_sides_takes_as_long_as_all_pairs() -> None:
    """The terms count n² pairs, or with a window pairs at most 64 tokens apart. Times agree to a microsecond."""
    deployment = resolve(Scenario(model="gte-modernbert-base", gpu="h100-sxm"), trace_of([(0.0, 10, 1)]))
    stack = deployment.stack
    assert stack is not None
    both = roofline(stack).terms
    causal = roofline(replace(stack, arch=replace(stack.arch, is_bidirectional=False))).terms
    tokens, places = 300, np.arange(300)
    apart = np.abs(places[:, None] - places)
    pairs, window_pairs = tokens * (tokens + 1) / 2, float(np.minimum(places + 1, 65).sum())
    per_pair, per_window_pair = float(causal.prompt_s_per_pair), float(causal.prompt_s_per_window_pair)
    expected = float(causal.prompt_s_per_token) * tokens + per_pair * tokens**2 + per_window_pair * (apart <= 64).sum()
    taken = (float(both.prompt_s_per_token) * tokens + float(both.prompt_s_per_pair) * pairs
             + float(both.prompt_s_per_window_pair) * window_pairs)
    assert taken == pytest.approx(expected)


def test_a_prompt_may_fill_the_context() -> None:
    summary = served([(0.0, 8192), (1.0, 8193)], BGE, gpu="l4").summary
    assert (summary["completed"], summary["rejected_by_reason"]) == (1, {"too_long": 1})
    assert any("prompts of more than max_model_len = 8,192 tokens; --max" in note for note in summary["notes"])


def test_only_causal_attention_finds_prefixes() -> None:
    prefixes = trace_of([(0.0, 64, 1), (9.0, 64, 1)], hash_ids=[[1, 2, 3, 4], [1, 2, 3, 9]])
    hits = {model: replay(prefixes, Scenario(model=model, gpu="l4")).summary["prefix_cache_hit_rate"]
            for model in (QWEN, BGE)}
    assert hits == {QWEN: pytest.approx(48 / 128), BGE: None}


@pytest.mark.parametrize(("options", "message"), [
    ({"model": BGE, "enable_prefix_caching": True}, "needs each prompt whole"),
    ({"model": BGE, "enable_chunked_prefill": True}, "needs each prompt whole"),
    ({"model": QWEN, "engine": "trtllm"}, "TensorRT-LLM's pooling is not modelled; give --engine vllm or sglang"),
    ({"model": QWEN, "num_speculative_tokens": 2, "speculative_method": "ngram"}, "generates no tokens; leave it out")])
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(Scenario(gpu="l4", **options), trace_of([(0.0, 10, 1)]))


def test_a_chat_model_can_be_pooled() -> None:
    trace: Trace = trace_of([(0.0, 100, 50)])
    chat, pooled = (replay(trace, Scenario(model="qwen3-8b", gpu="l4", pooling=pooling)).summary
                    for pooling in (None, "score"))
    assert chat["total_output_tokens"] == 50
    assert pooled["total_output_tokens"] == 0
    assert pooled["mean_e2el_ms"] < chat["mean_e2el_ms"]
    assert pooled["deployment"]["memory"]["weight_bytes"] < chat["deployment"]["memory"]["weight_bytes"]


@pytest.mark.parametrize(("command", "model", "pooling"), [
    ("vllm serve Qwen/Qwen3-Embedding-0.6B --runner pooling", QWEN, None),
    ("vllm serve Qwen/Qwen3-Embedding-0.6B", QWEN, None),
    ("vllm serve Qwen/Qwen3-8B --runner pooling", "Qwen/Qwen3-8B", "embed"),
    ("vllm serve Qwen/Qwen3-8B --runner pooling --convert classify", "Qwen/Qwen3-8B", "score"),
    ("vllm serve Qwen/Qwen3-8B --task embed", "Qwen/Qwen3-8B", "embed"),
    ("vllm serve BAAI/bge-reranker-v2-m3 --task score", "BAAI/bge-reranker-v2-m3", None),
    ("vllm serve Qwen/Qwen3-8B --runner generate --convert none", "Qwen/Qwen3-8B", None),
    ("python -m sglang.launch_server --model-path Qwen/Qwen3-Embedding-0.6B --is-embedding", QWEN, None),
    ("python -m sglang.launch_server --model-path Qwen/Qwen3-8B --is-embedding", "Qwen/Qwen3-8B", "embed")])
def test_launch_commands_are_read(command: str, model: str, pooling: str | None) -> None:
    options, _ = launch_options(command)
    assert (options["model"], options.get("pooling")) == (model, pooling)


@pytest.mark.parametrize(("options", "command"), [
    ({"model": QWEN}, "vllm serve Qwen/Qwen3-Embedding-0.6B --runner pooling"),
    ({"model": "bge-reranker-v2-m3"}, "vllm serve BAAI/bge-reranker-v2-m3 --runner pooling --convert classify"),
    ({"model": "qwen3-8b", "pooling": "embed"}, "vllm serve Qwen/Qwen3-8B --runner pooling"),
    ({"model": QWEN, "engine": "sglang"},
     "python -m sglang.launch_server --model-path Qwen/Qwen3-Embedding-0.6B --is-embedding"),
    ({"model": BGE, "engine": "sglang"}, "python -m sglang.launch_server --model-path BAAI/bge-m3 --is-embedding "
                                         "--chunked-prefill-size -1 --disable-radix-cache")])
def test_launch_commands_are_written_with_their_flag(options: dict[str, Any], command: str) -> None:
    assert launch_command(Scenario(**options)) == (command, ())


def test_a_published_benchmark_is_predicted() -> None:
    """Infinity's documentation: bge-large-en-v1.5 on an L4, 449 tokens a text, TEI 62,190 and Infinity 58,790 tokens/s.

    The engine is another one, and the L4's kernels are not measured: the bound is wide.
    """
    summary = served([(0.0, 449)] * 2048, "bge-large-en-v1.5", gpu="l4", max_concurrency=512).summary
    assert summary["total_token_throughput"] == pytest.approx(62_190, rel=0.15)


def test_answers_speak_of_embeddings_and_their_cost() -> None:
    trace = trace_of([(0.05 * k, 200 + k, 1) for k in range(200)])
    objectives = parse_objectives("p99_e2el:200")
    found = capacity(trace, Scenario(model=BGE, gpu="l4"), objectives, Search(replicates=0, compare_assumptions=False))
    assert found.unknown.unit == "embeddings/s"
    assert found.capacity > 100
    sized = size(trace, Scenario(model=BGE, gpu="l4", request_rate=400.0), objectives, Choices(
        gpus=("l4",), ranks=(1,), compare_assumptions=False)).cheapest
    assert sized is not None
    assert sized.cost_usd_per_million_output_tokens is None
    assert sized.cost_usd_per_thousand_results == pytest.approx(sized.cost_usd_per_hour / (3600 * 400.0) * 1e3)
    assert sized.command == "vllm serve BAAI/bge-m3 --runner pooling"
    summary = replay(trace, Scenario(model="bge-reranker-v2-m3", gpu="l4")).summary
    assert "pairs/s" in str(summary_table(summary))
    assert "ttft" not in str(summary_table(summary))


def test_a_sweeps_front_is_of_latency_and_cost_of_prompts() -> None:
    axes = {"max_num_batched_tokens": [8192, 16384]}
    fronts = {model: plan_sweep("chat", Scenario(model=model, gpu="l4"), axes).front for model in (BGE, "qwen3-8b")}
    assert fronts == {BGE: ("cost_usd_per_million_input_tokens", "p99_e2el_ms"), "qwen3-8b": DEFAULT_FRONT}


@pytest.mark.parametrize("slo", ["tpot:50", "e2el:100 p99_tpot:50"])
def test_an_objective_of_output_tokens_is_refused(slo: str) -> None:
    trace, scenario = trace_of([(0.0, 100, 1)]), Scenario(model=QWEN, gpu="l4")
    objectives = parse_objectives(slo)
    for ask in (lambda: replay(trace, scenario, slo=objectives),
                lambda: capacity(trace, scenario, objectives, Search(replicates=0)),
                lambda: size(trace, scenario, objectives, Choices())):
        with pytest.raises(UsageError, match="generates no tokens, and has no time per output token; limit e2el"):
            ask()


def test_the_cards_of_a_replay_have_the_end_to_end_latency() -> None:
    summary = served([(0.0, 100), (1.0, 200)], gpu="l4").summary
    assert [card.title for card in cards(summary)] == ["End to end", "Served"]
    assert "embeddings/s" in cards(summary)[-1].beside
