"""The trace commands as their user meets them: output, exit codes, one clear line on stderr."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import LINEAR, fails, planner

HEADER = "arrival_s,input_tokens,output_tokens,tenant\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    rows = "".join(f"{k * 0.37 % 7 + k},{100 + k * 13 % 700},{1 + k % 30},{'ab'[k % 3 == 0]}\n" for k in range(300))
    path.write_text(HEADER + rows)
    return path


def test_describe_prints_and_writes(trace: Path, tmp_path: Path) -> None:
    run = planner("trace", "describe", trace, "--html", tmp_path / "t.html", "--json", tmp_path / "t.json")
    assert run.returncode == 0, run.stderr
    assert "Burstiness" in run.stdout
    assert "Tenants" in run.stdout
    assert "read 300 rows" in run.stderr
    assert json.loads((tmp_path / "t.json").read_text())["num_requests"] == 300
    assert (tmp_path / "t.html").stat().st_size > 100_000
    assert json.loads(planner("trace", "describe", trace, "--json", "-").stdout)["tenants"][0]["tenant"] == "a"


@pytest.mark.parametrize("text", [
    "arrival_s,input_tokens\n0,100\n1,20\n4,30\n", "arrival_s,input_tokens,output_tokens\n0,100,0\n1,20,0\n4,30,0\n",
    '{"arrival_s": 0, "input_tokens": 100}\n{"arrival_s": 1, "input_tokens": 20}\n'
    '{"arrival_s": 4, "input_tokens": 30}\n'])
def test_traffic_without_outputs_is_described(text: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(text)
    run = planner("trace", "describe", tmp_path / "log", "--html", tmp_path / "t.html", "--json", tmp_path / "t.json")
    assert run.returncode == 0, run.stderr
    assert "no outputs: traffic for embedding models or rerankers" in run.stderr
    assert "\n  output" not in run.stdout
    found = json.loads((tmp_path / "t.json").read_text())
    assert found["lengths"]["output_tokens"] is None
    assert found["lengths"]["input_tokens"]["mean"] == 50
    assert found["rates"] == {"requests_per_s": 0.5, "input_tokens_per_s": 30, "output_tokens_per_s": None}


@pytest.mark.parametrize(("text", "said"), [
    ("arrival_s,input_tokens,output_tokens\n0,100,0\n1,20,7\n", "output_tokens = 0; must be >= 1"),
    ("arrival_s,input_tokens,output_tokens\n0,100,-3\n1,20,-3\n", "output_tokens = -3; must be >= 1"),
    ("arrival_s,output_tokens\n0,100\n1,20\n", "input_tokens is missing")])
def test_traffic_with_some_outputs_or_wrong_ones_is_not(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(text)
    fails(planner("trace", "describe", tmp_path / "log.csv"), 3, said)


def test_a_model_is_fitted_saved_changed_and_drawn_from(trace: Path, tmp_path: Path) -> None:
    model, one, two = tmp_path / "model.toml", tmp_path / "one.csv", tmp_path / "two.csv"
    run = planner("trace", "synth", trace, "--fit", "--save", model, "--draws", 2, *LINEAR, "--slo", "ttft:5000",
                  "--json", tmp_path / "fit.json")
    assert run.returncode == 0, run.stderr
    assert "capacity [requests/s]" in run.stdout
    found = json.loads((tmp_path / "fit.json").read_text())
    assert found["closeness"]["predictions"]["capacity_rps"]["recorded"] > 0
    for path in (one, two):
        run = planner("trace", "synth", model, "--grow", 2, "--mix", "a=0.5", "--scale-input", 2, "--seed", 7,
                      "--add-tenant", f"c={model}@0.5", "--flash", "at=50,lasts=20,times=4", "--output", path)
        assert run.returncode == 0, run.stderr
    assert one.read_bytes() == two.read_bytes()
    assert "tenant" in one.read_text().splitlines()[0]
    replayed = planner("replay", one, *LINEAR, "--json", "-")
    assert json.loads(replayed.stdout)["completed"] == len(one.read_text().splitlines()) - 1


def test_convert_writes_and_says_what_is_lost(trace: Path, tmp_path: Path) -> None:
    run = planner("trace", "convert", trace, tmp_path / "out.csv", "--to", "vidur")
    assert run.returncode == 0, run.stderr
    assert "note: left out because vidur cannot store it: tenant of 300 requests" in run.stderr
    assert planner("trace", "convert", trace, "-", "--to", "vidur").stdout == (tmp_path / "out.csv").read_text()
    run = planner("trace", "convert", trace, tmp_path / "a.csv", "--anonymize", "--salt", "s")
    assert "checked: no text, and none of 2 names is in it" in run.stdout
    run = planner("trace", "convert", trace, tmp_path / "b.csv", "--to", "vidur", "--json", "-")
    assert json.loads(run.stdout)["lost"] == {"tenant": 300}
    assert (tmp_path / "a.csv").read_text().splitlines()[1].count(",") == 4


def test_stdout_is_written_to_whatever_it_leads_to(trace: Path, tmp_path: Path) -> None:
    """Piped or into a file, which is added to and not replaced; and a format of two files is refused."""
    command = f"{sys.executable} -m planner.commands.cli trace convert {trace} - --to vidur"
    done = subprocess.run(["bash", "-c", f"echo first > out.csv; {command} >> out.csv; {command} | cat > piped.csv"],
                          cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "wrote 300 requests as vidur: /dev/stdout" in done.stderr
    piped = (tmp_path / "piped.csv").read_text()
    assert piped.startswith("arrived_at,")
    assert (tmp_path / "out.csv").read_text() == f"first\n{piped}"
    fails(planner("trace", "convert", trace, "-", "--to", "blis"), 2, "--to blis writes 2 files", "give a name, not -")
    assert planner("trace", "convert", trace, "-", "--to", "vidur", "--json", tmp_path / "c.json").stdout == piped
    assert json.loads((tmp_path / "c.json").read_text())["num_requests"] == 300
    fails(planner("trace", "convert", trace, "-", "--to", "vidur", "--json", "-"), 2, "takes one of")


def test_a_drawn_trace_goes_on_through_a_pipe(tmp_path: Path) -> None:
    run = planner("trace", "synth", "fitted-chat", "--output", "-", "--to", "csv", "--json", tmp_path / "s.json")
    assert run.returncode == 0, run.stderr
    assert "rate" in run.stderr
    assert json.loads((tmp_path / "s.json").read_text())["drawn"] in run.stderr
    replayed = planner("replay", "-", *LINEAR, "--limit", 50, "--json", "-", stdin=run.stdout)
    assert json.loads(replayed.stdout)["completed"] == 50
    fails(planner("trace", "synth", "fitted-chat", "--output", "-", "--to", "csv", "--json", "-"), 2, "takes one of")


def test_a_link_stays_and_what_it_leads_to_is_replaced(trace: Path, tmp_path: Path) -> None:
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    link.symlink_to(real)
    assert planner("trace", "convert", trace, link, "--to", "vidur").returncode == 0
    assert link.is_symlink()
    assert real.read_text().startswith("arrived_at,")


def test_a_report_as_a_benchmark_report(trace: Path, tmp_path: Path) -> None:
    assert planner("replay", trace, *LINEAR, "--save", tmp_path / "run").returncode == 0
    run = planner("report", tmp_path / "run", "-o", tmp_path / "r.html", "--llmd", tmp_path / "r.yaml")
    assert run.returncode == 0, run.stderr
    assert "request_performance" in (tmp_path / "r.yaml").read_text()
    twice = planner("report", tmp_path / "run", tmp_path / "run", "-o", tmp_path / "r.html", "--llmd",
                    tmp_path / "s.yaml")
    fails(twice, 2, "a Benchmark Report is of one saved replay")


@pytest.mark.parametrize(("arguments", "code", "words"), [
    (("describe", "nowhere.csv"), 3, ("no such file",)),
    (("describe", "{trace}", "--cache-tokens", "0"), 2, ("must be above 0",)),
    (("synth", "chatt"), 2, ("is no workload", "--fit")),
    (("synth", "nowhere.toml"), 3, ("No such file",)),
    (("synth", "{trace}", "--fit", "--arrivals", "poison"), 2, ("did you mean 'poisson'",)),
    (("synth", "chat", "--flash", "at=1"), 2, ("must be at=SECONDS,lasts=SECONDS,times=FACTOR",)),
    (("synth", "chat", "--mix", "all"), 2, ("must be NAME=NUMBER",)),
    (("synth", "chat", "--add-tenant", "x"), 2, ("must be NAME=MODEL",)),
    (("synth", "{trace}", "--fit", "--slo", "ttft:5"), 2, ("need a deployment",)),
    (("synth", "chat", "--output", "{folder}/none/out.csv"), 2, ("the folder", "does not exist")),
    (("convert", "{trace}", "{folder}/out.txt"), 2, ("--to must be one of",)),
    (("convert", "{trace}", "{folder}/out.x", "--to", "mooncake"), 2, ("has no hash_ids",)),
])
def test_what_is_wrong_is_said_in_one_line(arguments: tuple[str, ...], code: int, words: tuple[str, ...], trace: Path,
                                           tmp_path: Path) -> None:
    fails(planner("trace", *(text.format(trace=trace, folder=tmp_path) for text in arguments)), code, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.csv"]


def test_a_damaged_model_is_refused(trace: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.toml"
    assert planner("trace", "synth", trace, "--fit", "--save", model).returncode == 0
    good = model.read_text()
    for old, new, word in (("rate_per_s = ", "rate_per_s = -", "must be a number, finite and > 0"),
                           ('process = "', 'process = "x', "unknown arrival process"),
                           ('kind = "alone"', 'kind = "lone"', "did you mean 'alone'"),
                           ("start_s = 0", "start_s = 5", "must start at 0"),
                           ("[[tenants.epochs]]", "[[tenants.epoch]]", "must be one table or more")):
        assert old in good
        model.write_text(good.replace(old, new))
        fails(planner("trace", "synth", model), 3, word)
