"""Calibration: engine constants fitted to measurements, with their held-out error."""
