"""Run the lengths stage."""

from __future__ import annotations

from stages.context import StepContext
from stages.shared.shards import read_shard, shard_paths
from tests.examples.stage.lengths import LengthsConfig, LengthsInputs


def run(inputs: LengthsInputs, config: LengthsConfig, context: StepContext) -> None:
    """Write `lengths.json`. Raises ArtifactError for a text with a missing or broken shard."""
    counts = {side: [0] * (config.max_words + 2) for side in ("source", "target")}
    paths = shard_paths(inputs.text.path)
    for done, path in enumerate(paths, 1):
        shard = read_shard(path)
        for side, count in counts.items():
            for sentence in shard[side].to_pylist():
                count[min(len(sentence.split()), config.max_words + 1)] += 1
        context.progress(done, len(paths), "shards")
    context.write_json(context.directory / "lengths.json", counts)
