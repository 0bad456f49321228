"""Choose the length penalty of a search by what it scores on the validation text."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from stages.artifacts import System, Text, Tuned
from stages.families import PenalisedSearch, Search
from stages.score.tasks import TASKS, TaskName
from stages.stage import Stage, Work


@dataclass(frozen=True)
class TuneInputs:
    system: System
    text: Text


@dataclass(frozen=True, kw_only=True)
class TuneConfig:
    """What is tried, and how it is compared."""

    search: PenalisedSearch
    """The search, whose own length penalty is not read."""
    length_penalties: tuple[float, ...]
    """Length penalties to try; of equally good ones the first is taken."""
    target_language: str
    """Language code of the hypotheses; chooses the tokeniser."""
    task: TaskName = "translation"
    """What is learnt; chooses the metric."""
    tokenizer: str = "auto"
    """sacreBLEU tokeniser; auto follows the target language."""
    lowercase: bool = False
    """Compare without case?"""
    batch_tokens: int = 4000
    """Padded source tokens in a batch."""


def run(inputs: TuneInputs, config: TuneConfig, work: Work) -> None:
    """Write `tuned.json`. Raises what decoding and scoring raise."""
    from stages.decode import PIECE_ROWS
    from stages.decoding.driver import Task, decode_text
    from stages.decoding.sentences import read_sentences
    from stages.score.metrics import Comparison, score, tokenizer_of
    from stages.shards import read_shard

    sentences = {sentence.id: sentence for sentence in read_sentences(inputs.text.path)}
    tokenizer = tokenizer_of(config.target_language) if config.tokenizer == "auto" else config.tokenizer
    how = Comparison(language=config.target_language, tokenizer=tokenizer, lowercase=config.lowercase)
    metric = TASKS[config.task].metric
    tried = []
    for penalty in config.length_penalties:
        search = replace(config.search, length_penalty=penalty)
        pieces = decode_text(inputs.text, Task(inputs.system, search, config.batch_tokens), PIECE_ROWS, work)
        rows = [row for piece in pieces for row in read_shard(piece.decoded).select(["id", "rank", "text"]).to_pylist()]
        best = [row for row in rows if row["rank"] == 0]
        references = [sentences[row["id"]].references for row in best]
        found = score(metric, [row["text"] for row in best], references, how)
        tried.append({"length_penalty": penalty, "score": found["score"]})
        work.metrics(len(tried), {metric: found["score"], "length_penalty": penalty})
    chosen = max(tried, key=lambda one: one["score"])
    summary = {"search": config.search.name, "metric": metric, **chosen, "tried": tried, "signature": found["signature"]}
    work.write_json(work.directory / "tuned.json", summary)


def with_tuned_penalty(search: Search, tuned: Tuned | None) -> Search:
    """The search with the length penalty that was chosen for it."""
    if tuned is None:
        return search
    assert isinstance(search, PenalisedSearch)  # no other is tuned
    found = json.loads((tuned.path / "tuned.json").read_text(encoding="utf-8"))
    return replace(search, length_penalty=float(found["length_penalty"]))


STAGE = Stage(name="tune", version=1, run=run, output=Tuned, distributes=True)
