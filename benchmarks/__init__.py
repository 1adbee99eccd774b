"""Benchmarks: how fast replays are, how accurate predictions are, and the fits of the bundled constants."""
