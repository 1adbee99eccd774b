"""The model as it runs: its number formats, how it is spread over GPUs, its drafts and its matrix products."""
