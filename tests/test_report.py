"""The report: its numbers are the summary's, it loads nothing, and no name in it can do harm."""

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from helpers import EVERYTHING, scenario_of, trace_of
from plotly.offline import get_plotlyjs

from planner.errors import OutputError, PlannerError, UsageError
from planner.files.keys import fromdict
from planner.report import content, markdown, page
from planner.report.markdown import to_markdown
from planner.report.page import to_html
from planner.report.written import write_report
from planner.results.causes import explain
from planner.results.saved import SavedResult, load_result, to_json
from planner.results.summary import PERCENTILES
from planner.results.summary_answer import Summary
from planner.run import replay

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'|`x`[l](https://e.v)\n\u202e\udc80<!--"


@pytest.fixture(scope="module")
def result() -> SavedResult:
    rows = [(0.1 * k, 40 + k, 1 + k % 9) for k in range(30)]
    outcome = replay(trace_of(rows), scenario_of(), slo="ttft:50", recording=EVERYTHING)
    return SavedResult(name="first", summary=fromdict(Summary, json.loads(to_json(outcome.summary))),
                       requests=outcome.result.requests_table(), steps=outcome.result.steps_table())


@pytest.fixture(scope="module")
def hostile(result: SavedResult) -> SavedResult:
    workload = {**result.summary.workload, "source": f"/traces/{HOSTILE}", "dropped": {HOSTILE: 3}, HOSTILE: HOSTILE}
    deployment = {**result.summary.deployment, "model": HOSTILE, "gpu": HOSTILE}
    policy = {**result.summary.policy, "name": HOSTILE}
    return replace(result, name=HOSTILE, summary=replace(
        result.summary, workload=workload, deployment=deployment, policy=policy, notes=(HOSTILE,)))


