"""`python -m tests.fewstep.serve.program ARGUMENTS`: the command `serve` with systems that take `DELAY` seconds for each batch."""

import os
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import fewstep.system.load
from fewstep.serve.command import main

DELAY = float(os.environ.get("DELAY", "0"))


@dataclass
class Slow:
    """A decoder that takes its time."""

    decoder: Any

    def __getattr__(self, name):
        return getattr(self.decoder, name)

    def decode(self, *arguments):
        """Return the hypotheses after a while."""
        time.sleep(DELAY)
        return self.decoder.decode(*arguments)


def load(directory):
    """Return a system that takes its time."""
    system = fewstep.system.load.load(directory)
    return replace(system, decoder=Slow(system.decoder)) if DELAY else system


if __name__ == "__main__":
    sys.exit(main(load=load))
