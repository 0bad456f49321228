"""Shift the wall clock of a Python process by FEWSTEP_CLOCK_SKEW seconds. Python imports this module first if it is on the path."""

import os
import time

_real, _skew = time.time, float(os.environ.get("FEWSTEP_CLOCK_SKEW", "0"))
time.time = lambda: _real() + _skew
