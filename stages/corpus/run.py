"""Run the corpus stage."""

from __future__ import annotations

from stages.context import StepContext
from stages.corpus import CorpusConfig, CorpusInputs
from stages.corpus.writer import write_text


def run(inputs: CorpusInputs, config: CorpusConfig, context: StepContext) -> None:
    """Write the text of `inputs.files`, or of the embedded corpus, as shards. With filters, also write the ledger.

    Raises DataError for unusable files, a text without pairs, and an `exclude` text without sentences.
    """
    write_text(inputs, config, context)
