"""Benchmark reports without requests: their statistics, their load, and the deployment that they name."""
