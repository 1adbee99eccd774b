"""Measurements: a user's and published ones, read as runs, and how far predictions are from them."""
