"""Translate one test set with one system and one search."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from stages.artifacts import Hypotheses, System, Text, Tuned
from stages.families import Search
from stages.stage import Stage, Work


@dataclass(frozen=True)
class DecodeInputs:
    system: System
    text: Text
    tuned: Tuned | None = None
    """The search's length penalty; none: its own."""


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """How a test set is decoded."""

    search: Search
    """The search."""
    batch_tokens: int = 4000
    """Padded source tokens in a batch."""


PIECE_ROWS = 256
"""Sentences decoded at a time: a test set keeps several workers busy, and a killed attempt loses little."""


def run(inputs: DecodeInputs, config: DecodeConfig, work: Work) -> None:
    """Write the hypotheses of every sentence, `hypotheses.txt` and `decode.json`.

    Raises ArtifactError when a decoded piece does not hold exactly the rows of its sentences.
    """
    from stages.decode.draft_statistics import summarise
    from stages.decoding.driver import NEAR_TIE, Task, copy, decode_text
    from stages.shards import drop_shards_from, read_shard, shard_path
    from stages.tune import with_tuned_penalty

    search = with_tuned_penalty(config.search, inputs.tuned)
    task = Task(inputs.system, search, config.batch_tokens)
    decoded = decode_text(inputs.text, task, PIECE_ROWS, work)
    lines: list[str] = []
    near_ties: list[int] = []
    for index, piece in enumerate(decoded):
        copy(piece.decoded, shard_path(work.directory, index), work)
        rows = read_shard(piece.decoded).select(["id", "rank", "text", "margin"]).to_pylist()
        best = [row for row in rows if row["rank"] == 0]
        lines += [row["text"] for row in best]
        near_ties += [row["id"] for row in best if row["margin"] is not None and row["margin"] < NEAR_TIE]
    drafting = summarise([read_shard(piece.decoded) for piece in decoded])
    drop_shards_from(work.directory, len(decoded))
    work.write_text(work.directory / "hypotheses.txt", "".join(f"{line}\n" for line in lines))
    summary = {"rows": len(lines), "search": asdict(search), "near_ties": {"count": len(near_ties), "first": near_ties[:10]}}
    if drafting is not None:
        summary["drafting"] = drafting
    work.write_json(work.directory / "decode.json", summary)


STAGE = Stage(name="decode", version=1, run=run, output=Hypotheses, distributes=True)
