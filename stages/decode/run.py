"""Run the decode stage."""

from __future__ import annotations

from stages.context import StepContext
from stages.decode import DecodeConfig, DecodeInputs
from stages.decode.draft_statistics import summarise
from stages.decoding.pieces import PIECE_ROWS, DecodeJob, copy
from stages.decoding.text import NEAR_TIE, decode_text
from stages.shards import drop_shards_from, read_shard, shard_path
from stages.tune.chosen import with_tuned_options


def run(inputs: DecodeInputs, config: DecodeConfig, context: StepContext) -> None:
    """Write the hypotheses of all sentences, `hypotheses.txt` and `decode.json`.

    Raises ArtifactError when a decoded piece does not hold exactly the rows of its sentences, StageError when the engine of the
    search is not installed or the memory does not suffice, and TransientError when the step was asked to stop.
    """
    search = with_tuned_options(config.search, inputs.tuned)
    job = DecodeJob(inputs.system, search, config.batch_tokens)
    decoded = decode_text(inputs.text, job, PIECE_ROWS, context)
    lines: list[str] = []
    near_ties: list[int] = []
    for index, piece in enumerate(decoded):
        copy(piece.decoded, shard_path(context.directory, index), context)
        rows = read_shard(piece.decoded).select(["id", "rank", "text", "margin"]).to_pylist()
        best = [row for row in rows if row["rank"] == 0]
        lines += [row["text"] for row in best]
        near_ties += [row["id"] for row in best if row["margin"] is not None and row["margin"] < NEAR_TIE]
    drafting = summarise([read_shard(piece.decoded) for piece in decoded])
    drop_shards_from(context.directory, len(decoded))
    context.write_text(context.directory / "hypotheses.txt", "".join(f"{line}\n" for line in lines))
    summary = {"rows": len(lines), "search": search.values(), "near_ties": {"count": len(near_ties), "first": near_ties[:10]}}
    if drafting is not None:
        summary["drafting"] = drafting
    context.write_json(context.directory / "decode.json", summary)
