"""Requests of LibreTranslate's and DeepL's clients, in terms of the server's own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from fastapi import HTTPException

from fewstep.documents.html import filled, pieces
from fewstep.serve.languages import AUTO, Detected, LanguageError, choose, detect, targets_of
from fewstep.serve.requests import check_size
from fewstep.serve.schemas import (
    DeeplAnswer,
    DeeplLanguage,
    DeeplRequest,
    DeeplTranslation,
    DetectedLanguage,
    DetectRequest,
    FrontendLanguage,
    FrontendLanguages,
    FrontendSettings,
    Language,
    LibreAnswer,
    LibreRequest,
    TranslateAnswer,
    TranslateRequest,
)
from fewstep.serve.settings import Settings
from fewstep.system.system import System
from fewstep.text.languages import name_of

_LINE_ENDS = re.compile(r"\s*\n\s*")


class Serving(Protocol):
    """The server behind these requests."""

    systems: dict[str, System]
    settings: Settings

    def translate(self, request: TranslateRequest) -> Awaitable[TranslateAnswer]: ...


class InvalidError(HTTPException):
    """A request with a value that is not valid, which these clients expect as status 400."""

    def __init__(self, detail: str) -> None:
        super().__init__(400, detail)


class Chosen(NamedTuple):
    """The system for a request, and the language of the texts."""

    name: str
    source: Detected
    """With a confidence of 100 if the request names the language."""


async def libre_translate(server: Serving, request: LibreRequest) -> LibreAnswer:
    """Return the answer to a client of LibreTranslate. Raises HTTPException."""
    texts = _texts(server, request.q)
    chosen = await _choose(server, texts, request.source, request.target, "source", "target")
    html = request.format == "html"
    wanted = 1 + (request.alternatives or 0)
    if wanted > server.settings.max_n_best:
        raise InvalidError(f"alternatives: expected at most {server.settings.max_n_best - 1}, got {request.alternatives}")
    found = await _translate(server, chosen.name, texts, html, 1 if html else _possible(server.systems[chosen.name], wanted))
    best = [ranked[0] for ranked in found]
    others = [[text for text in dict.fromkeys(ranked) if text != ranked[0]] for ranked in found]
    source = [DetectedLanguage(**chosen.source._asdict())] * len(texts)
    single = isinstance(request.q, str)
    languages = source[0] if single else source
    alternatives = others[0] if single else others
    return LibreAnswer(
        translatedText=best[0] if single else best,
        detectedLanguage=languages if request.source.lower() == AUTO else None,
        alternatives=alternatives if wanted > 1 else None,
    )


async def libre_detect(server: Serving, request: DetectRequest) -> list[DetectedLanguage]:
    """Return the source languages of the server, the most probable one first. Raises HTTPException."""
    texts = _texts(server, request.q)
    found = await asyncio.to_thread(detect, "\n".join(texts), [system.source_language for system in server.systems.values()])
    return [DetectedLanguage(**one._asdict()) for one in found]


def libre_languages(server: Serving) -> list[Language]:
    """Return the languages of the server."""
    return [Language(code=code, name=name_of(code), targets=into) for code, into in targets_of(server.systems).items()]


def libre_settings(server: Serving) -> FrontendSettings:
    """Return what pages of LibreTranslate ask for at their start: limits, and the languages of the first system."""
    first = next(iter(server.systems.values()))
    source, target = (FrontendLanguage(code=code, name=name_of(code)) for code in (first.source_language, first.target_language))
    has_token = server.settings.token is not None
    return FrontendSettings(
        charLimit=server.settings.max_characters,
        apiKeys=has_token,
        keyRequired=has_token,
        language=FrontendLanguages(source=source, target=target),
    )


def deepl_languages(server: Serving, side: str) -> list[DeeplLanguage]:
    """Return the languages of sources or of targets. Raises InvalidError for another side."""
    if side not in ("source", "target"):
        raise InvalidError(f"type: expected source or target, got {side!r:.80}")
    codes = dict.fromkeys(getattr(system, f"{side}_language") for system in server.systems.values())
    return [DeeplLanguage(language=code.upper(), name=name_of(code)) for code in codes]


async def deepl_translate(server: Serving, request: DeeplRequest) -> DeeplAnswer:
    """Return the answer to a client of DeepL. Raises HTTPException."""
    texts = _texts(server, request.text)
    chosen = await _choose(server, texts, request.source_lang or AUTO, request.target_lang, "source_lang", "target_lang")
    given = [_LINE_ENDS.sub(" ", text) for text in texts] if request.split_sentences == "nonewlines" else texts
    whole = request.split_sentences == "0"
    ignored = frozenset(name.lower() for name in request.ignore_tags or ())
    found = await _translate(server, chosen.name, given, request.tag_handling is not None, 1, whole, ignored)
    source = chosen.source.language.upper()
    return DeeplAnswer(
        translations=[
            DeeplTranslation(detected_source_language=source, text=ranked[0], billed_characters=len(text))
            for text, ranked in zip(texts, found, strict=True)
        ]
    )


def _texts(server: Serving, given: str | list[str]) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    check_size(texts, server.settings)
    return texts


async def _choose(server: Serving, texts: Sequence[str], source: str, target: str, *fields: str) -> Chosen:
    """Return the first system for the languages; of several source languages, the most probable one. Raises InvalidError."""
    automatic = source.lower() == AUTO
    try:
        found = choose(server.systems, None if automatic else source, target)
    except LanguageError as error:
        raise InvalidError(f"{', '.join(fields)}: {error}") from error
    first = next(iter(found))
    if not automatic:
        return Chosen(first, Detected(found[first].source_language, 100.0))
    languages = [system.source_language for system in found.values()]
    likely = (await asyncio.to_thread(detect, "\n".join(texts), languages))[0]
    return Chosen(next(name for name, system in found.items() if system.source_language == likely.language), likely)


def _possible(system: System, wanted: int) -> int:
    """Return the largest number of translations up to `wanted` that the default search can give."""
    return next((n for n in range(wanted, 1, -1) if not any(system.problems(system.chosen_search(n_best=n)))), 1)


async def _translate(
    server: Serving,
    name: str,
    texts: Sequence[str],
    html: bool,
    n_best: int,
    one_sentence: bool = False,
    ignored: Collection[str] = (),
) -> list[list[str]]:
    """Return the translations of each text, best first; elements with an `ignored` name stay. Raises HTTPException."""

    async def translated(sentences: list[str]) -> list[list[str]]:
        if not sentences:
            return []
        request = TranslateRequest(sentences=sentences, systems=[name], n_best=n_best, one_sentence_per_line=one_sentence)
        (answer,) = (await server.translate(request)).systems
        return [[one.text for one in ranked] for ranked in answer.translations]

    return await (_between_tags(texts, ignored, translated) if html else translated([*texts]))


async def _between_tags(
    documents: Sequence[str], ignored: Collection[str], translated: Callable[[list[str]], Awaitable[list[list[str]]]]
) -> list[list[str]]:
    """Return the one translation of each document."""
    found = await asyncio.to_thread(lambda: [pieces(document, ignored) for document in documents])
    outputs = iter(await translated([piece.text for parts in found for piece in parts[:-1]]))
    return [[filled(parts, [next(outputs)[0] for _ in parts[:-1]])] for parts in found]
