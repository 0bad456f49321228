"""Rules on texts, the counts from them, and the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fewstep.config.problems import KeyPath
from models.training.recipe import TrainedSystem
from pipeline.config.expand import FILES
from pipeline.config.rules import Rule, broken
from pipeline.config.schema import Pinned, RunConfig, TextConfig
from pipeline.credentials import masked
from pipeline.store.downloads import RemoteFile
from pipeline.store.urls import MIRROR_SCHEMES, SHA256, TEXT_SCHEMES, expected_url
from stages.corpus.embedded import LANGUAGES

RESERVED_TESTS = ("train", "validation")
"""Names of other corpus steps."""


def text_rules(config: RunConfig) -> Iterator[Rule]:
    """Yield the broken rules on texts, counts and the mirror."""
    yield from _corpus(config)
    yield from _counts(config)
    yield from _mirror(config)


def _corpus(config: RunConfig) -> Iterator[Rule]:
    corpus = config.corpus
    texts: dict[KeyPath, TextConfig] = {("corpus", "train"): corpus.train, ("corpus", "validation"): corpus.validation}
    texts.update({("corpus", "test", name): text for name, text in corpus.test.items()})
    if not any(_given(text) for text in texts.values()):
        yield broken(("corpus",), "texts: train, validation and test, or train: {embedded: 20000} for the built-in corpus", "none")
        texts = {}
    for path, text in texts.items():
        yield from _text(path, text, config)
    for name in RESERVED_TESTS:
        if name in corpus.test:
            yield broken(("corpus", "test", name), "a name other than 'train' and 'validation'", repr(name))
    if corpus.filters.max_length < corpus.filters.min_length:
        path, got = ("corpus", "filters"), f"{corpus.filters.max_length} < {corpus.filters.min_length}"
        yield broken((*path, "max_length"), "at least min_length", got, (*path, "min_length"))


def _given(text: TextConfig) -> list[str]:
    """Return the ways in which a text is given; exactly one is valid."""
    given = [name for name in ("embedded", "tsv", "parquet") if getattr(text, name)]
    return given + (["source and target"] if text.source or text.target else [])


def _text(path: KeyPath, text: TextConfig, config: RunConfig) -> Iterator[Rule]:
    given = _given(text)
    if len(given) != 1:
        yield broken(path, "exactly one of source and target, tsv, parquet, embedded", ", ".join(given) or "none of them")
    elif given == ["source and target"] and not (text.source and text.target):
        missing = "target" if text.source else "source"
        yield broken((*path, missing), "files of both sides", f"no {missing}")
    for name in FILES:
        yield from _files((*path, name), getattr(text, name))
    for number, side in enumerate(text.references):
        yield from _files((*path, "references", number), side)
    languages, embedded = (config.languages.source, config.languages.target), LANGUAGES[config.task]
    if text.embedded and sorted(languages) != sorted(embedded):
        expected = f"languages {embedded[0]} and {embedded[1]} with the embedded corpus"
        yield broken((*path, "embedded"), expected, "-".join(languages), ("languages",), ("task",))
    if text.references and (path[1] != "test" or not text.source):
        yield broken((*path, "references"), "further references only beside source and target of a test set", "some here")


def _files(path: KeyPath, files: Sequence[object]) -> Iterator[Rule]:
    for number, file in enumerate(files):
        if not isinstance(file, RemoteFile):
            continue
        if expected := expected_url(file.url, TEXT_SCHEMES):
            yield broken((*path, number, "url"), expected, repr(masked(file.url)))
        if file.sha256 and not SHA256.fullmatch(file.sha256):
            yield broken((*path, number, "sha256"), "64 hex digits", repr(file.sha256))


def _mirror(config: RunConfig) -> Iterator[Rule]:
    url = config.store.mirror
    if config.cluster.node_store and not url:
        yield broken(("cluster", "node_store"), "store.mirror, through which the machines exchange artifacts", "no mirror")
    if url and (expected := expected_url(url, MIRROR_SCHEMES)):
        yield broken(("store", "mirror"), expected, repr(masked(url)))


def _counts(config: RunConfig) -> Iterator[Rule]:
    systems = (system for system in config.systems.values() if isinstance(system, TrainedSystem))
    if config.lattice is None and not any(system.table_text for system in systems):
        return
    if config.alignment is not None and config.alignment.unit != "pieces":
        yield broken(("alignment", "unit"), "pieces for the lattice", config.alignment.unit, ("lattice",))
    distilled = config.lattice is not None and config.lattice.data == "distilled"
    if distilled and config.teacher is None and not isinstance(config.distillation, Pinned):
        expected = "raw without a teacher (or distillation: {from: DIRECTORY})"
        yield broken(("lattice", "data"), expected, "distilled", ("teacher",), ("distillation",))
