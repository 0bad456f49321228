"""Link the words of each pair, in both directions and symmetrised: fast_align (Dyer, Chahuneau and Smith 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from kernels.symmetrize import Method
from stages.artifacts import Links, Text, Tokens
from stages.errors import DataError, StageError
from stages.shards import row_counts
from stages.stage import Stage, Work


@dataclass(frozen=True)
class AlignInputs:
    bitext: Text | Tokens
    """The text for words (split at blanks and tabs), its tokens for subword pieces."""


@dataclass(frozen=True, kw_only=True)
class AlignConfig:
    """Word alignment: `-d -o -v` of fast_align, in both directions."""

    engine: Literal["native", "fast_align"] = "native"
    """The one of this project, or the upstream program. Their links are the same; the native one also keeps its models."""
    executable: str = "fast_align"
    """The upstream program: a path, or a name to be found on PATH."""
    unit: Literal["words", "pieces"] = "pieces"
    """What is linked."""
    symmetrization: Method = "grow-diag-final-and"
    """How the two directions are joined."""
    iterations: Annotated[int, Ge(1)] = 5
    """Passes over the text; the last only looks for the best links."""
    tension: Annotated[float, Gt(0), Le(14)] = 4.0
    """How much the diagonal is favoured at the start."""
    optimize_tension: bool = True
    """Fit the tension."""
    alpha: Annotated[float, Gt(0)] = 0.01
    """Parameter of the Dirichlet prior on translation probabilities."""
    p0: Annotated[float, Ge(0), Lt(1)] = 0.08
    """Prior probability that a word has no link."""
    compatible: bool = True
    """Compute the tension's gradient as the upstream program does, with its two slips; else correctly (native engine only)."""
    max_length: Annotated[int, Ge(1), Le(32767)] = 1000
    """Words or pieces of a side; longer pairs get no links and take no part in the fit."""


def run(inputs: AlignInputs, config: AlignConfig, work: Work) -> None:
    """Write the links shard by shard, the fitted models and `align.json`. Equal input and config give equal bytes for any number
    of workers and threads.

    Raises DataError for text that cannot be aligned, StageError when the upstream program is missing or fails.
    """
    from stages.align.links import write_links
    from stages.align.native import align_natively
    from stages.align.text import Job
    from stages.align.upstream import align_upstream

    pieces = isinstance(inputs.bitext, Tokens)
    if pieces != (config.unit == "pieces"):
        raise StageError(f"align: unit {config.unit}: expected {'tokens' if pieces is False else 'text'}, got {inputs.bitext.path}")
    if config.engine == "fast_align" and not config.compatible:
        raise DataError("alignment.compatible: the upstream program has no correct gradient; set it to true, or engine to native")
    job = Job.of(inputs.bitext, config, work)
    fitted = align_natively(job, work) if config.engine == "native" else align_upstream(job, work)
    write_links(job, work)
    _describe(inputs, config, fitted, work)


def _describe(inputs: AlignInputs, config: AlignConfig, fitted: dict[str, Any], work: Work) -> None:
    rows = row_counts(work.directory)
    if rows != row_counts(inputs.bitext.path):
        raise StageError(f"{work.directory}: expected shards of links with the rows of the text, got {rows}; run again")
    work.write_json(
        work.directory / "align.json",
        {
            "rows": sum(rows),
            "shards": len(rows),
            "unit": config.unit,
            "engine": config.engine,
            "symmetrization": config.symmetrization,
            **fitted,
        },
    )


STAGE = Stage(name="align", version=1, run=run, output=Links, distributes=True)
