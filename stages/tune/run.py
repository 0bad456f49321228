"""Run the tune stage."""

from __future__ import annotations

from dataclasses import replace

from stages.context import StepContext
from stages.decoding.pieces import PIECE_ROWS, DecodeJob
from stages.decoding.sentences import read_sentences
from stages.decoding.text import decode_text
from stages.score.metrics import Comparison, score
from stages.score.tasks import TASKS
from stages.score.tokenizers import tokenizer_for
from stages.shards import read_shard
from stages.tune import TuneConfig, TuneInputs


def run(inputs: TuneInputs, config: TuneConfig, context: StepContext) -> None:
    """Write `tuned.json`. Raises the errors of the decode and score stages."""
    sentences = {sentence.id: sentence for sentence in read_sentences(inputs.text.path)}
    tokenizer = tokenizer_for(config.tokenizer, config.target_language)
    how = Comparison(language=config.target_language, tokenizer=tokenizer, lowercase=config.lowercase)
    metric = TASKS[config.task].metric
    candidates = []
    for penalty in config.length_penalties:
        search = replace(config.search, length_penalty=penalty)  # type: ignore[call-arg]  # a search that penalises length
        pieces = decode_text(inputs.text, DecodeJob(inputs.system, search, config.batch_tokens), PIECE_ROWS, context)
        rows = [row for piece in pieces for row in read_shard(piece.decoded).select(["id", "rank", "text"]).to_pylist()]
        best = [row for row in rows if row["rank"] == 0]
        references = [sentences[row["id"]].references for row in best]
        found = score(metric, [row["text"] for row in best], references, how)
        candidates.append({"length_penalty": penalty, "score": found["score"]})
        context.metrics(len(candidates), {metric: found["score"], "length_penalty": penalty})
    chosen = max(candidates, key=lambda one: one["score"])
    summary = {"search": config.search.label, "metric": metric, **chosen, "candidates": candidates, "signature": found["signature"]}
    context.write_json(context.directory / "tuned.json", summary)
