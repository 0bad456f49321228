"""A system of the `lattice` family in a config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from fewstep.config.bounds import MinLen
from fewstep.config.labels import labelled
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from models.training.recipe import StandaloneSystem, part


@dataclass(frozen=True, kw_only=True)
class LatticeSystem(StandaloneSystem, LatticeModelConfig):
    """A trained scorer of lattices. The values of `defaults` apply to its keys, except for `search` and `decoder_layers`: the
    scorer has one layer unless stated."""

    network_type: ClassVar = LatticeModelConfig
    search_type: ClassVar = LatticeSearch
    analysis: ClassVar = "lattice_analysis"
    presets: ClassVar[Mapping[str, Any]] = {"decoder_layers": 1}

    family: Literal["lattice"]
    """Family of models."""
    tables: Literal["raw", "distilled"] | None = None
    """Text that its candidate tables are counted from: with the human translations, or with the teacher's. Empty: the same as
    `data`; the teacher's with `mixed`. The top-level keys `alignment` and `lattice` hold the options of counting."""
    search: Annotated[dict[str, LatticeSearch], MinLen(1)] = field(default_factory=lambda: labelled(LatticeSearch()))
    """Searches that it is evaluated with, the first its default: `viterbi`, `{viterbi: {candidates: 16}}`, `lookup`, a list of
    these, or a map of them by label."""

    @property
    def network(self) -> LatticeModelConfig:
        """The network alone."""
        return part(self, LatticeModelConfig)

    @property
    def table_text(self) -> Literal["raw", "distilled"]:
        """The text that its candidate tables are counted from."""
        return self.tables or ("raw" if self.data == "raw" else "distilled")


SYSTEM = LatticeSystem
