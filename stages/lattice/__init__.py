"""Count candidate tables from word links, and measure how much of the validation text their lattices hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Le

from stages.artifacts import Links, Tables, Tokens, Vocabulary
from stages.errors import DataError, TransientError
from stages.stage import Stage, Work
from stages.workers import LocalWorkers

if TYPE_CHECKING:
    from kernels.candidates import TableSummary


@dataclass(frozen=True)
class LatticeInputs:
    tokens: Tokens
    """Training pairs, in pieces, as the models of the lattice see them."""
    links: Links
    """Links between the pieces of the same pairs."""
    validation: Tokens
    """Pairs whose recall is measured."""
    vocabulary: Vocabulary
    """The one that both were encoded with."""


@dataclass(frozen=True, kw_only=True)
class LatticeConfig:
    """Candidate tables."""

    max_offset: Annotated[int, Ge(0), Le(32767)] = 127
    """Links between positions that are more pieces apart are dropped."""
    top: Annotated[int, Ge(1)] = 40
    """Most frequent target pieces kept for each source piece and offset."""
    backoff: Annotated[float, Ge(0)] = 0.0
    """Links that what a source piece means anywhere counts as beside those at an offset (smoothing, for
    little text); 0: none, as in the paper."""
    max_length: Annotated[int, Ge(1), Le(65535)] = 256
    """Pairs with more pieces on a side are not counted."""
    length_window: Annotated[int, Ge(0)] = 3
    """Pieces that the predicted length may be off, where recall is measured with predicted lengths."""


def run(inputs: LatticeInputs, config: LatticeConfig, work: Work) -> None:
    """Write `tables.bin` and `lattice.json`; recall as metrics, a table and a figure. Runs that an attempt counted are kept.

    The bytes are the same for any shards and workers. Raises DataError when there is no link to count, ArtifactError for shards and
    links that are damaged or do not belong together, TransientError when it was asked to stop (what was counted is kept).
    """
    from stages.lattice.counts import Job, groups_of, make_counter, make_finisher
    from stages.lattice.recall import record

    job = Job(inputs, config, replace(work, workers=LocalWorkers()))
    groups = groups_of(inputs)
    total, done = sum(group.rows for group in groups), 0
    for index, _ in work.workers.map(make_counter, job, groups):
        done += groups[index].rows
        work.progress(done, total, "pairs")
        if work.stop_requested() and done < total:
            raise TransientError(f"asked to stop: the links of {done} of {total} pairs are counted and kept")
    ((_, (summary, recall)),) = work.workers.map(make_finisher, job, [groups])
    if not summary.linked:
        raise DataError(
            f"lattice: expected links within {config.max_offset} positions in pairs of at most {config.max_length} pieces, "
            f"got none: {summary.pairs} such pairs, {summary.empty} with an empty side, {summary.too_long} that are longer"
        )
    record(recall, work)
    work.write_json(work.directory / "lattice.json", describe(summary))


def describe(summary: TableSummary) -> dict[str, Any]:
    """`lattice.json`: the summary of the table, and what share of the links it lacks."""
    values = asdict(summary) | {"vocabulary": summary.vocabulary.hex(), "links": summary.links.hex()}
    seen = summary.linked + summary.dropped
    return values | {"dropped_share": summary.dropped / seen, "cut_share": (summary.linked - summary.kept) / summary.linked}


STAGE = Stage(name="lattice", version=2, run=run, output=Tables, distributes=True)
