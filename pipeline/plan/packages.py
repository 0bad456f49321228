"""Optional packages and programs that a config needs, found before the first step rather than after hours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

from pipeline.config.schema import RunConfig
from pipeline.config.systems import BartTeacher, CTranslate2Teacher, Distillation, RayLLMTeacher, TransformersTeacher
from stages.errors import DataError
from stages.shared.scoring.comet import comet_score
from stages.shared.scoring.kytea import KYTEA, PROGRAM
from stages.shared.scoring.tokenizers import EXTRAS, bleu_metric, tokenizer_for, tokenizer_of


def check_packages(config: RunConfig) -> None:
    """Raise DataError, one line for each optional package or program that a step of `config` would not find."""
    if missing := list(_missing(config)):
        raise DataError("\n".join(missing))


def _missing(config: RunConfig) -> Iterator[str]:
    yield from _tokenizers(config)
    for section in ("evaluation", "distillation"):
        options = getattr(config, section)
        if getattr(options, "comet", None) is not None and (problem := comet_score(options.comet_program, section).problem()):
            yield problem
    yield from _filters(config)
    if isinstance(config.teacher, BartTeacher) and find_spec("tokenizers") is None:
        yield "teacher.bart needs the package tokenizers, which is not installed; run: pip install tokenizers"
    if isinstance(config.teacher, TransformersTeacher) and find_spec("transformers") is None:
        yield "teacher.transformers needs the package transformers, which is not installed; run: pip install transformers"
    if isinstance(config.teacher, RayLLMTeacher):
        yield from _engines(config)
    if find_spec("mtdata") is None and not config.store.offline:
        for place in _with_mtdata(config):
            yield f"{place} needs the package mtdata, which is not installed; run: pip install --group data"
    if find_spec("ctranslate2") is None:
        for place in _with_ctranslate2(config):
            yield (
                f"{place} needs the package ctranslate2, which is not installed; run: pip install ctranslate2,"
                " or choose another engine"
            )
        if isinstance(config.teacher, CTranslate2Teacher):
            yield ("teacher.ctranslate2 needs the package ctranslate2, which is not installed; run: pip install ctranslate2")


def _engines(config: RunConfig) -> Iterator[str]:
    """Yield the package that the engines of a language model lack, if they run on this machine. The workers of another cluster are
    looked at when the step begins."""
    if not (config.cluster.address or os.environ.get("RAY_ADDRESS")) and find_spec("vllm") is None:
        yield (
            "teacher.ray_llm needs the package vllm on the workers, here this machine, which does not have it; run: pip install "
            "'ray[llm]' here, or set cluster.address to a cluster whose machines with GPUs have it"
        )


def _tokenizers(config: RunConfig) -> Iterator[str]:
    """Yield the problems of tokenisers: that of comparisons, and that of the language, which trainings are validated with."""
    language = config.languages.target
    if config.evaluation.tokenizer == KYTEA and (problem := PROGRAM.problem()):
        yield problem
    for tokenizer in dict.fromkeys((tokenizer_for(config.evaluation.tokenizer, language), tokenizer_of(language))):
        try:
            if tokenizer in EXTRAS:  # others need no package, and planning loads none
                bleu_metric(tokenizer, False)
        except DataError as error:
            yield str(error)


def _filters(config: RunConfig) -> Iterator[str]:
    filters = config.corpus.filters
    languages = config.languages
    if filters.max_similarity < 1:
        from stages.corpus.similarity import similarity_problem  # imported here, since it loads pyarrow

        if problem := similarity_problem():
            yield f"corpus.filters.max_similarity {problem}"
    if filters.max_other_language < 1:
        from stages.corpus.language import language_problem

        if problem := language_problem((languages.source, languages.target)):
            yield f"corpus.filters.max_other_language {problem}"


def _with_mtdata(config: RunConfig) -> Iterator[str]:
    """Yield the keys of the texts that name data sets of mtdata."""
    texts = {"train": config.corpus.train, "validation": config.corpus.validation}
    texts |= {f"texts.{name}": text for name, text in config.corpus.texts.items()}
    texts |= {f"test.{name}": text for name, text in config.corpus.test.items()}
    yield from (f"corpus.{part}.mtdata" for part, text in texts.items() if text.mtdata)


def _with_ctranslate2(config: RunConfig) -> Iterator[str]:
    """Yield the keys of the searches that CTranslate2 decodes."""
    if config.teacher is not None and isinstance(config.distillation, Distillation) and config.distillation.uses_ctranslate2:
        yield "distillation"
    for name, system in config.systems.items():
        yield from (f"systems.{name}.search: {label}" for label, search in system.search.items() if search.uses_ctranslate2)
