"""Answers: the highest rate, the fewest GPUs, the best settings, and the gate that holds them."""
