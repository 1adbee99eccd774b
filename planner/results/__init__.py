"""Results of a replay: summary, hardware load, cost, uncertainty, notes and causes."""
