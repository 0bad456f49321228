"""The values that pass between the functions of a plan (`pipeline.plan.wiring`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.config.schema import RunConfig
from pipeline.data.access import DataAccess
from pipeline.plan.step import Builder
from pipeline.store.artifacts import Store
from stages.artifacts import Ngram, System, Tables, Text, Tokens, Trained, Tuned, Vocabulary

TrainingData = tuple[Tokens, ...]
"""Tokens that a network is trained on; those that occur n times in an epoch are listed n times."""

Teachers = tuple[Trained | System, ...]
"""The networks of the teacher's ensemble, the teacher first; empty without a teacher."""


@dataclass(frozen=True)
class Flow:
    """The config, the store, and the builder that collects the planned steps."""

    config: RunConfig
    store: Store
    steps: Builder

    @property
    def access(self) -> DataAccess:
        """The access to the data that the config names."""
        return DataAccess.of(self.config, self.store)


@dataclass(frozen=True)
class Texts:
    """The cleaned texts of the corpus."""

    training: Text
    validation: Text
    tests: dict[str, Text]

    @property
    def held_out(self) -> tuple[Text, ...]:
        """The texts whose sentences are dropped from all training text."""
        return (self.validation, *self.tests.values())


@dataclass(frozen=True)
class Encoded:
    """The texts of the corpus as tokens of the vocabulary."""

    texts: Texts
    vocabulary: Vocabulary
    training: Tokens
    validation: Tokens
    further: dict[str, TrainingData] = field(default_factory=dict)
    """Text beside the training text that curricula may name, by its name there."""

    @property
    def named(self) -> dict[str, TrainingData]:
        """All text that the curriculum of a teacher may name."""
        return {"raw": (self.training,), **self.further}


@dataclass(frozen=True)
class Distilled:
    """Text and its tokens, with the targets that a system wrote."""

    text: Text
    tokens: Tokens


@dataclass(frozen=True)
class Sources:
    """The artifacts that systems are made from."""

    encoded: Encoded
    data: dict[str, TrainingData]
    """By the value of a system's key `data`."""
    teachers: Teachers
    tables: dict[str, Tables]
    """Candidate tables by the text that they are counted from: `raw`, `distilled`."""
    language_model: Ngram | None


@dataclass(frozen=True)
class Built:
    """The artifacts of one system of the config."""

    system: System
    """The system with its default search alone."""
    trained: Trained | None = None
    """None for a system that uses the teacher."""
    pretrained: Trained | None = None
    """The training that its own starts from, if that is its pre-training."""
    tuned: dict[str, Tuned] = field(default_factory=dict)
    """By the label of the search; empty unless length penalties or shortlists are tuned."""
    distilled: dict[str, Distilled] = field(default_factory=dict)
    """Outputs of a companion that the system is trained on, by the name of their step."""
    is_analysed: bool = True
    """Whether the analysis of its family has a meaning for its network, where the config does not know it (a finished system)."""
