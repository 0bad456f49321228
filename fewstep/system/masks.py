"""Masks as tokens of the two vocabularies of a system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fewstep.text.masks import symbols

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor


@dataclass(frozen=True)
class MaskIds:
    """The names of masks by their ids on each side."""

    source: Mapping[int, str]
    target: Mapping[int, str]

    @staticmethod
    def of(kinds: Collection[str], source: SentencePieceProcessor, target: SentencePieceProcessor) -> MaskIds:
        """Return the masks of some kinds, which both vocabularies have."""
        sides = [{int(pieces.piece_to_id(name)): name for name in symbols([*kinds])} for pieces in (source, target)]
        return MaskIds(*sides)

    def kept(self, source: Sequence[int], output: Sequence[int]) -> bool:
        """Return whether an output has the masks of its source, each as often, and no others."""
        names = [
            Counter(names[token] for token in ids if token in names)
            for names, ids in ((self.source, source), (self.target, output))
        ]
        return names[0] == names[1]
