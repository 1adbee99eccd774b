"""The catalog of GPUs and models: profiles, architectures, and where each number comes from."""
