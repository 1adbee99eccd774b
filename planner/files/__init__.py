"""Reading and writing files: whole or not at all, tables, numbers and nesting that can be trusted."""
