"""Rules on texts, the counts from them, and the store."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fewstep.config.problems import KeyPath
from models.training.recipe import TrainedSystem
from pipeline.config.checks.rules import Rule, broken
from pipeline.config.schema import Pinned, RunConfig
from pipeline.config.texts import (
    COLUMN_TYPES,
    COLUMNS,
    FORMATS,
    PAIR_FORMATS,
    VOCABULARY_FILES,
    DistilledText,
    File,
    LocalFile,
    PairFiles,
    TextConfig,
    VocabularyDictionaries,
    VocabularyFiles,
)
from pipeline.data.names import HUB, hub_name, is_mtdata_id, is_sacrebleu_name, opus_name
from pipeline.store.downloads import RemoteFile
from pipeline.urls import GIT_BLOB, MIRROR_SCHEMES, SHA256, TEXT_SCHEMES, expected_url, masked
from stages.shared.embedded import LANGUAGES
from stages.vocabulary import VocabularyOptions

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""The scheme of a URL, whose double slash is a single one in a path."""
RESERVED_TESTS = ("train", "validation")
"""Names of other corpus steps."""
CURRICULUM_TEXTS = ("raw", "distilled", "back_translation", "back-translation", "monolingual", "pretraining")
"""Names of other texts in curricula, and of other corpus steps of training texts."""


def text_rules(config: RunConfig) -> Iterator[Rule]:
    """Yield the broken rules on texts, counts, the mirror and the tracking server."""
    yield from _corpus(config)
    yield from _counts(config)
    yield from _store(config)
    yield from _tracking(config)


def _corpus(config: RunConfig) -> Iterator[Rule]:
    corpus = config.corpus
    texts: dict[KeyPath, TextConfig] = {("corpus", "train"): corpus.train, ("corpus", "validation"): corpus.validation}
    texts.update({("corpus", "texts", name): text for name, text in corpus.texts.items()})
    texts.update({("corpus", "test", name): text for name, text in corpus.test.items()})
    if not any(_given(text) for text in texts.values()):
        yield broken(("corpus",), "texts: train, validation and test, or train: {embedded: 20000} for the built-in corpus", "none")
        texts = {}
    for path, text in texts.items():
        yield from _text(path, text, config)
    if corpus.modifiers is not None and corpus.modifiers.total > 1:
        yield broken(("corpus", "modifiers"), "shares whose sum is at most 1", f"{corpus.modifiers.total:g}")
    for name in RESERVED_TESTS:
        if name in corpus.test:
            yield broken(("corpus", "test", name), "a name other than 'train' and 'validation'", repr(name))
    for name in (*RESERVED_TESTS, *CURRICULUM_TEXTS):
        if name in corpus.texts:
            yield broken(("corpus", "texts", name), "a name that no other text has", repr(name))
    if isinstance(config.vocabulary, VocabularyFiles | VocabularyDictionaries):
        yield from _vocabulary_files(config.vocabulary)
    yield from _single_file(("evaluation", "contrastive_pairs"), config.evaluation.contrastive_pairs)
    if isinstance(config.distillation, DistilledText):
        yield from _pair_files(("distillation",), config.distillation)
    if corpus.placeholders and not isinstance(config.vocabulary, VocabularyOptions):
        yield broken(("corpus", "placeholders"), "none with a vocabulary that is not trained, whose pieces are fixed", "some here")
    if config.evaluation.glossary and isinstance(config.vocabulary, VocabularyOptions) and "term" not in corpus.placeholders:
        got = ", ".join(corpus.placeholders) or "none"
        yield broken(("evaluation", "glossary"), "term among corpus.placeholders", got, ("corpus", "placeholders"))
    if corpus.filters.max_length < corpus.filters.min_length:
        path = ("corpus", "filters")
        got = f"{corpus.filters.max_length} < {corpus.filters.min_length}"
        yield broken((*path, "max_length"), "at least min_length", got, (*path, "min_length"))


def _text(path: KeyPath, text: TextConfig, config: RunConfig) -> Iterator[Rule]:
    given = _given(text)
    if not given or (len(given) > 1 and ("embedded" in given or "sacrebleu" in given)):
        alone = f"embedded or sacrebleu alone, or any of source and target, {', '.join(PAIR_FORMATS)}, mtdata, opus"
        yield broken(path, alone, ", ".join(given) or "none of them")
    yield from _pair_files(path, text)
    yield from _names(path, text)
    for number, side in enumerate(text.references):
        yield from _files((*path, "references", number), side)
    languages = (config.languages.source, config.languages.target)
    embedded = LANGUAGES[config.task]
    if text.embedded and sorted(languages) != sorted(embedded):
        expected = f"languages {embedded[0]} and {embedded[1]} with the embedded corpus"
        yield broken((*path, "embedded"), expected, "-".join(languages), ("languages",), ("task",))
    if text.references and (path[1] != "test" or given != ["source and target"]):
        yield broken((*path, "references"), "further references only for a test set with source and target", "some here")


def _given(text: TextConfig) -> list[str]:
    """Return the ways in which a text is given."""
    given = [name for name in ("embedded", "sacrebleu", *PAIR_FORMATS, "mtdata", "opus") if getattr(text, name)]
    return given + (["source and target"] if text.source or text.target else [])


def _pair_files(path: KeyPath, text: PairFiles) -> Iterator[Rule]:
    if bool(text.source) != bool(text.target):
        missing = "target" if text.source else "source"
        yield broken((*path, missing), "files of both sides", f"no {missing}")
    for name in FORMATS:
        yield from _files((*path, name), getattr(text, name))


