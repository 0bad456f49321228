"""Run the corpus stage."""

from __future__ import annotations

from stages.context import StepContext
from stages.corpus import CorpusConfig, CorpusInputs
from stages.corpus.writer import write_text


def run(inputs: CorpusInputs, config: CorpusConfig, context: StepContext) -> None:
    """Write the text of `inputs.files`, or of the embedded corpus, as shards; with filters also the ledger.

    Raises DataError for files that cannot be used, a text without a pair, and an `exclude` text that says nothing.
    """
    write_text(inputs, config, context)
