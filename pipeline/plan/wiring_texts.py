"""The beginning of the flow: texts as they are read and cleaned, and cut into pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from pipeline.config.schema import Pinned, RunConfig, TextConfig
from pipeline.plan.step import Builder
from pipeline.store.artifacts import Store
from pipeline.store.downloads import RemoteFile, fetched
from stages import corpus, encode, vocabulary
from stages.artifacts import ExternalFile, Text, Tokens, Vocabulary


@dataclass(frozen=True)
class Texts:
    """Each method plans a step and returns what it will leave."""

    config: RunConfig
    store: Store
    builder: Builder

    def part(self, name: str, text: TextConfig) -> Text:
        """The validation text, or a test set."""
        config = self._corpus_config(name, text)
        return self.builder.add(corpus.STAGE, name, corpus.CorpusInputs(self._files(text)), config)

    def training(self, exclude: tuple[Text, ...]) -> Text:
        """The training text without what `exclude` holds."""
        text = self.config.corpus.train
        config = self._corpus_config("train", text, self.config.corpus.filters)
        return self.builder.add(corpus.STAGE, "train", corpus.CorpusInputs(self._files(text), exclude), config)

    def monolingual(self, reader: str, paths: Sequence[Path], exclude: tuple[Text, ...]) -> Text:
        """Text in the source language for the teacher (no `reader`), or a drafter's verifier, to translate. It stands on both
        sides, so that it is cleaned as the training text is."""
        files = self._external(paths)
        config = self._corpus_config("train", TextConfig(), replace(self.config.corpus.filters, drop_identical=False))
        one_language = replace(config, target_language=config.source_language)
        inputs = corpus.CorpusInputs(corpus.TextFiles(source=files, target=files), exclude)
        name = f"train/monolingual:{reader}" if reader else "train/monolingual"
        return self.builder.add(corpus.STAGE, name, inputs, one_language)

    def vocabulary(self, text: Text) -> Vocabulary:
        config = self.config.vocabulary
        if isinstance(config, Pinned):
            pinned, _ = self.store.pinned([vocabulary.STAGE], config.path, "vocabulary.from")
            return cast(Vocabulary, pinned)
        name = "joint" if config.joint else "separate"
        return self.builder.add(vocabulary.STAGE, name, vocabulary.VocabularyInputs(text), config)

    def encoded(self, name: str, text: Text, words: Vocabulary) -> Tokens:
        config = encode.EncodeConfig(max_source_tokens=self.config.corpus.max_source_tokens)
        return self.builder.add(encode.STAGE, name, encode.EncodeInputs(text, words), config)

    def _corpus_config(self, part: str, text: TextConfig, filters: corpus.Filters | None = None) -> corpus.CorpusConfig:
        languages = self.config.languages
        return corpus.CorpusConfig(
            source_language=languages.source,
            target_language=languages.target,
            embedded=text.embedded,
            task=self.config.task if text.embedded else "translation",
            part=part if text.embedded else "",
            filters=filters,
            shard_rows=self.config.corpus.shard_rows,
        )

    def _files(self, text: TextConfig) -> corpus.TextFiles:
        return corpus.TextFiles(
            source=self._external(text.source),
            target=self._external(text.target),
            references=tuple(self._external(paths) for paths in text.references),
            tsv=self._external(text.tsv),
            parquet=self._external(text.parquet),
        )

    def _external(self, files: Sequence[Path | RemoteFile]) -> tuple[ExternalFile, ...]:
        return tuple(
            fetched(file, self.store) if isinstance(file, RemoteFile) else ExternalFile(file.absolute(), self.store.digest(file))
            for file in files
        )
