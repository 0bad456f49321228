"""The part of the flow that is counted rather than trained: links of words, candidate tables, n-gram models."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

from models.training.recipe import TrainedSystem
from pipeline.config.schema import Pinned, RunConfig
from pipeline.plan.step import Builder
from pipeline.store.artifacts import Store
from stages import align, lattice, ngram
from stages.artifacts import Artifact, Links, Ngram, Tables, Text, Tokens, Vocabulary
from stages.errors import DataError


def counted(config: RunConfig) -> list[str]:
    """The texts that candidate tables are counted from: `raw`, `distilled`."""
    stated = [] if config.lattice is None else [config.lattice.data]
    trained = (system for system in config.systems.values() if isinstance(system, TrainedSystem))
    systems = [system.table_text for system in trained if system.table_text]
    return list(dict.fromkeys([*stated, *systems]))


@dataclass
class Counts:
    """Each method plans some steps."""

    config: RunConfig
    store: Store
    builder: Builder
    vocabulary: Vocabulary
    validation: Tokens
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    """By step, for the report."""
    tables: dict[str, Tables] = field(default_factory=dict)
    """By the text that they are counted from."""
    language_model: Ngram | None = None

    def count(self, data: dict[str, tuple[Tokens, ...]], text: Text) -> None:
        """Link words, and count candidate tables, as far as the config asks for them."""
        alignment, wanted = self.config.alignment, counted(self.config)
        if alignment is not None and not wanted:
            self._align("raw", text if alignment.unit == "words" else data["raw"][0])
        counting = lattice.LatticeConfig() if self.config.lattice is None else self.config.lattice.counting
        for name in wanted:
            tokens = data[name][0]
            inputs = lattice.LatticeInputs(tokens, self._align(name, tokens), self.validation, self.vocabulary)
            self.tables[name] = self.builder.add(lattice.STAGE, name, inputs, counting)
            self.artifacts[f"lattice:{name}"] = self.tables[name]

    def shortlist(self, system: str, tokens: Tokens) -> Tables:
        """Tables that say what each word is linked to, whatever the places. Those of the same tokens are counted once."""
        name = f"{system}/shortlist"
        alignment = replace(self.config.alignment or align.AlignConfig(), unit="pieces")
        links = self.builder.add(align.STAGE, name, align.AlignInputs(tokens), alignment)
        inputs = lattice.LatticeInputs(tokens, links, self.validation, self.vocabulary)
        return self.builder.add(lattice.STAGE, name, inputs, lattice.LatticeConfig(backoff=1.0))

    def _align(self, name: str, bitext: Text | Tokens) -> Links:
        links = self.builder.add(align.STAGE, name, align.AlignInputs(bitext), self.config.alignment or align.AlignConfig())
        self.artifacts[f"align:{name}"] = links
        return links

    def estimate(self, raw: Tokens, text: Text, validation: Text) -> None:
        """Estimate an n-gram model, if the config asks for one."""
        settings = self.config.ngram
        if settings is None:
            return
        if isinstance(settings, Pinned):
            pinned, manifest = self.store.pinned([ngram.STAGE], settings.path, "ngram.from")
            self.artifacts["ngram:pinned"] = self.language_model = cast(Ngram, pinned)
            found = manifest.inputs.get("vocabulary")
            if found and found != self.vocabulary.fingerprint:
                raise DataError(
                    f"ngram.from: expected a model over this run's vocabulary {self.vocabulary.fingerprint[:8]}, got one over "
                    f"{found[:8]}: {settings.path}; pin that vocabulary too (vocabulary.from), or estimate anew"
                )
            return
        if settings.unit == "pieces":
            inputs = ngram.NgramInputs((raw,), self.validation, self.vocabulary)
        else:
            inputs = ngram.NgramInputs((text,), validation)
        self.language_model = self.builder.add(ngram.STAGE, settings.side, inputs, settings)
        self.artifacts[f"ngram:{settings.side}"] = self.language_model
