"""Marian's decoder for CPUs (bergamot, 8-bit products by intgemm) as an entry, in a process of its own."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.decoding import marian_files
from benchmarks.decoding.networks import VOCABULARY, Layers
from benchmarks.decoding.random_systems import SHORTLIST, Decode, lexicon
from fewstep.config.network import SIZES

WORKER = Path(__file__).with_name("bergamot_worker.py")
TEST_PROGRAM = "import bergamot; bergamot.Service"


class Worker:
    """A process with a model. `id_` is its process id."""

    def __init__(self, python: str, threads: int, configuration: str) -> None:
        self._process = subprocess.Popen(
            [python, str(WORKER), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.id_ = self._process.pid
        self._send(configuration)

    def __call__(self, texts: list[str]) -> list[int]:
        """Return the number of words of each translation. Raises RuntimeError if the process has ended."""
        self._send(texts)
        assert self._process.stdout is not None
        if not (answer := self._process.stdout.readline()):
            raise RuntimeError(f"{WORKER.name}: expected an answer, found the end of the process; run it by hand for its message")
        found: list[int] = json.loads(answer)
        return found

    def _send(self, value: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()


class Bergamot:
    """A decoder that splits a batch among as many workers as there are threads."""

    def __init__(self, python: str, size: str, layers: Layers, tokens: int, batch: int) -> None:
        shape, links = SIZES[size], lexicon(size).linked_tokens
        assert links is not None
        self._python, self._words = python, batch * (tokens + 1)
        self._folder = TemporaryDirectory(prefix="fewstep-marian-")
        self._files = marian_files.write(
            Path(self._folder.name),
            layers=layers,
            width=shape["width"],
            feed_forward=shape["feed_forward"],
            heads=shape["heads"],
            vocabulary=VOCABULARY[size],
            links=links,
            common=SHORTLIST.tokens or 0,
        )
        self.worker = cache(self._worker)

    def _worker(self, threads: int) -> Worker:
        words = -(-self._words // threads)
        return Worker(self._python, threads, marian_files.configuration(self._files, words))

    def __call__(self, sources: list[list[int]]) -> object:
        found = self.worker(torch.get_num_threads())(marian_files.text(sources))
        assert min(found) >= len(sources[0]), f"expected outputs of {len(sources[0])} tokens, found {min(found)}"
        return found


def by_bergamot(python: str, size: str, layers: Layers, tokens: int, batch: int) -> Decode:
    """Return the decoder. `python` is an interpreter with the package `bergamot`; raises RuntimeError if it has none."""
    tried = subprocess.run([python, "-c", TEST_PROGRAM], capture_output=True, text=True, check=False)
    if tried.returncode:
        raise RuntimeError(f"--bergamot: expected an interpreter with the package bergamot, found {python}: {tried.stderr[-200:]}")
    return Bergamot(python, size, layers, tokens, batch)
