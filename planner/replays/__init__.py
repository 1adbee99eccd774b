"""One replay: its state laid out, the compiled loop driven, and its records as tables."""
