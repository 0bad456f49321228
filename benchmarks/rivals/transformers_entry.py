"""The Marian network of transformers, of random weights, as an entry of a table: in a process of its own, by several precisions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from benchmarks.decoding.networks import VOCABULARY, Layers, sentences
from benchmarks.decoding.rounds import SECONDS, Turn
from fewstep.config.network import SIZES
from stages.benchmark.rivals.process import Process

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
