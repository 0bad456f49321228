"""Run the decode stage."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fewstep.text.glossary import Glossary
from fewstep.text.masks import kinds_of, mask
from fewstep.vocabulary import unknown_pieces
from stages.context import StepContext
from stages.decode import STAGE, DecodeConfig, DecodeInputs
from stages.errors import unwritable
from stages.shared.decoding.draft_statistics import summarise
from stages.shared.decoding.glossaries import glossary_of
from stages.shared.decoding.pieces import PIECE_ROWS, DecodeJob, Piece, copy
from stages.shared.decoding.searches import with_tuned_options
from stages.shared.decoding.text import NEAR_TIE, decode_text
from stages.shared.shards import drop_shards_from, read_shard, shard_path, shard_paths
from stages.shared.vocabulary import processor

SHOWN_PIECES = 20
"""Unknown pieces that the record names."""


def run(inputs: DecodeInputs, config: DecodeConfig, context: StepContext) -> None:
    """Write the hypotheses of all sentences, `hypotheses.txt` and `decode.json`.

    Raises ArtifactError when a decoded piece does not hold exactly the rows of its sentences, StageError when the engine of the
    search is not installed or the memory does not suffice, and TransientError when the step was asked to stop.
    """
    search = with_tuned_options(config.search, inputs.tuned)
    glossary = None if inputs.glossary is None else glossary_of(inputs.glossary)
    terms = glossary.terms if glossary else ()
    job = DecodeJob(inputs.system, search, (STAGE.name, STAGE.version), config.batch_tokens, terms, keep_masks=True)
    decoded = decode_text(inputs.text, job, PIECE_ROWS, context)
    for index, piece in enumerate(decoded):
        copy(piece.decoded, shard_path(context.directory, index), context)
    drop_shards_from(context.directory, len(decoded))
    rows, near_ties = _write_best(decoded, context)
    unknown = _unknown_pieces(inputs, glossary)
    summary = {"rows": rows, "search": search.values(), "near_ties": near_ties, "unknown": unknown}
    drafting = summarise(read_shard(piece.decoded) for piece in decoded)
    if drafting is not None:
        summary["drafting"] = drafting
    context.write_json(context.directory / "decode.json", summary)


def _unknown_pieces(inputs: DecodeInputs, glossary: Glossary | None) -> dict[str, object]:
    """Return the number of sources with pieces that the vocabulary lacks, and the first of these pieces."""
    pieces = processor(inputs.system.path, "source")
    sentences = 0
    found = dict[str, None]()
    kinds = kinds_of(pieces)
    for path in shard_paths(inputs.text.path):
        lines = [
            mask(line, kinds, terms=glossary.find(line) if glossary else ()).text for line in read_shard(path)["source"].to_pylist()
        ]
        for line, ids in zip(lines, pieces.encode(lines), strict=True):
            if unknown := unknown_pieces(pieces, line, ids):
                sentences += 1
                found.update(dict.fromkeys(unknown))
    return {"sentences": sentences, "first": list(found)[:SHOWN_PIECES]}


def _write_best(decoded: Sequence[Piece], context: StepContext) -> tuple[int, dict[str, object]]:
    """Write the best hypothesis of each sentence to `hypotheses.txt`; return their number, and the number of near ties among them
    with the first ids."""
    path = context.directory / "hypotheses.txt"
    rows = 0
    ties = 0
    first = list[int]()
    try:
        with context.temporary(path).open("w", encoding="utf-8", newline="\n") as file:
            for piece in decoded:
                table = read_shard(piece.decoded).select(["id", "rank", "text", "margin"])
                best = [row for row in table.to_pylist() if row["rank"] == 0]
                near = [row["id"] for row in best if row["margin"] is not None and row["margin"] < NEAR_TIE]
                file.writelines(f"{row['text']}\n" for row in best)
                rows += len(best)
                ties += len(near)
                first = (first + near)[:10]
        os.replace(context.temporary(path), path)
    except OSError as error:
        raise unwritable(path, error) from error
    return rows, {"count": ties, "first": first}
