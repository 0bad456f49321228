"""Threads that cannot be started are an error, tokens may be banned twice, and searches keep the models that they use."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from fewstep import BeamOptions, SlotRules, Transformer, TransformerShape
from fewstep.native import fewstep_native
from kernels import NgramModel
from tests.fewstep.networks.test_transformer import arrays_for

STACK_KIB = 1 << 20
"""Stack of a thread: so large that the limit of memory stops threads while there is memory for everything else."""

PROGRAM = """
import resource, sys
import numpy as np
from fewstep import BeamOptions, SlotRules, Transformer, TransformerShape
from kernels.symmetrize import symmetrize_arrays
from tests.fewstep.networks.test_transformer import arrays_for, run
shape = TransformerShape(encoder_layers=1, decoder_layers=1, width=64, feed_forward=512, heads=2, norm="pre")
transformer = Transformer(arrays_for(shape, 0, vocabulary=3000), shape=shape)
task = [[7, 8, 9]], [4], BeamOptions(beam_size=1), SlotRules(min_tokens=4)
expected = run(transformer, "greedy", *task)
starts, links = np.arange(1001), np.zeros(1000, np.int32)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (11 << 29), resource.RLIM_INFINITY))  # stacks of five threads, and half of one
def align():
    symmetrize_arrays(starts, links, starts, links, "union", threads=500)
for call in (lambda: run(transformer, "greedy", *task, threads=500), align):
    try:
        call()
        sys.exit("500 threads were started")
    except OSError as error:
        assert "threads: the system started" in str(error) and "use fewer threads" in str(error), error
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert run(transformer, "greedy", *task, threads=3) == expected
print("answered")
"""


def test_threads_that_cannot_be_started_are_an_error_and_no_deadlock() -> None:
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = ["sh", "-c", f'ulimit -s {STACK_KIB} && exec "$@"', "sh", sys.executable, "-c", PROGRAM]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "answered\n"), found.stderr


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("members", [1, 2])
def test_a_token_may_be_banned_twice(precision: str, members: int) -> None:
    """Its probability counted in the sum of a row only until the ban was lifted in the order of the bans."""
    shape = TransformerShape(encoder_layers=1, decoder_layers=1, width=16, feed_forward=16, heads=2, norm="pre")
    kind: Any = precision
    first, *others = (Transformer(arrays_for(shape, seed), shape=shape, precision=kind) for seed in range(members))
    for name, options in (("greedy", BeamOptions(beam_size=1)), ("beam_search", BeamOptions(beam_size=3, n_best=3))):
        once, twice = SlotRules(banned=(0, 1, 3, 9), min_tokens=3), SlotRules(banned=(9, 0, 1, 3, 9, 9, 0), min_tokens=3)
        search = getattr(first, name)
        found = [
            search(np.array([[7, 8, 5, 2]]), np.array([4]), np.array([6]), options=options, rules=rules, others=others)
            for rules in (once, twice)
        ]
        assert found[0] == found[1]


def test_a_beam_keeps_its_language_model() -> None:
    model = NgramModel.estimate([["a", "b"], ["b"]], 2, discount_fallback=(0.5, 1.0, 1.5))
    scorer = model.for_vocabulary(["a", "b", "</s>", "<pad>"]).native
    options: dict[str, Any] = {"beams": 2, "step_size": 2, "per_direction": False, "selection": "exact", "eos": 2, "pad": 3}
    options |= {"n_best": 1, "alpha": 0.6, "gnmt": False, "beam_threshold": 1e9, "ngram_weight": 0.5, "right_to_left": [False]}
    options["ngram"] = scorer
    before = sys.getrefcount(scorer)
    beam = fewstep_native.make_beam([4], **options)
    assert sys.getrefcount(scorer) == before + 1
    del beam
    assert sys.getrefcount(scorer) == before
    assert fewstep_native.make_beam([4], **{**options, "ngram": None, "ngram_weight": 0.0}) is not None
