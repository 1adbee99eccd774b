"""KV blocks: prefix caching, tiers, transfers between engines, LoRA adapters."""
