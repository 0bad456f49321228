"""The work behind a request: its systems and searches, its limits, and its answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from fastapi import HTTPException

from fewstep.explanation import Explanation
from fewstep.serve.batching import Answer, Options, Outputs
from fewstep.serve.languages import LanguageError, choose
from fewstep.serve.schemas import (
    EdgeAnswer,
    ExplainAnswer,
    SystemAnswer,
    TranslateRequest,
    TranslationAnswer,
    VertexAnswer,
)
from fewstep.serve.settings import Settings
from fewstep.system.system import System
from fewstep.text.glossary import Glossary, GlossaryError
from fewstep.text.sentences import Sentences, unsplit
from fewstep.translation import Translation, join


def decoder_of(system: System, threads: int | None) -> Any:
    """Return the function that decodes batches of a system (`fewstep.serve.batching.Translate`)."""

    def translate(lines: Sequence[str], options: Options) -> Outputs:
        return system.with_glossary(options.glossary).hypotheses(
            lines, options.n_best, options.search, threads=threads, one_sentence_per_line=True, refuse_long=options.refuse_long
        )

    return translate


def check_size(sentences: Sequence[str], settings: Settings) -> None:
    """Raise HTTPException (413) for more or longer sentences than the settings permit."""
    if len(sentences) > settings.max_sentences:
        raise HTTPException(
            413, f"sentences: expected at most {settings.max_sentences}, got {len(sentences)}; send several requests"
        )
    for number, sentence in enumerate(sentences):
        if len(sentence) > settings.max_characters:
            raise HTTPException(
                413, f"sentences[{number}]: expected at most {settings.max_characters} characters, got {len(sentence)}; split it"
            )


def split(system: System, texts: Sequence[str], one_sentence: bool, settings: Settings) -> list[Sentences]:
    """Return the sentences of each text, or each text as one. Raises HTTPException (413) for more than the settings permit."""
    splits = [unsplit(text) if one_sentence else system.split(text) for text in texts]
    if (count := sum(len(one.sentences) for one in splits)) > settings.max_sentences:
        raise HTTPException(
            413,
            f"sentences: expected texts of at most {settings.max_sentences} sentences, got {count}; send several requests",
        )
    return splits


def choices(request: TranslateRequest, systems: Mapping[str, System], settings: Settings) -> list[tuple[str, Options]]:
    """Return each requested system with its options. Raises HTTPException (422) for unknown names and languages and for invalid
    options."""
    names = request.systems or [_first(systems, request.source_language, request.target_language)]
    if request.systems and (request.source_language or request.target_language):
        raise HTTPException(422, "systems: expected systems or languages, got both; leave out one of them")
    if isinstance(request.search, dict) and (others := [name for name in request.search if name not in names]):
        raise HTTPException(422, f"search: expected requested systems ({', '.join(names)}), got {_shortened(', '.join(others))}")
    chosen = [(name, options(systems, name, request.search, request.n_best, settings)) for name in dict.fromkeys(names)]
    glossary = _glossary(request, [systems[name] for name, _ in chosen])
    return [(name, one._replace(refuse_long=request.refuse_long, glossary=glossary)) for name, one in chosen]


def _glossary(request: TranslateRequest, systems: Sequence[System]) -> Glossary | None:
    """Return the glossary of a request, if it has one. Raises HTTPException (422) for one that cannot be used."""
    if not request.glossary:
        return None
    try:
        glossary = Glossary.of(request.glossary)
        for system in systems:
            system.with_glossary(glossary)
    except GlossaryError as error:
        raise HTTPException(422, str(error)) from error
    return glossary


def _first(systems: Mapping[str, System], source: str | None, target: str | None) -> str:
    try:
        return next(iter(choose(systems, source, target)))
    except LanguageError as error:
        raise HTTPException(422, f"source_language, target_language: {error}") from error


def options(
    systems: Mapping[str, System], name: str, search: str | Mapping[str, str] | None, n_best: int, settings: Settings
) -> Options:
    """Return the options for one system. Raises HTTPException (422) for an unknown name, label, or option."""
    if name not in systems:
        raise HTTPException(422, f"systems: expected names of {', '.join(systems)}, got {_shortened(name)}")
    system = systems[name]
    label = (search if isinstance(search, str) or search is None else search.get(name)) or system.default_search
    # A derived label may spell out any search, of any cost: clients choose among those that the system was given.
    if label not in system.searches:
        raise HTTPException(422, f"search: expected one of {', '.join(system.searches)} for {name}, got {_shortened(label)}")
    if n_best > settings.max_n_best:
        raise HTTPException(422, f"n_best: expected at most {settings.max_n_best}, got {n_best}")
    problems = [problem.text() for problem in system.problems(system.chosen_search(label, n_best))]
    if problems:
        raise HTTPException(422, f"search {label} of {name}: {'; '.join(problems)}")
    return Options(label, n_best)


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}...")


def joined(answer: Answer, splits: Sequence[Sentences], language: str) -> Answer:
    """Return the answer for texts from that for all of their sentences."""
    outputs = iter(answer.outputs)
    return answer._replace(outputs=[join([*islice(outputs, len(one.sentences))], one, language) for one in splits])


def system_answer(name: str, chosen: Options, answer: Answer) -> SystemAnswer:
    """Return the answer for one system."""
    return SystemAnswer(
        system=name,
        search=chosen.search,
        milliseconds=round(answer.milliseconds, 3),
        waited_milliseconds=round(answer.waited_milliseconds, 3),
        largest_batch=answer.largest_batch,
        translations=[[_translation(entry) for entry in ranked] for ranked in answer.outputs],
    )


def _translation(entry: Translation) -> TranslationAnswer:
    return TranslationAnswer(**plain(entry._asdict()))


def explain_answer(found: Explanation | None) -> ExplainAnswer:
    """Return the answer for an explanation."""
    if found is None:
        return ExplainAnswer(kind=None)
    vertices = [VertexAnswer(**vertex._asdict()) for vertex in found.vertices]
    return ExplainAnswer(kind=found.kind, vertices=vertices, edges=[EdgeAnswer(**edge._asdict()) for edge in found.edges])


def plain(value: Any) -> Any:
    """Return a value as JSON knows it: null for numbers that are not finite, lists for arrays, numbers for those of NumPy."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
