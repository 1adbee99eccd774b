"""Assistants: the commands as tools of a Model Context Protocol server, each call in a bounded process."""
