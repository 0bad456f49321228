"""Marian's decoder for CPUs (bergamot, 8-bit products by intgemm) with the settings of Mozilla's pipeline, in a process of its own
with as many workers as threads, among which it splits a batch; and the files that it loads, of a Transformer with random weights.

Names of tensors and keys are those of Marian's public format (Junczys-Dowmunt et al. 2018): a matrix is [in, out], and a layer
normalises after its residual sum. Each matrix has the multiplier of its activations (`_QuantMultA`), which Mozilla's pipeline
computes from decoded text, so that `int8shiftAlphaAll` applies: Marian neither looks for the largest activation of a product nor
prepares its bias again. The matrices are in float32, and bergamot quantizes them when it loads them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.decoding.networks import VOCABULARY, Layers
from benchmarks.decoding.random_systems import SHORTLIST, lexicon
from fewstep.config.network import SIZES
from stages.benchmark.rivals.process import Process, environment

Floats = NDArray[np.float32]
MARIAN_EOS, MARIAN_UNK = 0, 1
SHORTLIST_MAGIC = 0xF11A48D5013417F5
NEVER = -1e4
"""Bias of EOS, so that an output is as long as its limit."""
ALPHA = 25.0
"""Multiplier of activations: 127 over their largest value, which is about 5 behind a normalisation."""


def word(token: int) -> str:
    """Return the word of a text that is one piece."""
    return f"w{token}"


def write(
    folder: Path,
    *,
    layers: tuple[int, int],
    width: int,
    feed_forward: int,
    heads: int,
    vocabulary: int,
    links: NDArray[Any],
    common: int,
) -> Path:
    """Write a model with `layers`, its vocabulary and its shortlist of `common` frequent tokens and `links` [vocabulary,L]; return
    the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_vocabulary(folder / "vocabulary.spm", vocabulary)
    _write_shortlist(folder / "shortlist.bin", links, common)
    options = _options(layers, width, feed_forward, heads, vocabulary)
    arrays: dict[str, Any] = dict(_weights(layers, width, feed_forward, vocabulary))
    matrices = [name for name in arrays if arrays[name].shape[0] > 1]
    # Products with the columns of a shortlist have the name "none".
    arrays |= {f"{name}_QuantMultA": np.full(1, ALPHA, np.float32) for name in (*matrices, "none")}
    arrays["special:model.yml"] = np.frombuffer(_yaml(options).encode() + b"\0", np.int8)
    np.savez(folder / "model.npz", **arrays)
    return folder


def configuration(folder: Path, batch_words: int, sentence_words: int) -> str:
    """Return bergamot's settings for written files, with limits on the words of a batch and of a sentence."""
    settings = {
        "models": f"[{folder / 'model.npz'}]",
        "vocabs": f"[{folder / 'vocabulary.spm'}, {folder / 'vocabulary.spm'}]",
        "shortlist": f"[{folder / 'shortlist.bin'}, false]",
        "beam-size": 1,
        "normalize": 1.0,
        "word-penalty": 0,
        "max-length-break": sentence_words,
        "max-length-factor": 1.0,
        "mini-batch-words": batch_words,
        "workspace": 128,
        "skip-cost": "true",
        "cpu-threads": 1,
        "quiet": "true",
        "quiet-translation": "true",
        "gemm-precision": "int8shiftAlphaAll",
        "ssplit-mode": "sentence",
    }
    return _yaml(settings)


def _yaml(values: dict[str, Any]) -> str:
    return "".join(f"{key}: {value}\n" for key, value in values.items())


def text(sources: Sequence[Sequence[int]]) -> list[str]:
    """Return sources as texts, a piece a token."""
    return [" ".join(map(word, source)) for source in sources]


def _write_shortlist(path: Path, links: NDArray[Any], common: int) -> None:
    """Write the binary form: a header, where the tokens of each source token begin, and the tokens."""
    offsets = np.arange(len(links) + 1, dtype=np.uint64) * links.shape[1]
    header = np.array([SHORTLIST_MAGIC, 0, common, links.shape[1], len(offsets), links.size], np.uint64)
    path.write_bytes(header.tobytes() + offsets.tobytes() + links.astype(np.uint32).tobytes())


