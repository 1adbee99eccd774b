"""A scenario made concrete: memory plan, KV tiers, pools of a fleet, autoscalers, limits."""
