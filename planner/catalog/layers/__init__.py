"""Kinds of layers: attention, its indexers and MLPs, each with its weights, its cache and its shapes."""
