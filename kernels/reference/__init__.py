"""Slow, obvious reference implementations of the native kernels, with their formulas. Only the tests use them."""
