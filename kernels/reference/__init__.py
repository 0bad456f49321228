"""Slow, obvious twins of the native kernels, with the formula; what the tests trust. Nothing else uses them."""