def _vocabulary_files(files: VocabularyFiles | VocabularyDictionaries) -> Iterator[Rule]:
    if files.target_dictionary is not None and files.source_dictionary is None:
        yield broken(("vocabulary", "source_dictionary"), "a dictionary of both sides", "one of the target alone")
    for name in VOCABULARY_FILES:
        yield from _single_file(("vocabulary", name), getattr(files, name, None))


def _single_file(path: KeyPath, file: File | None) -> Iterator[Rule]:
    if isinstance(file, RemoteFile):
        yield from _remote(path, file)
    if isinstance(file, RemoteFile | LocalFile):
        yield from _part(path, file)


def _names(path: KeyPath, text: TextConfig) -> Iterator[Rule]:
    if text.sacrebleu is not None and not is_sacrebleu_name(text.sacrebleu.name):
        yield broken((*path, "sacrebleu", "name"), "a name of `sacrebleu --list`, such as wmt14/full", repr(text.sacrebleu.name))
    for number, digits in enumerate(text.sacrebleu.sha256 if text.sacrebleu else ()):
        if not SHA256.fullmatch(digits):
            yield broken((*path, "sacrebleu", "sha256", number), "64 hex digits", repr(digits))
    for number, name in enumerate(text.mtdata):
        if not is_mtdata_id(name):
            yield broken((*path, "mtdata", number), "Group-name-version-lang1-lang2, as in `mtdata list -id`", repr(name))
    for number, name in enumerate(text.opus):
        if opus_name(name) is None:
            yield broken(
                (*path, "opus", number), "Corpus/version or Corpus/version/l1-l2, with a version other than latest", repr(name)
            )


def _files(path: KeyPath, files: Sequence[object]) -> Iterator[Rule]:
    for number, file in enumerate(files):
        if isinstance(file, RemoteFile):
            yield from _remote((*path, number), file)
        if isinstance(file, RemoteFile | LocalFile):
            yield from _part((*path, number), file)


def _remote(path: KeyPath, file: RemoteFile) -> Iterator[Rule]:
    if file.url.startswith(HUB):
        if hub_name(file.url) is None:
            yield broken((*path, "url"), "hf:ORG/NAME@REVISION/PATH", repr(masked(file.url)))
    elif expected := expected_url(file.url, TEXT_SCHEMES):
        yield broken((*path, "url"), expected, repr(masked(file.url)))
    if file.sha256 and not SHA256.fullmatch(file.sha256):
        yield broken((*path, "sha256"), "64 hex digits", repr(file.sha256))
    if file.git_blob and not GIT_BLOB.fullmatch(file.git_blob):
        yield broken((*path, "git_blob"), "40 hex digits", repr(file.git_blob))


def _part(path: KeyPath, file: RemoteFile | LocalFile) -> Iterator[Rule]:
    """Check which columns of a file are read; `path` ends with the key of the format and a number."""
    kind = COLUMN_TYPES.get(str(path[-2]))
    if file.columns and kind is None:
        yield broken((*path, "columns"), f"columns of files in {' and '.join(COLUMN_TYPES)} alone", "some here")
    elif file.columns and (len(file.columns) != COLUMNS or not all(isinstance(column, kind or str) for column in file.columns)):
        expected = "two numbers from 1, as in [1, 2]" if kind is int else "two names, as in [translation.de, translation.en]"
        yield broken((*path, "columns"), expected, ", ".join(map(repr, file.columns)))
    elif any(isinstance(column, int) and column < 1 for column in file.columns):
        yield broken((*path, "columns"), "numbers from 1", ", ".join(map(repr, file.columns)))
    if file.member and kind is str:
        yield broken((*path, "member"), "a Parquet file that is in no archive", repr(file.member))


def _store(config: RunConfig) -> Iterator[Rule]:
    url = config.store.mirror
    if scheme := SCHEME.match(str(config.store.path)):
        directory = "a directory, whose artifacts store.mirror copies to object storage"
        yield broken(("store", "path"), directory, f"a URL of {scheme[1]}")
    if config.cluster.node_store and not url:
        yield broken(("cluster", "node_store"), "store.mirror, through which the machines exchange artifacts", "no mirror")
    if url and (expected := expected_url(url, MIRROR_SCHEMES)):
        yield broken(("store", "mirror"), expected, repr(masked(url)))


def _tracking(config: RunConfig) -> Iterator[Rule]:
    uri = config.tracking.uri
    if uri != masked(uri):
        expected = (
            "a URI without user, password or token (the environment gives them: MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_URI)"
        )
        yield broken(("tracking", "uri"), expected, repr(masked(uri)))


def _counts(config: RunConfig) -> Iterator[Rule]:
    systems = (system for system in config.systems.values() if isinstance(system, TrainedSystem))
    if config.lattice is None and not any(system.table_text for system in systems):
        return
    if config.alignment is not None and config.alignment.unit != "pieces":
        yield broken(("alignment", "unit"), "pieces for the lattice", config.alignment.unit, ("lattice",))
    distilled = config.lattice is not None and config.lattice.data == "distilled"
    if distilled and config.teacher is None and not isinstance(config.distillation, Pinned | DistilledText):
        expected = "raw without a teacher (or distillation: {from: DIRECTORY} or {source: FILES, target: FILES})"
        yield broken(("lattice", "data"), expected, "distilled", ("teacher",), ("distillation",))
