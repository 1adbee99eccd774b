"""Deployment files that launch an engine: one module for each kind, and the table of kinds."""
