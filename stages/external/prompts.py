"""Requests to a language model, and the tokens that they take by estimate."""

from __future__ import annotations

from collections.abc import Iterable

from fewstep.text.languages import name_of
from stages.external import ExternalConfig, OpenAIOptions

ESTIMATED_BYTES = 3.0
"""Bytes of a text for each of its tokens, in estimates: 4 in English, 3 in Chinese."""
ESTIMATED_GROWTH = 1.5
"""Tokens of a translation for each of its source, in estimates."""
ESTIMATED_EXTRA = 5
"""Further tokens of a translation, in estimates."""


def options_of(config: ExternalConfig) -> OpenAIOptions:
    """Return the options of the server of a language model."""
    assert config.openai is not None
    return config.openai


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
