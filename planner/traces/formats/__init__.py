"""Trace formats, one file each, and how the format of a file is found."""
