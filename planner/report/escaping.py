"""Text in Markdown, shown as it is: only characters that Markdown and GitHub would read as markup are escaped."""

import re

from planner.report.figures.style import clean

# Each mark is escaped if it could end or be markup. A mark that can only begin some is left: alone it means nothing.
# The rules are CommonMark 0.31 (https://spec.commonmark.org/0.31.2/) and GitHub Flavored Markdown.
_INLINE = re.compile("|".join((
    r"\\(?=[!-/:-@\[-`{-~])",  # a backslash that would escape
    r"`",  # code
    r"(?<=\S)[*~$]",  # the end of emphasis, of strikethrough, of GitHub's mathematics
    r"(?<=\S)_(?![^\W_])",  # the end of emphasis; inside a word an underscore has no meaning
    r"\](?=[(\[])|\[(?=\^)",  # a link, a footnote
    r":(?=//|[a-z0-9_+-]+:)",  # an address, an emoji
    r"(?<=\bwww)\.",  # an address
)))
_HTML = re.compile(r"<(?=[A-Za-z/!?])|&(?=#?\w+;)")
_FIRST = re.compile("|".join((  # of a line
    r"(?:#{1,6}|[-+*])(?=\s|$)",  # a heading, a list
    r"\d+(?=[.)](?:\s|$))",  # a numbered list; its full stop is escaped
    r">",  # a quotation
    r"[-*_](?=(?:\s*[-*_])+\s*$)",  # a rule across the page
    r"\[(?=[ xX]\]|[^\]]*\]:)",  # a task, a definition
)))


def escape(text: object) -> str:
    """Return a line of text for Markdown: no markup, links or HTML come of it.

    >>> escape("p99_ttft_ms [ms]: 1 missed of `c` <img src=x> https://d.e")
    'p99_ttft_ms [ms]: 1 missed of \\\\`c\\\\` &lt;img src=x> https\\\\://d.e'
    """
    line = _inline(text)
    first = _FIRST.match(line)
    if first is None:
        return line
    place = first.end() if first[0].isdigit() else 0
    return f"{line[:place]}\\{line[place:]}"


def escape_cell(text: object) -> str:
    """Return text for a cell of a table, in which no line begins and a bar ends the cell.

    >>> escape_cell("a|b")
    'a\\\\|b'
    """
    return _inline(text).replace("|", "\\|")


def _inline(text: object) -> str:
    shown = clean(text).strip()
    return _HTML.sub(lambda mark: {"<": "&lt;", "&": "&amp;"}[mark[0]], _INLINE.sub(r"\\\g<0>", shown))
