"""The reference is what the code declares, and the glossary has every name that a replay writes, and no other."""

import subprocess
import sys
from pathlib import Path

import pytest

import planner
from planner.loop.state.engine_settings import Recording
from planner.replays.scaling_record import ScaleEvent, events_table
from planner.results import glossary
from planner.run import replay

ROOT = Path(__file__).resolve().parents[2]


def test_the_pages_are_what_the_code_declares(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "make_reference.py", tmp_path], check=True)
    pages = sorted((ROOT / "docs" / "reference").iterdir())
    assert [page.name for page in pages] == sorted(page.name for page in tmp_path.iterdir())
    for page in pages:
        written = (tmp_path / page.name).read_text(encoding="utf-8")
        assert written == page.read_text(encoding="utf-8"), "run make reference"


@pytest.mark.slow
def test_the_glossary_has_every_name_that_a_replay_writes(tmp_path: Path) -> None:
    """Of embeddings, one replica, fleets that hand requests over, pools, autoscaled fleets, and KV tiers.

    The explanation comes from another command's option, and figures of tenants from traces that have them.
    """
    path = tmp_path / "scale.toml"
    path.write_text('minimum = 1\nmaximum = 2\nstartup = { warmup_s = 9 }\n'
                    'metric = [{ name = "queue", target = 1 }]')
    (tmp_path / "fleet.toml").write_text("[[pool]]\nrole = 'prefill'\n[[pool]]\nrole = 'decode'\n")
    recording = Recording(steps=True, schedule=True)
    trace = planner.read_trace("chat")
    one = planner.Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=50, interval=0.8)
    split = planner.Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=50, data_parallel_size=2, prefill_replicas=1,
                             max_retries=1)
    pools = planner.Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=50, fleet=str(tmp_path / "fleet.toml"))
    scaled = planner.Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=50, autoscale=str(path))
    again = planner.Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=50, max_retries=1)
    tiers = planner.Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=50, enable_prefix_caching=True,
                             kv_offloading_size=8.0, kv_remote_size=8.0)
    outcomes = [replay(trace, scenario, slo="ttft:500 tpot:50", recording=recording)
                for scenario in (one, split, pools, scaled, tiers, again)]
    embeddings = planner.Scenario(model="qwen3-embedding-0.6b", gpu="h100-sxm", limit=50)
    outcomes.insert(0, replay(trace, embeddings, slo="e2el:500", recording=recording))
    of_commands = {"explanation", "replay_command", "tenants"}
    assert set().union(*(outcome.summary for outcome in outcomes)) | of_commands == set(glossary.SUMMARY)
    event = ScaleEvent(0.0, 1, 2, "queue", 2.0, 1.0, 2, "", "the pool's name")
    assert events_table([event]).columns == list(glossary.SCALE_EVENTS)
    assert events_table([event._replace(pool=None)]).columns == list(glossary.SCALE_EVENTS)[:-1]
    of_trace = {"tenant", "session_id", "priority", "deadline_s"}  # which this trace has not
    for name, table in (("requests", glossary.REQUESTS), ("steps", glossary.STEPS), ("schedule", glossary.SCHEDULE),
                        ("preemptions", glossary.PREEMPTIONS)):
        written = set().union(*(getattr(outcome.result, f"{name}_table")().columns for outcome in outcomes))
        assert written == set(table) - (of_trace if name == "requests" else set()), name
    apart, together = (outcomes[place].result.attempts_table().columns for place in (2, -1))
    assert list(glossary.ATTEMPTS) == apart
    assert [name for name in apart if name != "decode_replica"] == together