def _write_vocabulary(path: Path, size: int) -> None:
    from sentencepiece import sentencepiece_model_pb2 as proto

    model = proto.ModelProto()
    kinds = proto.ModelProto.SentencePiece
    for token in range(size):
        name = {MARIAN_EOS: "</s>", MARIAN_UNK: "<unk>"}.get(token, f"▁{word(token)}")
        kind = {MARIAN_EOS: kinds.CONTROL, MARIAN_UNK: kinds.UNKNOWN}.get(token, kinds.NORMAL)
        model.pieces.add(piece=name, score=-1.0, type=kind)
    trainer = model.trainer_spec
    trainer.model_type = proto.TrainerSpec.UNIGRAM
    trainer.vocab_size = size
    trainer.eos_id = MARIAN_EOS
    trainer.unk_id = MARIAN_UNK
    trainer.bos_id = -1
    trainer.pad_id = -1
    model.normalizer_spec.name = "identity"
    path.write_bytes(model.SerializeToString())


def _options(layers: tuple[int, int], width: int, feed_forward: int, heads: int, vocabulary: int) -> dict[str, Any]:
    return {
        "version": "v1.9.0",
        "type": "transformer",
        "dim-vocabs": f"[{vocabulary}, {vocabulary}]",
        "dim-emb": width,
        "enc-depth": layers[0],
        "dec-depth": layers[1],
        "transformer-dim-ffn": feed_forward,
        "transformer-decoder-dim-ffn": 0,
        "transformer-ffn-depth": 2,
        "transformer-decoder-ffn-depth": 0,
        "transformer-heads": heads,
        "transformer-ffn-activation": "relu",
        "transformer-preprocess": '""',
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "d",
        "transformer-postprocess-top": '""',
        "transformer-decoder-autoreg": "self-attention",
        "transformer-dim-aan": feed_forward,
        "transformer-aan-depth": 2,
        "transformer-aan-activation": "swish",
        "transformer-aan-nogate": "false",
        "transformer-no-projection": "false",
        "transformer-no-bias": "false",
        "transformer-no-affine": "false",
        "transformer-depth-scaling": "false",
        "transformer-train-position-embeddings": "false",
        "transformer-tied-layers": "[]",
        "transformer-guided-alignment-layer": "last",
        "tied-embeddings": "false",
        "tied-embeddings-src": "false",
        "tied-embeddings-all": "true",
        "skip": "false",
        "layer-normalization": "false",
        "right-left": "false",
        "input-types": "[]",
        "ulr": "false",
        "ulr-dim-emb": 0,
        "lemma-dim-emb": 0,
        "dec-cell": "gru",
        "enc-cell": "gru",
    }


def _weights(layers: tuple[int, int], width: int, feed_forward: int, vocabulary: int) -> Iterator[tuple[str, Floats]]:
    draw = np.random.default_rng(1)

    def matrix(rows: int, columns: int) -> Floats:
        return draw.uniform(-1, 1, (rows, columns)).astype(np.float32) * np.float32((6 / (rows + columns)) ** 0.5)

    def norm(name: str) -> Iterator[tuple[str, Floats]]:
        yield f"{name}_ln_scale", np.ones((1, width), np.float32)
        yield f"{name}_ln_bias", np.zeros((1, width), np.float32)

    yield "Wemb", matrix(vocabulary, width)
    bias = np.zeros((1, vocabulary), np.float32)
    bias[0, [MARIAN_EOS, MARIAN_UNK]] = NEVER
    yield "decoder_ff_logit_out_b", bias
    for side, depth, blocks in (("encoder", layers[0], ["self"]), ("decoder", layers[1], ["self", "context"])):
        for prefix in (f"{side}_l{layer}" for layer in range(1, depth + 1)):
            for block in blocks:
                for name in "qkvo":
                    yield f"{prefix}_{block}_W{name}", matrix(width, width)
                    yield f"{prefix}_{block}_b{name}", np.zeros((1, width), np.float32)
                yield from norm(f"{prefix}_{block}_Wo")
            for index, sizes in ((1, (width, feed_forward)), (2, (feed_forward, width))):
                yield f"{prefix}_ffn_W{index}", matrix(*sizes)
                yield f"{prefix}_ffn_b{index}", np.zeros((1, sizes[1]), np.float32)
            yield from norm(f"{prefix}_ffn_ffn")


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
        shape = SIZES[size]
        links = lexicon(size).linked_tokens
        assert links is not None
        self._python = python
        self._words = tokens + 1
        self._batch = batch
        self._files = write(
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
        found.tell(configuration(self._files, -(-batch // threads) * self._words, self._words))
        return found

    def milliseconds(self, sources: Sequence[Sequence[int]], threads: int, seconds: float) -> float:
        """Return the mean time of a sentence, from text to text."""
        batch = len(sources) if threads > 1 else self._batch  # a single worker does not have to split a batch
        found = self.process(threads, batch).ask({"texts": text(sources), "seconds": seconds})
        assert min(found["words"]) >= len(sources[0]), f"expected outputs of {len(sources[0])} tokens, found {min(found['words'])}"
        milliseconds: float = found["milliseconds"]
        return milliseconds
