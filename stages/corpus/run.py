"""Run the corpus stage."""

from __future__ import annotations

import json
from collections.abc import Iterable

from stages.context import StepContext
from stages.corpus import CorpusConfig, CorpusInputs
from stages.corpus.clean import make_cleaner, make_measurer
from stages.corpus.duplicates import Found, RepetitionSearch, make_counter, make_finder, searches
from stages.corpus.filters import sampled_rows
from stages.corpus.job import PIECE_ROWS, Job, open_job
from stages.corpus.ledger import Ledger
from stages.corpus.write import Layout, make_writer, samples_at
from stages.errors import DataError, StageError
from stages.shared.phases import Phases
from stages.shared.shards import drop_shards_from, shard_paths


def run(inputs: CorpusInputs, config: CorpusConfig, context: StepContext, piece_rows: int = PIECE_ROWS) -> None:
    """Write the text of `inputs.files`, or of the embedded corpus, as shards. With filters, also write the ledger.

    Equal inputs and config give equal bytes for any number of workers and any size of pieces. Raises DataError for unusable files,
    a text without pairs, and an `exclude` text without sentences. Raises TransientError when the step was asked to stop; finished
    pieces are kept.
    """
    job = open_job(inputs, config, context, piece_rows)
    ratio = _usual_ratio(job, context) if config.filters else 1.0
    ledger, pairs = _clean(job, ratio, context)
    found = _find_repetitions(searches(job, pairs), context)
    layout = Layout.of(pairs, found, config.shard_rows)
    for search, repetitions in found:
        ledger.drop(search.kind, int(repetitions.by_piece.sum()))
        if len(repetitions.first):
            ledger.samples[search.kind] = samples_at(job, layout, repetitions.first)
    ledger.pairs_out = layout.rows
    _check_kept(job, ledger, ratio)
    _write(job, layout, context)
    _describe(job, layout, ledger, ratio, context)


def _usual_ratio(job: Job, context: StepContext) -> float:
    ((_, ratio),) = Phases(context).map(make_measurer, job, [sampled_rows(job.text.batches())])
    return ratio


def _clean(job: Job, ratio: float, context: StepContext) -> tuple[Ledger, list[int]]:
    """Filter all pieces; return the ledger of the text and the number of pairs that are left in each piece."""
    ledger = Ledger()
    pairs = [0] * job.pieces
    for piece, part in Phases(context).map(make_cleaner, (job, ratio), range(job.pieces)):
        pairs[piece] = part.pairs_out
        ledger.add(part)
        _report(job, ledger.pairs_in, context)
    return ledger, pairs


def _find_repetitions(searches: list[RepetitionSearch], context: StepContext) -> list[tuple[RepetitionSearch, Found]]:
    """Return the repetitions that each search finds. A pair is counted in the first of them."""
    found = []
    for number, search in enumerate(searches):
        repetitions = _sum(Phases(context).map(make_finder, search, range(search.partitions)), search)
        if search.kind == "similar":  # a pair may repeat several bands, and an equal pair repeats all
            repetitions = _sum(Phases(context).map(make_counter, searches[: number + 1], range(search.pieces)), search)
        found.append((search, repetitions))
    return found


def _sum(parts: Iterable[tuple[int, Found]], search: RepetitionSearch) -> Found:
    return sum((part for _, part in parts), Found.none(search.pieces))


def _write(job: Job, layout: Layout, context: StepContext) -> None:
    """Write all shards."""
    pieces = [piece for piece in range(job.pieces) if layout.shards_of(piece)]
    done = 0
    for _, piece in Phases(context).map(make_writer, (job, layout), pieces):
        done += len(layout.shards_of(piece)) * layout.shard_rows
        _report(job, job.text.rows * (1 + min(1.0, done / layout.rows)), context)
    drop_shards_from(context.directory, layout.shards)
    if (found := len(shard_paths(context.directory))) != layout.shards:
        raise StageError(f"{context.directory}: expected {layout.shards} shards, got {found}; run again")


def _report(job: Job, half_done: float, context: StepContext) -> None:
    """Record the progress: filtering a pair is half of the work on it, and writing it the other half."""
    context.progress(int(half_done) // 2, job.text.rows, "pairs")


def _check_kept(job: Job, ledger: Ledger, ratio: float) -> None:
    if not job.text.rows:
        names = ", ".join(str(file.shown) for _, file in job.text.counts())
        raise DataError(
            f"corpus: expected at least one pair of sentences, got an empty text: {names}; check the files in the config"
        )
    if not ledger.pairs_out:
        account = json.dumps(_account(ledger, ratio), ensure_ascii=False)
        raise DataError(
            f"corpus: expected pairs that pass the filters, got none of {ledger.pairs_in}; the ledger: {account}; relax the filters"
        )


def _describe(job: Job, layout: Layout, ledger: Ledger, ratio: float, context: StepContext) -> None:
    counts = list(job.text.counts())
    if job.config.filters or any(ledger.dropped.values()):
        files = [{"side": side, "digest": file.file.digest, "lines": file.rows} for side, file in counts]
        _add_places(job, ledger)
        context.write_json(context.directory / "ledger.json", _account(ledger, ratio) | {"files": files})
    context.write_json(
        context.records("files.json"), [{"side": side, "path": str(file.shown), "lines": file.rows} for side, file in counts]
    )
    text = {"rows": layout.rows, "shards": layout.shards, "shard_rows": layout.shard_rows}
    context.write_json(context.directory / "text.json", text)


def _add_places(job: Job, ledger: Ledger) -> None:
    """Add the file and the line to the samples of a ledger."""
    for sample in (one for found in ledger.samples.values() for one in found):
        if place := job.text.place(int(sample["pair"]) - 1):
            sample |= {"file": place[0], "line": place[1]}


def _account(ledger: Ledger, ratio: float) -> dict[str, object]:
    return ledger.to_json() | {"usual_ratio": round(ratio, 4)}
