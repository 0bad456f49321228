"""The weights that a training starts from, as a config states them: a word, or the directory of a finished network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple


class Key(NamedTuple):
    """The key of a field in a file, where it differs from the name of the field."""

    alias: str


class Tag(NamedTuple):
    """The name of a member of a choice in messages."""

    tag: str


@dataclass(frozen=True, kw_only=True)
class FinishedNetwork:
    """A finished network of this or another run whose weights a training starts from."""

    path: Annotated[Path, Key("from")]
    """Directory of a training, of a system (of a run, exported, or imported). The run's vocabulary must be that of the network
    (`vocabulary: {from: DIRECTORY}`). It enters fingerprints by its own fingerprint, not by its path."""


class MapOrText:
    """The choice between a `FinishedNetwork`, which is a map, and text. pydantic calls `__get_pydantic_core_schema__`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        """Return the schema of a choice by the type of the value."""
        choices = {"<from>": handler.generate_schema(FinishedNetwork), "<other>": handler.generate_schema(str)}
        return {"type": "tagged-union", "choices": choices, "discriminator": _tag}


def _tag(value: Any) -> str:
    return "<from>" if isinstance(value, Mapping | FinishedNetwork) else "<other>"


InitialWeights = Annotated[Annotated[FinishedNetwork, Tag("<from>")] | Annotated[str, Tag("<other>")], MapOrText()]
