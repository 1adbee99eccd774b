"""Text in Markdown is shown as it is, and what needs no escape has none."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from planner.report.escaping import escape, escape_cell
from planner.report.markdown import table_line

RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
TEXTS = st.text(alphabet="ab1 \\`*_{}[]()#!|~<>&;/.-+=^", min_size=1, max_size=14)


def text_of(markdown: str, kinds: tuple[str, ...]) -> list[str]:
    """Return the plain text of each line that Markdown makes, and assert that these kinds of block are all there are.
    """
    lines = []
    for token in RENDERER.parse(markdown):
        assert token.type.removesuffix("_open").removesuffix("_close") in (*kinds, "inline"), token.type
        if token.type == "inline":
            parts = token.children or []
            assert {part.type for part in parts} <= {"text"}, markdown
            lines.append("".join(part.content for part in parts))
    return lines


@given(TEXTS.filter(str.strip))
@example("**bold** _a_ __init__ a_b ~~c~~ [x](y) ![x](y) <b>c</b> &amp; `d`")
@example("C:\\new\\*")
@example("[a]: /b")
@example("1) b")
@example("- - -")
@example("[x] b")
def test_a_line_is_shown_as_it_is(text: str) -> None:
    assert text_of(f"- {escape(text)}", ("bullet_list", "list_item", "paragraph")) == [text.strip()]


@given(TEXTS)
@example("a|b\\|c")
@example("# 1")
def test_a_cell_is_shown_as_it_is(text: str) -> None:
    table = "\n".join(map(table_line, (["name", "value"], ["---", "---"], ["x", escape_cell(text)])))
    kinds = ("table", "thead", "tbody", "tr", "th", "td")
    assert text_of(table, kinds) == ["name", "value", "x", text.strip()]


@pytest.mark.parametrize("text", [
    "p99_ttft_ms", "1 target: 1 missed", "time to first token [ms]", "2.99 USD/h", "~5 ms", "2 * 3", "a #1",
    "100.0 % of 8,192 (vllm serve: 1,024)", "350.0 (+77.8%)", "≤ 450", "a < b > c & d", "{chat}",
    "slo ttft:500 tpot:50",
    "1.5 requests/s", "llama-3.1-8b on 2 × h100-sxm!"])
def test_what_is_no_markup_has_no_escape(text: str) -> None:
    assert escape(text) == escape_cell(text) == text


@pytest.mark.parametrize(("text", "shown"), [
    ("see https://a.b", "see https\\://a.b"), ("www.a.b", "www\\.a.b"), (":smile:", "\\:smile:"), ("$a$", "$a\\$")])
def test_what_github_adds_is_escaped(text: str, shown: str) -> None:
    assert escape(text) == escape_cell(text) == shown
