"""Requests to a language model, its answers, and the tokens that both take by estimate."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fewstep.text.languages import name_of
from stages.external import ExternalConfig, LanguageModelOptions

ESTIMATED_BYTES = 3.0
"""Bytes of a text for each of its tokens, in estimates: 4 in English, 3 in Chinese."""
ESTIMATED_GROWTH = 1.5
"""Tokens of a translation for each of its source, in estimates."""
ESTIMATED_EXTRA = 5
"""Further tokens of a translation, in estimates."""


class Answer(NamedTuple):
    """The answer to one text."""

    outputs: list[str | None]
    """Translations, not more than asked for; None for one that is no JSON. Empty for a text that the model does not take."""
    prompt_tokens: int
    answer_tokens: int
    problem: str = ""
    """The reason for a text that the model does not take."""
    cut: Sequence[int] = ()
    """Indices of outputs that reached the largest number of tokens."""


def options_of(config: ExternalConfig) -> LanguageModelOptions:
    """Return the options of a language model."""
    options = config.openai or config.ray_llm
    assert options is not None
    return options


def translation(output: str) -> str | None:
    """Return the translation in an answer of JSON; None for another answer."""
    try:
        found = json.loads(output)
    except (ValueError, RecursionError):
        return None
    text = found.get("translation") if isinstance(found, dict) else None
    return text if isinstance(text, str) else None


def prompt(config: ExternalConfig, text: str) -> str:
    """Return the request for a text."""
    filled = options_of(config).prompt
    for place, language in (("{source_language}", config.source_language), ("{target_language}", config.target_language)):
        filled = filled.replace(place, name_of(language))
    before, _, after = filled.partition("{text}")  # at last: the text may contain such names
    return f"{before}{text}{after}"


def estimate(config: ExternalConfig, texts: Iterable[str]) -> tuple[float, float]:
    """Return about how many tokens the prompts and the answers for texts have in all."""
    limit = options_of(config).max_tokens
    around = len(prompt(config, "").encode()) / ESTIMATED_BYTES
    prompts, answers = 0.0, 0.0
    for text in texts:
        tokens = len(text.encode("utf-8", "replace")) / ESTIMATED_BYTES
        prompts += around + tokens
        answers += config.n_best * min(limit, ESTIMATED_GROWTH * tokens + ESTIMATED_EXTRA)
    return prompts, answers
