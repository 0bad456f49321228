"""The tokens that slots can write."""

from __future__ import annotations

from fewstep.families.parallel.config import ParallelConfig
from fewstep.vocabulary import BLANK, EOS, RESERVED, UNK

__all__ = ["impossible", "separator"]


def separator(config: ParallelConfig) -> int:
    """Return the reserved token that slots may write and outputs do not contain: EOS, or BLANK with CTC."""
    return BLANK if config.uses_ctc else EOS


def impossible(config: ParallelConfig) -> list[int]:
    """Return the reserved tokens that slots never write: their probability is 0, in training and in decoding."""
    return [token for token in range(len(RESERVED)) if token not in (UNK, separator(config))]
