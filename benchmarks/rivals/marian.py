"""Marian's decoder for CPUs (bergamot, 8-bit products by intgemm) with the settings of Mozilla's pipeline, in a process of its own
with as many workers as threads, among which it splits a batch."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from benchmarks.decoding.networks import VOCABULARY, Layers
from benchmarks.decoding.random_systems import SHORTLIST, lexicon
from benchmarks.rivals import marian_files
from fewstep.config.network import SIZES
from stages.benchmark.rivals.process import Process, environment

WORKER = Path(__file__).with_name("bergamot_worker.py")
TEST_PROGRAM = "import importlib.util; assert importlib.util.find_spec('bergamot')"


class Bergamot:
    """A network of random weights with a shortlist, in files in `folder`. `batch` is the largest number of sentences."""

    def __init__(self, python: str, folder: Path, size: str, layers: Layers, tokens: int, batch: int) -> None:
        """Raise RuntimeError if the interpreter `python` does not have the package `bergamot`."""
        tried = subprocess.run([python, "-c", TEST_PROGRAM], env=environment({}), capture_output=True, text=True, check=False)
        if tried.returncode:
            raise RuntimeError(
                f"--bergamot: expected an interpreter with the package bergamot, found {python}: {tried.stderr[-200:]}"
            )
        shape, links = SIZES[size], lexicon(size).linked_tokens
        assert links is not None
        self._python, self._words, self._batch = python, tokens + 1, batch
        self._files = marian_files.write(
            folder / f"marian-{layers[0]}-{layers[1]}",
            layers=layers,
            width=shape["width"],
            feed_forward=shape["feed_forward"],
            heads=shape["heads"],
            vocabulary=VOCABULARY[size],
            links=links,
            common=SHORTLIST.tokens or 0,
        )
        self.process = cache(self._process)

    def _process(self, threads: int, batch: int) -> Process:
        found = Process([self._python, str(WORKER), str(threads)], {})
        found.tell(marian_files.configuration(self._files, -(-batch // threads) * self._words, self._words))
        return found

    def milliseconds(self, sources: Sequence[Sequence[int]], threads: int, seconds: float) -> float:
        """Return the mean time of a sentence, from text to text."""
        batch = len(sources) if threads > 1 else self._batch  # a single worker does not have to split a batch
        found = self.process(threads, batch).ask({"texts": marian_files.text(sources), "seconds": seconds})
        assert min(found["words"]) >= len(sources[0]), f"expected outputs of {len(sources[0])} tokens, found {min(found['words'])}"
        milliseconds: float = found["milliseconds"]
        return milliseconds
