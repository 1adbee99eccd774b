"""GPU profiles and model architectures, each number with its source."""
