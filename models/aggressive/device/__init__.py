"""Drafting and verification whose passes have fixed shapes and never wait for the host, for decoding on GPUs."""
