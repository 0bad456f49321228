"""How much of a paper's training text a plan has."""

from __future__ import annotations

from pipeline.config.schema import RunConfig
from pipeline.plan.step import Plan
from stages.corpus import CorpusInputs
from stages.errors import DataError


def paper_line(settings: RunConfig, steps: Plan) -> str | None:
    """Return a line with the number of training pairs beside that of the paper (`corpus.paper_pairs`); None without such a number,
    or with at least as many pairs. The files of the plan are counted before any filter."""
    expected = settings.corpus.paper_pairs
    step = next((step for step in steps.steps if step.name == "corpus:train"), None)
    if expected is None or step is None:
        return None
    found = _pairs(step.inputs, step.config.languages)
    if found >= expected:
        return None
    return f"corpus.train: this is {found:,} of the paper's {expected:,} pairs"


def _pairs(inputs: CorpusInputs, languages: tuple[str, str]) -> int:
    """Return the number of pairs. Raises DataError for a file that cannot be read."""
    from stages.corpus.readers import READERS

    files = vars(inputs.files)
    by_format = {kind: files["source" if kind == "lines" else kind] for kind in READERS}
    try:
        return sum(READERS[kind].rows(file, languages) for kind, some in by_format.items() for file in some)
    except OSError as error:
        raise DataError(f"corpus.train: {error}") from error
