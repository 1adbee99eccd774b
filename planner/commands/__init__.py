"""The commands: their options, and what each does."""
