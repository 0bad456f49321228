"""Correctness and speed on a GPU; see `benchmarks.gpu.__main__`."""

import time

BEGAN = time.monotonic()
"""The time at which the program began, before its imports."""
