"""The model as deployed: number formats, sharding over GPUs, matrix products, draft models."""
