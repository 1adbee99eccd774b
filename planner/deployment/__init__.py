"""A scenario made concrete: memory and its tiers, the files of fleets and autoscalers, limits."""
