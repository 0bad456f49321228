"""Slow, obvious twins of the native kernels, with their formulas; what the tests trust. Nothing else uses them."""
