"""A small corpus, and models of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from stages.artifacts import Text, Tokens, Vocabulary
from stages.context import StepContext
from stages.encode import EncodeConfig, EncodeInputs
from stages.encode.run import run as encode
from stages.ngram import NgramConfig, NgramInputs
from stages.ngram.run import run
from stages.shared.embedded import pairs
from stages.shared.shards import write_shards
from stages.vocabulary import VocabularyConfig, VocabularyInputs
from stages.vocabulary.run import run as train_vocabulary
from stages.workers import LocalWorkers, Resources

PAIRS = list(pairs("train", 0, 400))
VALIDATION = list(pairs("validation", 0, 40))
FILES = ("model.ngram", "model.arpa", "ngram.json")


def work_in(directory: Path, threads: int = 1, **more: Any) -> StepContext:
    directory.mkdir(parents=True, exist_ok=True)
    return replace(
        StepContext(
            directory=directory,
            attempt="a1",
            workers=LocalWorkers(),
            resources=Resources(workers=1, cpus=threads),
            shard_cache=directory / "cache",
        ),
        **more,
    )


def text_of(directory: Path, rows: list[tuple[str, str]], shard_rows: int = 100) -> Text:
    source, target = zip(*rows, strict=True) if rows else ((), ())
    columns = {"id": pa.array(range(len(rows)), pa.int64()), "source": pa.array(source, pa.string())}
    table = pa.table({**columns, "target": pa.array(target, pa.string())})
    write_shards([table], directory, shard_rows, work_in(directory))
    return Text(directory, "text")


class Corpus:
    """The text and tokens of a small corpus."""

    def __init__(self, folder: Path, shard_rows: int = 100) -> None:
        self.text, self.validation_text = text_of(folder / "text", PAIRS, shard_rows), text_of(folder / "validation", VALIDATION)
        train_vocabulary(VocabularyInputs(self.text), VocabularyConfig(size=300), work_in(folder / "vocabulary"))
        self.vocabulary = Vocabulary(folder / "vocabulary", "vocabulary")
        self.tokens = self.encoded(self.text, folder / "tokens")
        self.validation = self.encoded(self.validation_text, folder / "validation_tokens")

    def encoded(self, text: Text, folder: Path) -> Tokens:
        encode(EncodeInputs(text, self.vocabulary), EncodeConfig(), work_in(folder))
        return Tokens(folder, "tokens")

    @property
    def pieces(self) -> NgramInputs:
        return NgramInputs((self.tokens,), self.validation, self.vocabulary)

    @property
    def words(self) -> NgramInputs:
        return NgramInputs((self.text,), self.validation_text)


def make(folder: Path, inputs: NgramInputs, threads: int = 1, **config: Any) -> Path:
    run(inputs, NgramConfig(**{"order": 3, **config}), work_in(folder, threads))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}
