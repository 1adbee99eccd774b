"""Results of SGLang's `bench_serving --output-details`: JSONL, one object a run, without the times of sending."""

from planner.traces.formats.vllm_bench import SKIPS, client_notes, is_run, is_sglang, requests_of
from planner.traces.reader import OBJECTS, Reader

SGLANG_BENCH = Reader(
    name="sglang-bench",
    meaning="SGLang bench_serving --output-details: JSONL with a list of every request's times",
    layouts=OBJECTS,
    columns={name: name for name in ("input_tokens", "output_tokens", "ttft_s", "e2e_s", "cached_tokens", "error")},
    time="s; when requests were sent is not recorded",
    tokens="the client's tokenizer (input), the server's usage (output)",
    matches=lambda head: is_run(head) and is_sglang(head),
    arrivals="absent",
    rows=requests_of,
    single=True,
    skips=SKIPS,
    head_notes=client_notes,
)
