"""Run the tune stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fewstep.config.options import MAX_SHORTLIST_TOKENS, Shortlist
from fewstep.config.search import SearchConfig
from fewstep.shortlist import Lexicon
from fewstep.system.description import read_description
from fewstep.system.format import BundleError
from fewstep.system.networks import sizes_of
from fewstep.system.parts import load_lexicon
from stages.context import StepContext
from stages.errors import ArtifactError
from stages.shared.decoding.pieces import PIECE_ROWS, DecodeJob
from stages.shared.decoding.sentences import read_sentences
from stages.shared.decoding.systems import load
from stages.shared.decoding.text import decode_text
from stages.shared.scoring.metrics import Comparison, decoded, score
from stages.shared.scoring.tokenizers import tokenizer_for
from stages.shared.shards import read_shard
from stages.shared.tasks import TASKS
from stages.tune import STAGE, TuneConfig, TuneInputs


def run(inputs: TuneInputs, config: TuneConfig, context: StepContext) -> None:
    """Write `tuned.json`. Raises the errors of the decode and score stages."""
    search = config.search
    summary: dict[str, Any] = {"search": search.label}
    if (shortlist := search.unmeasured_shortlist) is not None:
        chosen = _choose_shortlist(inputs, config, shortlist, context)
        tokens = chosen["tokens"]
        search = search.with_shortlist(None if tokens is None else replace(shortlist, tokens=tokens, recall=None))
        summary |= {"shortlist": chosen}
    if config.length_penalties:
        summary |= _choose_penalty(inputs, config, search, context)
    context.write_json(context.directory / "tuned.json", summary)


def _choose_shortlist(inputs: TuneInputs, config: TuneConfig, shortlist: Shortlist, context: StepContext) -> dict[str, Any]:
    """Return the size of a shortlist and its recall on the outputs of the search without a shortlist."""
    rows = _best(inputs, config, config.search.with_shortlist(None), context)
    sentences = {sentence.id: sentence for sentence in read_sentences(inputs.text.path)}
    sources = load(inputs.system, "cpu").encode([sentences[row["id"]].source for row in rows])
    pairs = [(source, row["ids"]) for source, row in zip(sources, rows, strict=True)]
    measured = smallest(ranks(lexicon_of(inputs.system.path), shortlist.links, pairs), shortlist)
    context.metrics(0, {"shortlist_recall": measured.recall, "shortlist_tokens": measured.tokens or 0})
    return {**measured._asdict(), "links": shortlist.links, "expected_recall": shortlist.recall}


def _choose_penalty(inputs: TuneInputs, config: TuneConfig, search: SearchConfig, context: StepContext) -> dict[str, Any]:
    """Return the length penalty with the best score, and the scores of all candidates."""
    sentences = {sentence.id: sentence for sentence in read_sentences(inputs.text.path)}
    tokenizer = tokenizer_for(config.tokenizer, config.target_language)
    how = Comparison(language=config.target_language, tokenizer=tokenizer, lowercase=config.lowercase)
    metric = "tokenized_bleu" if config.tokenized else TASKS[config.task].metric
    candidates = []
    for penalty in config.length_penalties:
        tried = replace(search, length_penalty=penalty)  # type: ignore[call-arg]  # a search that penalises length
        best = _best(inputs, config, tried, context)
        references: list[Sequence[str]] = [sentences[row["id"]].references for row in best]
        texts = [row["text"] for row in best]
        if config.decode_entities:
            texts = decoded(texts)
            references = [decoded(one) for one in references]
        found = score(metric, texts, references, how)
        candidates.append({"length_penalty": penalty, "score": found["score"]})
        context.metrics(len(candidates), {metric: found["score"], "length_penalty": penalty})
    chosen = max(candidates, key=lambda one: one["score"])
    return {"metric": metric, **chosen, "candidates": candidates, "signature": found["signature"]}


def _best(inputs: TuneInputs, config: TuneConfig, search: SearchConfig, context: StepContext) -> Sequence[dict[str, Any]]:
    """Return the best hypothesis of each sentence as a row with its id, rank, text and ids."""
    job = DecodeJob(inputs.system, search, (STAGE.name, STAGE.version), config.batch_tokens)
    pieces = decode_text(inputs.text, job, PIECE_ROWS, context)
    rows = [row for piece in pieces for row in read_shard(piece.decoded).select(["id", "rank", "text", "ids"]).to_pylist()]
    return [row for row in rows if row["rank"] == 0]


STEP = 50
"""Sizes are multiples of this number, so that one token more or less in an output seldom changes them."""


class Measured(NamedTuple):
    """A chosen size."""

    tokens: int | None
    """Number of frequent tokens. None: no number suffices, and all tokens are ranked."""
    recall: float
    """Recall with this number; with the largest number if none suffices."""
    written: int
    """Number of tokens that were written."""


def lexicon_of(directory: Path) -> Lexicon:
    """Return the lexicon of a system directory. Raises ArtifactError for a system without candidate tables."""
    try:
        description = read_description(directory)
        lexicon = load_lexicon(directory, description, sizes_of(directory, description))
    except BundleError as error:
        raise ArtifactError(f"{error}; remove the artifact and run again") from error
    if lexicon is None:
        raise ArtifactError(f"{directory}: expected a system with candidate tables, got one without; bundle it with its tables")
    return lexicon


def ranks(lexicon: Lexicon, links: int, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> npt.NDArray[np.int64]:
    """Return the smallest size at which each written token is in its shortlist: 0 if it is among the `links` of a source token.

    `pairs` are the ids of sources and outputs, both without EOS. A token that is in no shortlist has the rank
    `MAX_SHORTLIST_TOKENS` + 1.
    """
    common = {int(token): rank for rank, token in enumerate(lexicon.common_tokens[:MAX_SHORTLIST_TOKENS].tolist(), 1)}
    found: list[int] = []
    for source, output in pairs:
        linked: set[int] = set()
        if lexicon.linked_tokens is not None:
            linked = set(lexicon.linked_tokens[np.asarray(source, np.int64), :links].ravel().tolist())
        found += [0 if token in linked else common.get(token, MAX_SHORTLIST_TOKENS + 1) for token in output]
    return np.sort(np.asarray(found, np.int64))


def smallest(found: npt.NDArray[np.int64], shortlist: Shortlist) -> Measured:
    """Return the smallest size with the recall of `shortlist`, in steps of 50; `found` are sorted ranks."""
    assert shortlist.recall is not None
    if not len(found):
        return Measured(STEP, 1.0, 0)
    needed = int(found[max(int(np.ceil(shortlist.recall * len(found) - 1e-9)), 1) - 1])
    tokens = min(max(-(-needed // STEP), 1) * STEP, MAX_SHORTLIST_TOKENS)
    recall = float((found <= tokens).mean())
    return Measured(tokens if needed <= MAX_SHORTLIST_TOKENS else None, recall, len(found))
