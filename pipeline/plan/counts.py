"""The steps that count: word links, candidate tables and the n-gram language model."""

from __future__ import annotations

from dataclasses import replace

from models.training.recipe import TrainedSystem
from pipeline.config.schema import Pinned, RunConfig
from pipeline.plan.flow import Distilled, Encoded, Flow, TrainingData
from pipeline.plan.pins import pinned_ngram
from stages import align, lattice, ngram
from stages.artifacts import Links, Ngram, Tables, Tokens


def align_and_count(
    flow: Flow, encoded: Encoded, data: dict[str, TrainingData], distilled: Distilled | None = None
) -> tuple[dict[str, Links], dict[str, Tables]]:
    """Align words and count candidate tables, as far as the config asks for them; both by text (`raw`, `distilled`).

    Recall is measured on the validation text, with the targets of `distilled` if it is given.
    """
    encoded = encoded if distilled is None else replace(encoded, validation=distilled.tokens)
    alignment = flow.config.alignment or align.AlignConfig()
    counting = lattice.LatticeConfig() if flow.config.lattice is None else flow.config.lattice.counting
    links: dict[str, Links] = {}
    tables: dict[str, Tables] = {}
    for name in texts_of_tables(flow.config):
        tokens = data[name][0]
        links[name] = flow.steps.add(align.STAGE, name, align.AlignInputs(tokens), alignment)
        tables[name] = _count_tables(flow, name, tokens, links[name], encoded, counting)
    if flow.config.alignment is not None and not tables:
        bitext = encoded.texts.training if alignment.unit == "words" else encoded.training
        links["raw"] = flow.steps.add(align.STAGE, "raw", align.AlignInputs(bitext), alignment)
    return links, tables


def texts_of_tables(config: RunConfig) -> list[str]:
    """Return the texts that candidate tables are counted from: `raw`, `distilled` or both."""
    stated = [] if config.lattice is None else [config.lattice.data]
    trained = [settings for settings in config.systems.values() if isinstance(settings, TrainedSystem)]
    return list(dict.fromkeys([*stated, *(settings.table_text for settings in trained if settings.table_text)]))


def _count_tables(flow: Flow, name: str, tokens: Tokens, links: Links, encoded: Encoded, config: lattice.LatticeConfig) -> Tables:
    inputs = lattice.LatticeInputs(tokens, links, encoded.validation, encoded.vocabulary)
    return flow.steps.add(lattice.STAGE, name, inputs, config)


def count_shortlist(flow: Flow, name: str, tokens: Tokens, encoded: Encoded) -> Tables:
    """Count the target tokens that each source token is linked to, in whatever position, for searches with a shortlist."""
    alignment = replace(flow.config.alignment or align.AlignConfig(), unit="pieces")
    links = flow.steps.add(align.STAGE, f"{name}/shortlist", align.AlignInputs(tokens), alignment)
    return _count_tables(flow, f"{name}/shortlist", tokens, links, encoded, lattice.LatticeConfig(backoff=1.0))


def estimate_language_model(flow: Flow, encoded: Encoded) -> Ngram | None:
    """Estimate the n-gram language model, unless the config pins one. None if it asks for neither."""
    config = flow.config.ngram
    texts = encoded.texts
    if config is None:
        return None
    if isinstance(config, Pinned):
        return pinned_ngram(config, flow.store, encoded.vocabulary)
    inputs = ngram.NgramInputs((texts.training,), texts.validation)
    if config.unit == "pieces":
        inputs = ngram.NgramInputs((encoded.training,), encoded.validation, encoded.vocabulary)
    return flow.steps.add(ngram.STAGE, config.side, inputs, config)
