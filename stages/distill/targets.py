"""From the teacher's hypotheses to targets: what is no training target, and which of several is taken."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.config.options import OutputLimits
from stages.artifacts import CHECKPOINTS, System
from stages.context import StepContext, WorkerContext
from stages.distill import DistillConfig
from stages.errors import ArtifactError
from stages.shards import read_shard, write_shard
from stages.workers import LocalWorkers

if TYPE_CHECKING:
    import pyarrow as pa

    from stages.decoding.driver import Piece

MAX_REPEATS = 5
"""How often the same tokens may stand in a row before an output is held to be a loop."""

COUNTS = b"counts"
"""Key under which a table of chosen pairs says what became of its sources."""


@dataclass(frozen=True)
class Judge:
    """What is asked of outputs."""

    config: DistillConfig
    longest_source: int | None
    """Tokens, without EOS, that a source is cut to because the teacher reads no more; None where cutting is a rule of the run."""
    longest_output: int
    """Tokens, without EOS, after which the teacher has no room for more."""

    def verdict(self, ranked: Sequence[dict[str, Any]]) -> str | None:
        """Why none of the hypotheses (rows of `Hypotheses`, those that are looked at) is a target, or None."""
        if self.longest_source is not None and ranked[0]["source_tokens"] >= self.longest_source:
            return "long_source"
        return None if any(self._failure(row) is None for row in ranked) else self._failure(ranked[0])

    def sound(self, ranked: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those that may be targets."""
        return [row for row in ranked if self._failure(row) is None]

    def _failure(self, row: dict[str, Any]) -> str | None:
        longest = min(self.longest_output, longest_output(self.config.search.output_limits, row["source_tokens"]))
        if (ratio := self.config.max_ratio) is not None:
            longest = min(longest, int(ratio * (row["source_tokens"] + 1)))
        return failure(row["ids"], row["text"], longest)


def distilled_tables(
    pieces: Sequence[Piece], config: DistillConfig, teacher: System, context: StepContext, counts: Counter[str]
) -> Iterator[pa.Table]:
    """The pairs of each decoded piece whose output is sound (id, source, target), counting what became of all sources.

    What was chosen in an earlier attempt is not chosen again.
    """
    judge = Judge(config, *limits_of(teacher))
    folder = context.directory / CHECKPOINTS / f"chosen-{hashlib.sha256(repr(config).encode()).hexdigest()[:16]}"
    places = [(piece, folder / piece.decoded.name) for piece in pieces]
    missing = [place for place in places if not place[1].is_file()]
    # To look at scores takes no longer than to start a worker.
    workers = context.workers if config.choose == "reference" else LocalWorkers()
    done = len(places) - len(missing)
    for _ in workers.map(make_chooser, (judge, context.for_workers()), missing):
        done += 1
        if config.choose == "reference":
            context.progress(done, len(places), "shards chosen from")
    for _, path in places:
        table = read_shard(path)
        counts.update(json.loads(table.schema.metadata[COUNTS]))
        yield table.replace_schema_metadata(None)


def limits_of(teacher: System) -> tuple[int | None, int]:
    """The longest source and the longest output, see `Judge`. Raises ArtifactError for a directory that says nothing of them."""
    path = teacher.path / "system.json"
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        longest = int(described["network"]["max_positions"]) - 1
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            f"{path}: expected the description of a system, got: {error!r}; remove the artifact and run again"
        ) from error
    return None if "max_source_tokens" in described else longest, longest


def make_chooser(argument: tuple[Judge, WorkerContext]) -> Callable[[tuple[Piece, Path]], None]:
    """One worker: writes the chosen pairs of a piece."""
    judge, context = argument
    nearest = Nearness(judge.config.target_language) if judge.config.choose == "reference" else None

    def choose(place: tuple[Piece, Path]) -> None:
        piece, path = place
        write_shard(path, chosen_pairs(piece, judge, nearest), context)

    return choose


def chosen_pairs(piece: Piece, judge: Judge, nearest: Nearness | None) -> pa.Table:
    """The pairs of a decoded piece; what became of its sources is in the table's metadata."""
    import pyarrow as pa

    rows = piece.read()
    references = read_shard(piece.shard)["target"].slice(piece.start, piece.rows).to_pylist() if nearest else [None] * piece.rows
    ranked: dict[int, list[dict[str, Any]]] = {}
    for row in read_shard(piece.decoded).to_pylist():
        ranked.setdefault(row["id"], []).append(row)
    counts = Counter(rows=piece.rows)
    targets: list[str | None] = []
    for id_, reference in zip(rows["id"].to_pylist(), references, strict=True):
        looked_at = ranked[id_] if nearest else ranked[id_][:1]
        verdict = judge.verdict(looked_at)
        counts[verdict or "kept"] += 1
        if verdict is not None:
            targets.append(None)
            continue
        sound = judge.sound(looked_at)
        place = nearest.of([row["text"] for row in sound], reference or "") if nearest else 0
        if nearest:
            counts[f"rank_{sound[place]['rank']}"] += 1
        targets.append(sound[place]["text"])
    pairs = rows.append_column("target", pa.array(targets, pa.string()))
    kept = pairs.filter(pa.array([target is not None for target in targets], pa.bool_()))
    return kept.replace_schema_metadata({COUNTS: json.dumps(counts, sort_keys=True)})


class Nearness:
    """Sentence BLEU as sacreBLEU has it (exponential smoothing, up to the order that a sentence has)."""

    def __init__(self, language: str) -> None:
        """Raises DataError for a language whose tokeniser is not installed."""
        from stages.score.tokenizers import sentence_bleu, tokenizer_of

        self._score = sentence_bleu(tokenizer_of(language))

    def of(self, texts: Sequence[str], reference: str) -> int:
        """The place of the text that is nearest to the reference, of equals the first."""
        scores = [self._score(text, reference) for text in texts]
        return scores.index(max(scores))


def longest_output(limits: OutputLimits, source_tokens: int) -> int:
    """Return the longest output in tokens that the limits allow; both without EOS."""
    longest = source_tokens + limits.max_extra_tokens
    return longest if limits.max_tokens is None else min(longest, limits.max_tokens - 1)


def failure(ids: Sequence[int], text: str, longest: int) -> str | None:
    """Why an output is no training target, or None: it is `empty`, `over_long` or `repeating`.

    Over-long is what has `longest` tokens or more: it ran into a limit. `ids` are without EOS.
    """
    if not text.strip():
        return "empty"
    if len(ids) >= longest:
        return "over_long"
    return "repeating" if loops(ids, MAX_REPEATS) else None


def loops(ids: Sequence[int], times: int) -> bool:
    """Does any n-gram stand more than `times` times in a row?"""
    for width in range(1, len(ids) // (times + 1) + 1):
        run = 0
        for left, right in zip(ids, ids[width:], strict=False):
            run = run + 1 if left == right else 0
            if run == width * times:
                return True
    return False
