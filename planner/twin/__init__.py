"""The twin: a server that answers as the planned deployment would, in real time or faster."""
