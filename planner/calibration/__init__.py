"""Calibration: an engine's constants fitted to measurements, with their error on what was left out."""
