"""Native networks of every family, for inference on a CPU."""
