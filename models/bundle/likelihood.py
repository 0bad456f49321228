"""The probability that a loaded system gives to translations by others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from fewstep.decoding import BATCH_TOKENS, batches
from fewstep.system.system import System, encode_lines
from fewstep.text.masks import mask_pair
from models.family import ScoringDecoder


def score(system: System, sources: Sequence[str], targets: Sequence[str], *, first_line: int = 1) -> list[float]:
    """Return the natural log-probability of each line of `targets`, followed by EOS, as the translation of its source.

    Raises ValueError for different numbers of sources and targets and for a line that is too long: no line is cut.
    """
    if len(sources) != len(targets):
        raise ValueError(f"expected as many targets as sources ({len(sources)}), got {len(targets)}")
    pairs = encode_pairs(system, sources, targets, first_line=first_line)
    for number, (source, target) in enumerate(pairs, first_line):
        for side, ids, longest in (("source", source, system.max_source_tokens), ("target", target, system.max_target_tokens)):
            if len(ids) > longest:
                raise ValueError(f"line {number}: expected a {side} of at most {longest} tokens, got {len(ids)}")
    return score_ids(system, pairs)


def encode_pairs(
    system: System, sources: Sequence[str], targets: Sequence[str], *, first_line: int = 1
) -> list[tuple[list[int], list[int]]]:
    """Return the source and target ids of each pair of lines without EOS, uncut."""
    if system.masks:
        masked = [mask_pair(*pair, system.masks) for pair in zip(sources, targets, strict=True)]
        sources = [source.text for source, _ in masked]
        targets = [target for _, target in masked]
    encoded = (encode_lines(system.source_pieces, sources, first_line), encode_lines(system.target_pieces, targets, first_line))
    return list(zip(*encoded, strict=True))


def score_ids(system: System, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[float]:
    """Return the log-probability of each pair of ids (`ScoringDecoder.score`), computed in batches of similar length."""
    decoder = cast(ScoringDecoder, system.decoder)
    scores = [0.0] * len(pairs)
    for batch in batches([max(len(source), len(target), 1) for source, target in pairs], BATCH_TOKENS):
        found = decoder.score([pairs[index][0] for index in batch], [pairs[index][1] for index in batch])
        for index, value in zip(batch, found, strict=True):
            scores[index] = value
    return scores
