"""Select training targets from the teacher's hypotheses."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from fewstep.config.options import OutputLimits
from stages.artifacts import CHECKPOINTS, System
from stages.context import StepContext, WorkerContext
from stages.distill import DistillConfig
from stages.errors import ArtifactError
from stages.shared.decoding.pieces import Piece
from stages.shared.scoring.consensus import consensus
from stages.shared.scoring.tokenizers import sentence_bleu, tokenizer_of
from stages.shared.shards import read_shard, write_shard
from stages.shared.target_filters import TargetFilter
from stages.workers import LocalWorkers

MAX_REPEATS = 5
"""Largest number of consecutive repetitions of an n-gram in a usable output."""

COUNTS = b"counts"
"""Key of the outcomes of sources in the metadata of a table of chosen pairs."""


@dataclass(frozen=True)
class OutputFilter:
    """Filter of outputs that cannot be targets. Hypotheses are rows of a `Hypotheses` artifact."""

    config: DistillConfig
    max_source_tokens: int | None
    """Tokens, without EOS, to which the teacher's network limits sources; None if sources are truncated by a rule of the run."""
    max_output_tokens: int
    """Tokens, without EOS, to which the teacher's network limits outputs."""

    def rejection(self, source: str, candidates: Sequence[dict[str, Any]]) -> str | None:
        """Return the reason why no candidate is usable; None if at least one is."""
        if self.max_source_tokens is not None and candidates[0]["source_tokens"] >= self.max_source_tokens:
            return "long_source"
        return None if self.usable(source, candidates) else self._problem(source, candidates[0])

    def usable(self, source: str, candidates: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the candidates that may be targets."""
        return [row for row in candidates if self._problem(source, row) is None]

    def _problem(self, source: str, row: dict[str, Any]) -> str | None:
        limit = min(self.max_output_tokens, max_output_tokens(self.config.search.output_limits, row["source_tokens"]))
        if (ratio := self.config.max_ratio) is not None:
            limit = min(limit, int(ratio * (row["source_tokens"] + 1)))
        found = problem_of(row["ids"], row["text"], limit)
        filters = self.config.filters
        if found is not None or filters is None:
            return found
        return TargetFilter(filters, self.config.target_language).rejection(source, row["text"])


def distilled_tables(
    pieces: Sequence[Piece], config: DistillConfig, teacher: System, context: StepContext, counts: Counter[str]
) -> Iterator[pa.Table]:
    """Yield the pairs (id, source, target) of each decoded piece that have a usable output, and add the outcomes of all sources to
    `counts`.

    Choices of an earlier attempt are reused.
    """
    output_filter = OutputFilter(config, *limits_of(teacher))
    folder = context.directory / CHECKPOINTS / f"chosen-{hashlib.sha256(repr(config).encode()).hexdigest()[:16]}"
    missing = [piece for piece in pieces if not (folder / piece.decoded.name).is_file()]
    # Choosing by score without filters is faster than starting a worker.
    slow = config.choose != "score" or config.filters is not None
    workers = context.workers if slow else LocalWorkers()
    done = len(pieces) - len(missing)
    for _ in workers.map(make_chooser, (output_filter, context.for_workers(), folder), missing):
        done += 1
        if slow:
            context.progress(done, len(pieces), "pieces with chosen targets")
    for piece in pieces:
        table = read_shard(folder / piece.decoded.name)
        counts.update(json.loads(table.schema.metadata[COUNTS]))
        yield table.replace_schema_metadata(None)


def limits_of(teacher: System) -> tuple[int | None, int]:
    """Return `max_source_tokens` and `max_output_tokens` of `OutputFilter`. Raises ArtifactError for a damaged description."""
    path = teacher.path / "system.json"
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        longest = int(described["network"]["max_positions"]) - 1
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            f"{path}: expected the description of a system, got: {error!r}; remove the artifact and run again"
        ) from error
    return None if "max_source_tokens" in described else longest, longest


def make_chooser(argument: tuple[OutputFilter, WorkerContext, Path]) -> Callable[[Piece], None]:
    """Return a function that writes the chosen pairs of a piece to a file in a folder."""
    output_filter, context, folder = argument
    config = output_filter.config
    selectors: dict[str, Callable[[], Selector]] = {
        "reference": lambda: ReferenceSelector(config.target_language),
        "mbr": ConsensusSelector,
    }
    selector = selectors[config.choose]() if config.choose in selectors else None

    def choose(piece: Piece) -> None:
        write_shard(folder / piece.decoded.name, chosen_pairs(piece, output_filter, selector), context)

    return choose


def chosen_pairs(piece: Piece, output_filter: OutputFilter, selector: Selector | None) -> pa.Table:
    """Return the pairs of a decoded piece, with the outcomes of its sources in the metadata of the table.

    `selector` chooses among all hypotheses of a sentence; without one, the first is taken.
    """
    rows = piece.read()
    references = read_shard(piece.shard)["target"].slice(piece.start, piece.rows).to_pylist() if selector else [None] * piece.rows
    ranked: dict[int, list[dict[str, Any]]] = {}
    for row in read_shard(piece.decoded).to_pylist():
        ranked.setdefault(row["id"], []).append(row)
    counts = Counter(rows=piece.rows)
    targets: list[str | None] = []
    for id_, source, reference in zip(rows["id"].to_pylist(), rows["source"].to_pylist(), references, strict=True):
        candidates = ranked[id_] if selector else ranked[id_][:1]
        rejection = output_filter.rejection(source, candidates)
        counts[rejection or "kept"] += 1
        if rejection is not None:
            targets.append(None)
            continue
        usable = output_filter.usable(source, candidates)
        chosen = usable[selector.closest([row["text"] for row in usable], reference or "") if selector else 0]
        if selector:
            counts[f"rank_{chosen['rank']}"] += 1
        targets.append(chosen["text"])
    pairs = rows.append_column("target", pa.array(targets, pa.string()))
    kept = pairs.filter(pa.array([target is not None for target in targets], pa.bool_()))
    return kept.replace_schema_metadata({COUNTS: json.dumps(counts, sort_keys=True)})


class Selector(Protocol):
    """A choice among hypotheses."""

    def closest(self, texts: Sequence[str], reference: str) -> int:
        """Return the index of the chosen text."""
        ...


class ConsensusSelector:
    """Selector of the hypothesis with the least Bayes risk (`stages.shared.scoring.consensus`)."""

    def closest(self, texts: Sequence[str], reference: str) -> int:
        """Return the index of the text with the highest mean chrF to all; the reference plays no part."""
        return consensus(texts)


class ReferenceSelector:
    """Selector of the hypothesis with the highest sentence BLEU (sacreBLEU, exponential smoothing, effective order)."""

    def __init__(self, language: str) -> None:
        """Raise DataError for a language whose tokeniser is not installed."""
        self._score = sentence_bleu(tokenizer_of(language))

    def closest(self, texts: Sequence[str], reference: str) -> int:
        """Return the index of the text with the highest sentence BLEU; the first one on a tie."""
        scores = [self._score(text, reference) for text in texts]
        return scores.index(max(scores))


def max_output_tokens(limits: OutputLimits, source_tokens: int) -> int:
    """Return the length in tokens of the longest output that the limits allow for a source; both without EOS."""
    longest = source_tokens + limits.max_extra_tokens
    return longest if limits.max_tokens is None else min(longest, limits.max_tokens - 1)


def problem_of(ids: Sequence[int], text: str, max_tokens: int) -> str | None:
    """Return why an output cannot be a target (`empty`, `over_long` or `repeating`), or None if it can.

    An output of `max_tokens` tokens or more reached a limit of the search and is over-long. `ids` are without EOS.
    """
    if not text.strip():
        return "empty"
    if len(ids) >= max_tokens:
        return "over_long"
    return "repeating" if repeats(ids, MAX_REPEATS) else None


def repeats(ids: Sequence[int], max_times: int) -> bool:
    """Return whether any n-gram occurs more than `max_times` times in a row."""
    for width in range(1, len(ids) // (max_times + 1) + 1):
        run = 0
        for left, right in zip(ids, ids[width:], strict=False):
            run = run + 1 if left == right else 0
            if run == width * max_times:
                return True
    return False
