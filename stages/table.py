"""The table of all stages."""

from __future__ import annotations

from typing import Any

from stages import (
    align,
    benchmark,
    contrastive,
    corpus,
    dag_analysis,
    decode,
    distill,
    encode,
    external,
    import_network,
    lattice,
    lattice_analysis,
    likelihood,
    ngram,
    parallel_analysis,
    report,
    score,
    system,
    train,
    tune,
    vocabulary,
)
from stages.stage import Stage

STAGES: tuple[Stage[Any, Any, Any], ...] = (
    corpus.STAGE, vocabulary.STAGE, encode.STAGE, align.STAGE, lattice.STAGE, ngram.STAGE, train.STAGE, distill.STAGE,
    external.STAGE, import_network.STAGE, system.STAGE, tune.STAGE, decode.STAGE, score.STAGE, likelihood.STAGE,
    contrastive.STAGE, dag_analysis.STAGE, parallel_analysis.STAGE, lattice_analysis.STAGE, benchmark.STAGE, report.STAGE,
)  # fmt: skip
"""All stages, in the order of the flow. A new stage is added only here."""
