"""Read texts and hypotheses as sentences, and match them by id."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stages.artifacts import Hypotheses
from stages.errors import ArtifactError
from stages.shared.shards import read_shards


@dataclass(frozen=True)
class Sentence:
    """A row of a text."""

    id: int
    source: str
    references: tuple[str, ...]
    """The target, then further references; at least one."""


def read_sentences(directory: Path) -> list[Sentence]:
    """Return all rows of a `Text` artifact, in order."""
    sentences = []
    for table in read_shards(directory):
        rows = table.to_pydict()
        references = rows.get("references") or [[target] for target in rows["target"]]
        sentences += [
            Sentence(id_, source, tuple(texts)) for id_, source, texts in zip(rows["id"], rows["source"], references, strict=True)
        ]
    return sentences


def read_best(directory: Path) -> dict[int, str]:
    """Return the best hypothesis of each sentence of a `Hypotheses` artifact, by id.

    Raises ArtifactError if a sentence has two best hypotheses.
    """
    best: dict[int, str] = {}
    for table in read_shards(directory):
        rows = table.select(["id", "rank", "text"]).to_pydict()
        for id_, rank, text in zip(rows["id"], rows["rank"], rows["text"], strict=True):
            if rank:
                continue
            if id_ in best:
                raise ArtifactError(
                    f"{directory}: expected one best hypothesis for each sentence, got two for id {id_}; "
                    "remove the artifact and run again"
                )
            best[id_] = text
    return best


def best_in_order(hypotheses: Hypotheses, sentences: list[Sentence]) -> list[str]:
    """Return the best hypothesis of each sentence, in the order of `sentences`.

    Raises ArtifactError when the hypotheses belong to other sentences.
    """
    best = read_best(hypotheses.path)
    missing = [sentence.id for sentence in sentences if sentence.id not in best]
    if missing or len(best) != len(sentences):
        raise ArtifactError(
            f"{hypotheses.path}: expected the hypotheses of {len(sentences)} sentences, got {len(best)}"
            f" ({len(missing)} missing, first {missing[:3]}); remove the artifact and run again"
        )
    return [best[sentence.id] for sentence in sentences]


def ranked_in_order(hypotheses: Hypotheses, sentences: list[Sentence]) -> list[list[str]]:
    """Return all hypotheses of each sentence, best first, in the order of `sentences`. `best_in_order` checks the ids."""
    ranked: dict[int, dict[int, str]] = {sentence.id: {} for sentence in sentences}
    for table in read_shards(hypotheses.path):
        rows = table.select(["id", "rank", "text"]).to_pydict()
        for id_, rank, text in zip(rows["id"], rows["rank"], rows["text"], strict=True):
            ranked[id_][rank] = text
    return [[texts[rank] for rank in sorted(texts)] for texts in (ranked[sentence.id] for sentence in sentences)]
