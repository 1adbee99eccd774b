"""Results of a replay: its summary, the load of the hardware, its cost, and their uncertainty."""
