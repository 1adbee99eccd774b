"""The command line: commands, their options, and progress."""
