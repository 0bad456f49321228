"""A comparison of all families on real text in the minutes that a GPU can be had, from where an earlier session ended."""

import time

BEGAN = time.monotonic()
"""When the program began, before it imported anything heavy."""
