"""Why a replay came out as it did: phases, limits and spans of time, from its tables."""
