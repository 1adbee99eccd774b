"""Planning questions: capacity, sizing, sweeps, comparisons, and the CI gate."""
