"""Slow, obvious twins of the native kernels, with their formulas. The tests compare with them; nothing else uses them."""
