"""The time of a step: the operators of a forward pass under an engine, folded for the loop."""
