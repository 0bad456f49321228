"""Slow, obvious twins of the kernels: what their tests trust."""
