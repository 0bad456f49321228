"""`python -m tests.fewstep.serve.program ARGUMENTS`: the command `serve` with systems that are slow or fail.

`DELAY` is the number of seconds of each batch. No batch is decoded while there is a file `GATE`. `FAULT` is `memory` or `error`:
sentences of more than `MAX_TOKENS` tokens then do not fit into memory, or raise another error.
"""

import os
import sys
import time
from argparse import ArgumentParser
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fewstep.system.load
from fewstep.commands.serve import add_arguments, run

DELAY, FAULT, GATE = float(os.environ.get("DELAY", "0")), os.environ.get("FAULT"), os.environ.get("GATE")
MAX_TOKENS = 8


@dataclass
class Disturbed:
    """A decoder that takes its time, or fails."""

    decoder: Any

    def __getattr__(self, name):
        return getattr(self.decoder, name)

    def prepare(self, sources, search=None, threads=None):
        """Return the length of the longest source, and what the search needs."""
        return max(map(len, sources)), self.decoder.prepare(sources, search, threads)

    def decode(self, prepared, *options):
        """Return the hypotheses after a while. Raises the error of `FAULT` for a long source."""
        time.sleep(DELAY)
        while GATE and Path(GATE).exists():
            time.sleep(0.01)
        longest, ready = prepared
        if FAULT and longest > MAX_TOKENS:
            raise MemoryError("no memory") if FAULT == "memory" else RuntimeError("broken inside")
        return self.decoder.decode(ready, *options)


def load(directory):
    """Return a disturbed system."""
    system = fewstep.system.load.load(directory)
    return replace(system, decoder=Disturbed(system.decoder)) if DELAY or FAULT or GATE else system


if __name__ == "__main__":
    parser = ArgumentParser()
    add_arguments(parser)
    sys.exit(run(parser.parse_args(), load))
