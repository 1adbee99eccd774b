"""Trace-driven capacity planning and what-if analysis for LLM serving."""
