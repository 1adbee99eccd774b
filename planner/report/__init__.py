"""Reports: offline HTML, Markdown, and the text that commands print."""
