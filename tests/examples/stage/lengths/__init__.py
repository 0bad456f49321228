"""Count the sentences of a text by their length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fewstep.config.bounds import Ge
from stages.artifacts import Artifact, Text
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class Lengths(Artifact):
    """`lengths.json`: for `source` and `target` the number of sentences of 0, 1, ... words; the last counts all longer ones."""


@dataclass(frozen=True)
class LengthsInputs:
    text: Text


@dataclass(frozen=True, kw_only=True)
class LengthsConfig:
    """Options of the counts."""

    max_words: Annotated[int, Ge(1)] = 50
    """Number of words above which sentences are counted together."""


STAGE: Stage[LengthsInputs, LengthsConfig, Lengths] = Stage(name="lengths", version=1, run=Implementation(__name__), output=Lengths)
