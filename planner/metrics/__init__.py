"""What a replay came to: its summary, how hard the hardware worked, its cost, and how sure that is."""
