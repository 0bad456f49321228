"""Searches whose steps have fixed shapes and never wait for the host, for decoding on GPUs."""
