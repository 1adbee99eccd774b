"""Foundations of compiled code: Numba and its cache, queues, heaps, random numbers."""
