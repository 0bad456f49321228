"""Run the distill stage."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from stages.artifacts import Text
from stages.context import StepContext
from stages.distill import STAGE, DistillConfig, DistillInputs
from stages.distill.targets import distilled_tables
from stages.errors import ArtifactError, StageError
from stages.shared.decoding.pieces import DecodeJob, Piece
from stages.shared.decoding.text import decode_text
from stages.shared.scoring.options import QUALITY
from stages.shared.shards import drop_shards_from, write_shards
from stages.shared.target_filters import REASONS

PIECE_ROWS = 512
"""Rows of a piece. A killed attempt loses at most one piece of each worker."""

OUTCOMES = {
    "kept": "kept",
    "empty": "empty output",
    "over_long": "output too long",
    "repeating": "repetitive output",
    "long_source": "source longer than the system's limit",
    **REASONS,
    **QUALITY,
}
"""Outcomes of a source, and their names in reports."""


def run(inputs: DistillInputs, config: DistillConfig, context: StepContext) -> None:
    """Write the text with the teacher's outputs as targets, and `distill.json`. Pairs without a usable output are dropped.

    Raises StageError when there is no usable output, ArtifactError when the text or a decoded piece has missing or repeated rows
    and when the teacher's directory is damaged.
    """
    described = json.loads((inputs.text.path / "text.json").read_text(encoding="utf-8"))
    job = DecodeJob(inputs.teacher, config.search, (STAGE.name, STAGE.version), config.batch_tokens)
    decoded = decode_text(inputs.text, job, PIECE_ROWS, context)
    _check_rows(inputs.text, decoded, int(described["rows"]))
    counts = Counter({"rows": 0, "kept": 0, "empty": 0, "over_long": 0, "repeating": 0})
    tables = distilled_tables(decoded, inputs, config, context, counts)
    shards = write_shards(tables, context.directory, described["shard_rows"], context)
    drop_shards_from(context.directory, len(shards))
    if not counts["kept"]:
        lost = ", ".join(f"{counts[key]} {OUTCOMES[key]}" for key in OUTCOMES if counts[key])
        raise StageError(
            f"expected usable translations of {counts['rows']} sources by the system in {inputs.teacher.path}, got none ({lost}); "
            f"look at its outputs (fewstep translate {inputs.teacher.path}): a system of few updates has to be trained longer"
        )
    if (counts["rows"], counts["kept"]) != (described["rows"], sum(shards)):
        raise ArtifactError(
            f"{context.directory}: expected {described['rows']} sources and {counts['kept']} pairs, got {counts['rows']} and "
            f"{sum(shards)}; remove the directory and run again"
        )
    context.write_json(
        context.directory / "text.json", {"rows": sum(shards), "shards": len(shards), "shard_rows": described["shard_rows"]}
    )
    context.write_json(context.directory / "distill.json", dict(counts))
    context.write_json(context.records("tables", "distillation.json"), _table(counts, inputs, config))


def _check_rows(text: Text, pieces: Iterable[Piece], rows: int) -> None:
    """Raise ArtifactError unless the text has `rows` rows with ascending ids."""
    last = -1
    found = 0
    for piece in pieces:
        for id_ in piece.read()["id"].to_pylist():
            if id_ <= last:
                raise ArtifactError(
                    f"{piece.shard}: expected ids that ascend, got {id_} after {last}; the text is damaged: remove {text.path} and "
                    "run again"
                )
            last = id_
            found += 1
    if found != rows:
        raise ArtifactError(f"{text.path}: expected {rows} rows in its shards, got {found}; remove the directory and run again")


def _table(counts: Counter[str], inputs: DistillInputs, config: DistillConfig) -> dict[str, object]:
    """The outcomes of the sources as a table of the report."""
    total = max(counts["rows"], 1)
    rows = [[OUTCOMES[key], f"{counts[key]:,}", f"{counts[key] / total:.2%}"] for key in OUTCOMES if counts[key] or key == "kept"]
    caption = (
        f"Outputs of the system that translated {counts['rows']:,} sources ({config.search.label}). Networks are trained on those "
        "that are kept."
    )
    if config.choose != "score":
        others = sum(count for key, count in counts.items() if key.startswith("rank_") and key != "rank_0")
        chosen = f"the chosen output, which {_chosen(inputs, config)},"
        caption += f" In {others:,} of {counts['kept']:,} pairs {chosen} is not the most probable one."
    return {"title": "Distillation", "caption": caption, "columns": ["outputs", "sentences", "share"], "rows": rows}


def _chosen(inputs: DistillInputs, config: DistillConfig) -> str:
    """Return what the targets have more of than other outputs."""
    model = f"COMET, {inputs.comet.path.stem}" if inputs.comet else "chrF"
    return {
        "reference": "is the closest to the original target",
        "mbr": f"is the closest to all outputs ({model})",
        "quality": f"has the highest score ({model})",
    }[config.choose]