class Page(HTMLParser):
    """What a browser would find in a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.stack: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.stack[-1] if self.stack else "", []).append(data)

    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.texts["script"][0])
        return found


def test_numbers_are_those_of_the_summary(result: SavedResult) -> None:
    shown = {attrs["value"] for tag, attrs in Page(to_html([result])).tags if tag == "data"}
    keys = [f"{name}_{metric}_ms" for metric in ("ttft", "tpot", "itl", "e2el", "queue")
            for name in ("mean", "median", "std", *(f"p{p}" for p in PERCENTILES))]
    for key in [*keys, "completed", "output_throughput", "slo_attainment", "num_steps", "num_gpu_blocks", "duration"]:
        assert repr(result.summary[key]) in shown, key
    assert {"50.0", repr(result.summary["workload"]["rows_read"])} <= shown


def test_several_are_compared_with_the_first(result: SavedResult) -> None:
    figures = result.summary.figures
    slower = replace(figures, ttft=replace(figures.ttft, mean=1.1 * (figures.ttft.mean or 0.0)))
    second = replace(result, summary=replace(
        result.summary, figures=slower, policy={**result.summary.policy, "max_num_seqs": 7}))
    page = Page(to_html([result, second]))
    assert "(+10.0 %)" in page.texts["small"]
    assert "≠ max_num_seqs" in page.texts["th"]
    assert page.texts["th"].count("first (2)") >= 2
    text = to_markdown([result, second])
    assert re.search(r"\| mean_ttft_ms \| \S+ \| \S+ \(\+10\.0 %\) \|", text)
    assert "| **max_num_seqs** (differs) | 128 | 7 |" in text


def test_it_says_why(result: SavedResult) -> None:
    """As the tables say; with the advice where the replay was explained, and the difference to the first."""
    why = explain(result.requests, result.steps)
    advised = replace(result, name="second", summary=replace(
        result.summary, explanation={"advice": {"sentence": "change nothing"}}))
    page, text = to_html([result, advised]), to_markdown([result, advised])
    for shown in (page, text.replace("\\", "")):
        assert f"first: {why['sentence']}".replace("'", "&#x27;" if shown is page else "'") in shown
        assert "second: change nothing" in shown
        assert "second against the first: a request takes as long on average" in shown
    assert "explanation" not in text


def test_nothing_is_loaded(result: SavedResult) -> None:
    html = to_html([result, result])
    page = Page(html)
    assert {"src", "href", "srcset", "action", "background"}.isdisjoint(
        name for tag, attrs in page.tags for name in attrs)
    assert not re.search(r"url\(|@import", "".join(page.texts["style"]))
    assert len(html.encode()) < 2_500_000
    _, packed, drawing = page.texts["script"]
    scripts = [gzip.decompress(base64.b64decode(packed)).decode(), drawing]
    policy = next(attrs["content"] for tag, attrs in page.tags if "http-equiv" in attrs) or ""
    assert "default-src 'none'" in policy
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == digests
    assert scripts[0] == get_plotlyjs()
    assert "showSendToCloud: false" in drawing


def test_every_figure_has_its_place(result: SavedResult) -> None:
    page = Page(to_html([result]))
    figures = page.figures()["figures"]
    assert set(figures) == {attrs["id"] for tag, attrs in page.tags if tag == "div" and "id" in attrs}
    assert len(figures) == 9
    assert page.figures()["templates"].keys() == {"light", "dark"}


def test_a_listing_has_words_on_the_left_and_numbers_on_the_right() -> None:
    listing = content.Listing(title="", columns=("who", "error", "why"),
                              rows=[("h100", "4.0 %", None), ("1.7b", "–", "x" * 31 + "<b>")])
    assert markdown.rows_under_names(listing) == [
        "| who | error | why |", "| --- | ---: | --- |", "| h100 | 4.0 % | – |",
        f"| 1.7b | – | {'x' * 31}&lt;b> |"]
    html = page.rows_under_names(listing)
    assert '<th scope="col" class="words">who</th><th scope="col">error</th>' in html
    assert '<td class="words">1.7b</td><td>–</td><td class="long words">' in html
    assert "<b>" not in html


def test_names_do_no_harm_in_html(result: SavedResult, hostile: SavedResult) -> None:
    for results in ([hostile], [hostile, result, hostile]):
        page = Page(to_html(results))
        assert [tag for tag, _ in page.tags].count("script") == 3
        assert not {"img", "a", "iframe", "object"} & {tag for tag, _ in page.tags}
        assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
        assert all(not (trace.get("name") or "").count("<script") for figure in page.figures()["figures"].values()
                   for trace in figure["data"])


def test_names_do_no_harm_in_markdown(hostile: SavedResult, result: SavedResult) -> None:
    text = to_markdown([hostile, result])
    assert "<" not in text
    assert not re.search(r"(?<!\\)(`|\]\()", text)
    assert "\u202e" not in text
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()} == {4}


def test_both_files_are_written(tmp_path: Path, hostile: SavedResult) -> None:
    paths = write_report([hostile], tmp_path / "out.html")
    assert paths == [tmp_path / "out.html", tmp_path / "out.md"]
    assert sorted(tmp_path.iterdir()) == paths
    assert paths[0].read_text(encoding="utf-8") == to_html([hostile])  # the same result gives the same report


def test_an_empty_result_has_a_report(result: SavedResult) -> None:
    empty = replace(result, requests=result.requests.head(0), steps=result.steps.head(0))
    assert "no steps were recorded" in to_html([empty])
    assert to_markdown([empty]).startswith("# Replay of test\n")


def test_a_folder_without_a_summary_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(PlannerError, match=r"cannot read the result .*: completed: is missing; write one with planner"):
        load_result(tmp_path)


@pytest.mark.parametrize(("count", "name", "kind", "message"), [
    (0, "out.html", UsageError, "at least one result"),
    (1, "out.md", UsageError, r"the ending must be \.html"),
    (1, "missing/out.html", OutputError, "cannot write"),
])
def test_errors(tmp_path: Path, result: SavedResult, count: int, name: str, kind: type[PlannerError],
                message: str) -> None:
    with pytest.raises(kind, match=message):
        write_report([result] * count, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_table_that_lacks_a_column_is_named(tmp_path: Path, result: SavedResult) -> None:
    with pytest.raises(PlannerError, match="result 'first': its steps lack num_running, lm_head_s"):
        write_report([replace(result, steps=result.steps.drop("num_running", "lm_head_s"))], tmp_path / "out.html")


@pytest.mark.parametrize(("value", "unit", "text"), [
    (0.99996, "%", "99.996 %"), (0.9984, "%", "99.8 %"), (1.0, "%", "100 %"),
    (True, "", "yes"), (0.00012, "USD", "0.00012 USD"),
    (3, "", "3"), (11.0459, "/s", "11.046/s"), (0.0, "", "0.0"), ("a\nb", "", "a\ufffdb"), (512, "bytes", "512 B"),
])
def test_values_as_text(value: object, unit: str, text: str) -> None:
    assert content.value_text(value, unit) == text
