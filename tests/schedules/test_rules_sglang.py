"""SGLang's rules written out plainly do what SGLang's own scheduler was recorded to do."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rules_sglang import Scheduler, replay
from rules_sglang_memory import Request

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).parents[3] / "shared"))
CASES = sorted(path.parent for path in SHARED.glob("schedules_*/sg_*/settings.json"))


@pytest.fixture(params=CASES or [SHARED], ids=lambda path: path.name)
def case(request: pytest.FixtureRequest) -> Path:
    if not CASES:
        pytest.skip(f"no recordings in {SHARED}; PLANNER_SHARED names the folder above schedules_engines/")
    path: Path = request.param
    return path


@pytest.mark.slow
def test_the_rules_do_what_the_scheduler_did(case: Path) -> None:
    settings = json.loads((case / "settings.json").read_text())
    requests = read_requests(case / "trace.jsonl.gz")
    steps, preemptions = replay(requests, scheduler_of(settings), settings["step_base_s"], settings["step_per_token_s"])
    assert steps == rows(case / "steps.csv.gz")  # in batch order
    assert preemptions == set(rows(case / "preemptions.csv"))
    recorded = pl.read_csv(case / "requests.csv", schema_overrides={"request_id": pl.String})
    for request, name, num_cached, first_s, finish_s in zip(requests, *recorded.get_columns(), strict=True):
        assert (request.name, request.num_cached or 0) == (name, num_cached or 0)
        assert request.first_token_s == pytest.approx(first_s, abs=1e-9)
        assert request.finished_s == pytest.approx(finish_s, abs=1e-9)


def read_requests(trace: Path) -> list[Request]:
    records = [json.loads(line) for line in gzip.decompress(trace.read_bytes()).splitlines()]
    return [Request(r["request_id"], r["arrival_s"], prompt_of(r), r["output_tokens"], r.get("max_output_tokens"),
                    r.get("priority", 0)) for r in records]


def prompt_of(record: dict[str, Any]) -> list[Any]:
    """Return the prompt's tokens; a prompt without ids shares nothing."""
    ids, num_tokens = record.get("hash_ids"), record["input_tokens"]
    if ids is None:
        return [(record["request_id"], k) for k in range(num_tokens)]
    return [(ids[k // record["hash_block_tokens"]], k) for k in range(num_tokens)]


def scheduler_of(settings: dict[str, Any]) -> Scheduler:
    chunk = settings["chunked_prefill_size"]
    return Scheduler(
        num_pages=settings["num_pages"], page_size=settings["page_size"], chunk=chunk if chunk > 0 else None,
        max_prefill_tokens=settings["max_prefill_tokens"], seats=settings["max_running_requests"],
        context=settings["context_len"], conservativeness=settings.get("schedule_conservativeness", 1.0),
        caching=not settings.get("disable_radix_cache", True), mixed=settings.get("enable_mixed_chunk", False),
        by_priority=settings.get("server_args", {}).get("enable_priority_scheduling", False),
        lpm=settings.get("schedule_policy") == "lpm", overlap=settings.get("overlap", False),
    )


def rows(table: Path) -> list[Any]:
    return pl.read_csv(table, schema_overrides={"request_id": pl.String}).rows()
