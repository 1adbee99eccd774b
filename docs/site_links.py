"""Links of pages to files outside docs/, for mkdocs: they lead to the repository."""

import posixpath
import re
from typing import Any

LINK = re.compile(r"(\]\()((?:\.\./)+[^)\s]*|[\w./-]+/)(\))")  # to a parent folder, or to a folder


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Return a page whose links out of docs/ are addresses of the repository."""
    folder = posixpath.dirname(page.file.src_uri)

    def address(match: re.Match[str]) -> str:
        path, _, anchor = match[2].partition("#")
        target = posixpath.normpath(posixpath.join("docs", folder, path))
        if target.startswith("docs/") and files.get_file_from_path(target.removeprefix("docs/")):
            return match[0]
        return f"{match[1]}{config.repo_url.rstrip('/')}/blob/main/{target}{'#' + anchor if anchor else ''}{match[3]}"

    return LINK.sub(address, markdown)
