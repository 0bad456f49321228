"""Run `python -m kernels.fast_align`."""

import sys

from kernels.fast_align.command_line import main

sys.exit(main())
