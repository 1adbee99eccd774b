"""Scripts that launch an engine: of a shell, of Python, and in notebooks."""
