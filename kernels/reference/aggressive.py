"""Draft and verify (Xia et al. 2022, sections 3.2 and 3.3), one sentence at a time: every pass starts from the beginning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fewstep.networks.aggressive_transformer import DraftOptions, DraftOutcome
from fewstep.networks.transformer import SlotRules
from fewstep.search.beam import BeamOptions
from kernels.reference.transformer import Reference

Scores = npt.NDArray[np.floating[Any]]

TRIAL_BLOCKS = 3
"""Number of blocks before a sentence may fall back to greedy decoding."""


@dataclass
class _Sentence:
    """The output so far and its counts, as in `DraftOutcome`."""

    width: int
    tokens: list[int] = field(default_factory=list)
    guess: list[int] = field(default_factory=list)
    """The verifier's own tokens after the output, given the last draft."""
    score: float = 0.0
    margin: float = math.inf
    ended: bool = False
    fell_back: bool = False
    steps: int = 0
    blocks: int = 0
    drafted: int = 0
    accepted: int = 0
    from_blocks: int = 0
    proposed_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)


def aggressive(
    verifier: Reference,
    source: Sequence[int],
    limit: int,
    *,
    hint: Sequence[int] = (),
    draft_model: Reference | None = None,
    options: BeamOptions,
    rules: SlotRules,
    drafts: DraftOptions,
) -> DraftOutcome:
    """Decode one source with drafts that are looked up, or those of a draft model, or of the verifier (`proposals` lookup, network,
    jacobi or nothing); arguments as for `fewstep.AggressiveTransformer`."""
    encoded = verifier.encode(source)
    drafting = None if draft_model is None else (draft_model, draft_model.encode(source))
    state = _Sentence(drafts.width)
    state.proposed_at = [0] * drafts.width
    state.accepted_at = [0] * drafts.width
    while not state.ended and len(state.tokens) < limit:
        width = min(state.width, limit - len(state.tokens) - 1)  # The verifier adds a token, for which there is space.
        if state.fell_back or width < 1:
            draft = []
        elif drafting is not None:
            draft = _draft_by_token(*drafting, state.tokens, width, options, rules, drafts)
        else:
            draft = _draft(state, hint, width, options, rules, drafts)
        rows = [_row(verifier, encoded, [*state.tokens, *draft[:count]], options, rules) for count in range(len(draft) + 1)]
        _accept(state, draft, rows, limit, options, drafts)
    tokens = len(state.tokens) + state.ended
    penalty = ((5 + tokens) / 6 if options.gnmt else tokens) ** options.length_penalty
    counts = (state.drafted, state.accepted, state.fell_back, state.proposed_at, state.accepted_at)
    return DraftOutcome(state.score / penalty, state.tokens, state.steps, state.margin, *counts)


def _row(verifier: Reference, encoded: Any, prefix: Sequence[int], options: BeamOptions, rules: SlotRules) -> Scores:
    """Return the log-probabilities [V] of the token after a prefix."""
    row: Scores = verifier.allowed(verifier.log_probs(encoded, prefix, rules, 1), prefix, options, rules)[0]
    return row


def _draft_by_token(
    network: Reference,
    encoded: Any,
    prefix: Sequence[int],
    width: int,
    options: BeamOptions,
    rules: SlotRules,
    drafts: DraftOptions,
) -> list[int]:
    """Return the tokens that a draft model writes greedily, up to EOS or to the one that makes the draft too uncertain."""
    draft: list[int] = []
    probability = 1.0
    while len(draft) < width and probability >= drafts.confidence and options.eos not in draft:
        row = _row(network, encoded, [*prefix, *draft], options, rules)
        draft.append(int(np.argsort(-row, kind="stable")[0]))
        probability *= math.exp(row[draft[-1]]) / np.exp(row).sum()
    return draft


def _draft(
    state: _Sentence, hint: Sequence[int], width: int, options: BeamOptions, rules: SlotRules, drafts: DraftOptions
) -> list[int]:
    """Return a draft without a network, cut after EOS and before a banned token."""
    if drafts.proposals == "nothing":
        return []
    if drafts.proposals == "jacobi":
        found = ([*state.guess, *state.tokens[-1:] * width] if state.tokens else [])[:width]
    else:
        found = lookup([drafts.bos, *hint], [drafts.bos, *state.tokens], drafts.ngram)[:width]
    for place, token in enumerate(found):
        if token in rules.banned:
            return found[:place]
        if token == options.eos:
            return found[: place + 1]
    return found


def lookup(hint: Sequence[int], written: Sequence[int], longest: int) -> list[int]:
    """Return the continuation of the longest n-gram that ends `written`, at most `longest` tokens: in the hint at the place nearest
    to the end (the earlier of two), or else its last earlier occurrence in `written`. Both begin with BOS."""
    end = len(written) - 1
    for size in range(min(longest, len(written)), 0, -1):
        wanted = list(written[len(written) - size :])
        places = [at for at in range(size - 1, len(hint) - 1) if list(hint[at + 1 - size : at + 1]) == wanted]
        if places:
            return list(hint[min(places, key=lambda at: (abs(at - end), at)) + 1 :])
        places = [at for at in range(size - 1, end) if list(written[at + 1 - size : at + 1]) == wanted]
        if places:
            return list(written[places[-1] + 1 :])
    return []


def _accepts(row: Scores, token: int, options: BeamOptions, drafts: DraftOptions) -> bool:
    """Return whether a drafted token is accepted (equations 6 and 7)."""
    ranked = np.argsort(-row, kind="stable")
    if token == ranked[0]:
        return True
    if drafts.top_k == 1 or (drafts.require_top1_eos and token == options.eos) or row[token] == -math.inf:
        return False
    return bool(row[token] >= row[ranked[drafts.top_k - 1]] and row[ranked[0]] - row[token] <= drafts.max_logprob_gap)


def _accept(
    state: _Sentence,
    draft: Sequence[int],
    rows: Sequence[Scores],
    limit: int,
    options: BeamOptions,
    drafts: DraftOptions,
) -> None:
    """Write the accepted tokens, and the verifier's own behind them."""
    before = len(state.tokens)
    accepted = 0
    for place, row in enumerate(rows):
        if state.ended or len(state.tokens) >= limit:
            break
        good = place < len(draft) and _accepts(row, draft[place], options, drafts)
        if place < len(draft):
            state.proposed_at[place] += 1
            state.accepted_at[place] += good
        accepted += good
        first, second = np.argsort(-row, kind="stable")[:2]
        _write(state, draft[place] if good else int(first), row, float(row[first] - row[second]), options)
        if not good:
            break
    state.guess = [int(np.argsort(-row, kind="stable")[0]) for row in rows[place + 1 :]]
    state.steps += 1
    state.drafted += len(draft)
    state.accepted += accepted
    if state.fell_back or drafts.proposals == "nothing":
        return
    if state.steps > 1:
        state.blocks += 1
        state.from_blocks += len(state.tokens) - before
    if drafts.adaptive:
        state.width = min(max(state.width + 2 if accepted == len(draft) else state.width - 1, 1), drafts.width)
    state.fell_back = state.blocks >= TRIAL_BLOCKS and state.from_blocks < drafts.min_tokens_per_pass * state.blocks


def _write(state: _Sentence, token: int, row: Scores, gap: float, options: BeamOptions) -> None:
    state.score += float(row[token])
    state.margin = min(state.margin, gap)
    if token == options.eos:
        state.ended = True
    else:
        state.tokens.append(token)
