"""Measurements: runs, logs and metrics read from files, and the errors of predictions."""
