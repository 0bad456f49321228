"""Other engines as entries of a table, each with its fastest settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from benchmarks.decoding.networks import VOCABULARY, Layers, sentences
from benchmarks.decoding.rounds import SECONDS, Turn
from benchmarks.rivals.ctranslate2_settings import Model, Setting, Trial, fastest
from benchmarks.rivals.marian import Bergamot
from fewstep.config.network import SIZES
from stages.benchmark.rivals.process import Process


def named(layers: Layers) -> str:
    return f"{layers[0]}-{layers[1]}"


class CTranslate2:
    """CTranslate2 with networks of random weights, by the settings that were the fastest in trials."""

    def __init__(self, folder: Path, size: str, tokens: int, trials: Sequence[Trial]) -> None:
        self._size = size
        self._tokens = tokens
        self._trials = trials
        self._model = cache(lambda layers: Model(folder, size, layers))
        self._process: Callable[[Layers, Setting], Process] = cache(lambda layers, setting: self._model(layers).process(setting))
        self.mebibytes: dict[str, float] = {}
        """The memory that the last answered entry added to its process."""

    def turns(self, entry: str, layers: Layers, use_map: bool, batches: Sequence[int], threads: Sequence[int]) -> list[Turn]:
        """Return the turns of an entry, for each case those of the fastest settings within its threads."""
        own = [one for one in self._trials if one.layers == layers]
        return [
            Turn(entry, count, batch, self._timed(entry, layers, one.setting, use_map, batch), one.setting.label)
            for count in threads
            for batch in batches
            for one in fastest(own, use_map, batch, count)
        ]

    def _timed(self, entry: str, layers: Layers, setting: Setting, use_map: bool, batch: int) -> Callable[[], float]:
        sources = sentences(batch, self._tokens, VOCABULARY[self._size])
        request = self._model(layers).request(sources, setting, use_map, SECONDS)

        def measured() -> float:
            answer = self._process(layers, setting).ask(request)
            assert all(len(pieces) == self._tokens for pieces in answer["output"])
            self.mebibytes[entry] = answer["mebibytes"]
            milliseconds: float = answer["milliseconds"]
            return milliseconds

        return measured


def marian_turns(
    entries: Mapping[str, Bergamot], batches: Sequence[int], threads: Sequence[int], size: str, tokens: int
) -> list[Turn]:
    """Return the turns of bergamot. More workers than sentences would not help: a batch of one has one thread's time."""

    def timed(entry: Bergamot, batch: int, count: int) -> Callable[[], float]:
        return lambda: entry.milliseconds(sentences(batch, tokens, VOCABULARY[size]), count, SECONDS)

    return [
        Turn(name, count, batch, timed(entry, batch, min(count, batch)))
        for name, entry in entries.items()
        for count in threads
        for batch in batches
    ]


WORKER = Path(__file__).with_name("transformers_worker.py")
PRECISIONS = ("float32", "bfloat16", "int8")


class Transformers:
    """Networks of a size in processes of the interpreter `python`, which has torch and transformers."""

    def __init__(self, python: str, size: str, tokens: int) -> None:
        self._size = size
        self._tokens = tokens
        self._process: Callable[[Layers, str, int], Process] = cache(
            lambda layers, precision, threads: Process([python, str(WORKER), self._settings(layers, precision, threads)], {})
        )

    def turns(self, entry: str, layers: Layers, batches: Sequence[int], threads: Sequence[int]) -> Iterator[Turn]:
        """Yield the turns of an entry, by each precision."""
        for count in threads:
            for batch in batches:
                for precision in PRECISIONS:
                    yield Turn(entry, count, batch, self._timed(layers, precision, count, batch), precision)

    def _timed(self, layers: Layers, precision: str, threads: int, batch: int) -> Callable[[], float]:
        request = {"batch": sentences(batch, self._tokens, VOCABULARY[self._size]), "seconds": SECONDS}

        def measured() -> float:
            answer = self._process(layers, precision, threads).ask(request)
            assert answer["tokens"] == [self._tokens] * batch
            milliseconds: float = answer["milliseconds"]
            return milliseconds

        return measured

    def _settings(self, layers: Layers, precision: str, threads: int) -> str:
        shape, vocabulary = SIZES[self._size], VOCABULARY[self._size]
        config = {
            "vocab_size": vocabulary,
            "decoder_vocab_size": vocabulary,
            "d_model": shape["width"],
            "encoder_layers": layers[0],
            "decoder_layers": layers[1],
            "encoder_ffn_dim": shape["feed_forward"],
            "decoder_ffn_dim": shape["feed_forward"],
            "encoder_attention_heads": shape["heads"],
            "decoder_attention_heads": shape["heads"],
            "activation_function": "relu",
            "scale_embedding": True,
            "max_position_embeddings": 1024,
        }
        return json.dumps({"config": config, "precision": precision, "threads": threads, "tokens": self._tokens})
