"""ATOM's rules written out plainly do what ATOM's own scheduler was recorded to do."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rules_atom import Request, Scheduler, replay

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).parents[3] / "shared"))
RECORDINGS = SHARED / "schedules_atom"
CASES = sorted(path.parent for path in RECORDINGS.glob("*/settings.json"))
IDS = {"request_id": pl.String}


@pytest.fixture(params=CASES or [RECORDINGS], ids=lambda path: path.name)
def case(request: pytest.FixtureRequest) -> Path:
    if not CASES:
        pytest.skip(f"no recordings in {RECORDINGS}; PLANNER_SHARED names the folder above schedules_atom/")
    path: Path = request.param
    return path


def test_the_rules_do_what_the_scheduler_did(case: Path) -> None:
    settings = json.loads((case / "settings.json").read_text())
    requests = read_requests(case / "trace.jsonl.gz")
    steps, preemptions = replay(requests, scheduler_of(settings), settings["step_base_s"], settings["step_per_token_s"])
    assert steps == rows(case / "steps.csv.gz")
    assert preemptions == rows(case / "preemptions.csv")
    recorded = pl.read_csv(case / "requests.csv", schema_overrides=IDS)
    for request, name, num_cached, first_s, finish_s in zip(requests, *recorded.get_columns(), strict=True):
        assert (request.name, request.num_cached or 0) == (name, num_cached or 0)
        assert (request.first_token_s, request.finished_s) == (first_s, finish_s)


def read_requests(trace: Path) -> list[Request]:
    records = [json.loads(line) for line in gzip.decompress(trace.read_bytes()).splitlines()]
    return [Request(r["request_id"], r["arrival_s"], prompt_of(r), r["output_tokens"],
                    r["output_tokens"] == r.get("max_output_tokens")) for r in records]


def prompt_of(record: dict[str, Any]) -> list[Any]:
    """Return the prompt's tokens; a prompt without ids shares nothing."""
    ids, num_tokens = record.get("hash_ids"), record["input_tokens"]
    if ids is None:
        return [(record["request_id"], k) for k in range(num_tokens)]
    return [(*ids[: k // record["hash_block_tokens"] + 1][-1:], k) for k in range(num_tokens)]


def scheduler_of(settings: dict[str, Any]) -> Scheduler:
    names = ("num_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len",
             "long_prefill_token_threshold", "scheduler_delay_factor", "enable_chunked_prefill",
             "enable_prefix_caching", "num_speculative_tokens")
    return Scheduler(num_accepted=settings.get("accept_cycle", [0])[0],
                     **{name: settings[name] for name in names if name in settings})


def rows(table: Path) -> set[Any]:
    return set(pl.read_csv(table, schema_overrides=IDS).iter_rows())
