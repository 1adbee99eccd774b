"""A replay: the state is laid out, the compiled loop runs, and its records become tables."""
