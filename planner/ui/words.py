"""Words of the library as a page shows them: plain to Markdown, and without paths of the server."""

import html
import os
import re
import sys
import tempfile
from pathlib import Path

from planner.catalog.catalog_files import gpu_names
from planner.catalog.gpu_label import gpu_label
from planner.settings.scenario import LABELS

MARKS = "\\`*_{}[]()#+-.!|<>$:~"
SAMPLES = {  # as people call their traffic
    "chat": "chatbot", "code": "code completion", "long-context": "long documents",
    "rag": "RAG: retrieved passages", "agents": "agents",
    "batch": "batch: no users wait", "rollouts": "rollouts of a trainer",
    "fitted-chat": "chatbot, fitted to a log", "fitted-code": "code, fitted to a log",
    "fitted-long-chat": "long conversations, fitted to a log"}


def log_words(name: str) -> str:
    """Return a sample as people call their traffic; another log by its name.

    >>> log_words("chat"), log_words("june.csv")
    ('chatbot', 'june.csv')
    """
    return SAMPLES.get(name, name)


def sentence(text: str) -> str:
    """Return text that begins with a capital letter.

    >>> sentence("a request takes 1 s"), sentence("TTFT is missed")
    ('A request takes 1 s', 'TTFT is missed')
    """
    return text[:1].upper() + text[1:]


def with_labels(text: str) -> str:
    """Return text in which GPUs of the catalog and options have their names in words.

    >>> with_labels("57 × l40s on demand"), with_labels("max_num_batched_tokens was reached")
    ('57 × L40S on demand', '"chunk size" was reached')
    """
    def worded(found: re.Match[str]) -> str:
        return f'"{LABELS[found[0]].words}"' if found[0] in LABELS else gpu_label(found[0])

    return re.sub(r"(?<![\w.-])[a-z0-9]+(?:[_-][a-z0-9]+)*(?![\w-])", lambda found: worded(found)
                  if "_" in found[0] or found[0] in gpu_names() else found[0], text)


def plain(text: str) -> str:
    """Return text that Markdown shows as it is: the entities that Plotly reads undone, marks escaped."""
    return "".join(f"\\{char}" if char in MARKS else char for char in html.unescape(text))


def without_paths(text: str) -> str:
    """Return text in which files of the server, of its programs and of its temporary folder, have their names alone.

    >>> without_paths(f"{tempfile.gettempdir()}/tmpx1/runs.csv: row 3 is wrong")
    'runs.csv: row 3 is wrong'
    """
    roots = {tempfile.gettempdir(), str(Path(__file__).resolve().parents[2]), sys.prefix, str(Path.home()), os.getcwd()}
    for root in sorted(roots - {os.sep}, key=len, reverse=True):
        text = re.sub(rf"{re.escape(root)}[/\\](?:[^\s:;,'\"()]*[/\\])?([^\s/\\:;,'\"()]*)", r"\1", text)
    return text
