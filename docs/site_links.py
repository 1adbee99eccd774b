"""Links of pages to files that the site leaves out, for mkdocs: they lead to the repository."""

import posixpath
import re
from typing import Any

LINK = re.compile(r"(\]\()([\w./-]+(?:#[^)\s]*)?)(\))")  # to a file or a folder, with or without an anchor


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Return a page whose links to files outside the site are addresses of the repository."""
    folder = posixpath.dirname(page.file.src_uri)

    def address(match: re.Match[str]) -> str:
        path, _, anchor = match[2].partition("#")
        target = posixpath.normpath(posixpath.join("docs", folder, path))
        published = files.get_file_from_path(target.removeprefix("docs/")) if target.startswith("docs/") else None
        if published is not None and published.inclusion.is_included():
            return match[0]
        return f"{match[1]}{config.repo_url.rstrip('/')}/blob/main/{target}{'#' + anchor if anchor else ''}{match[3]}"

    return LINK.sub(address, markdown)
