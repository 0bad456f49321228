"""The layouts of target tokens in steps (Zhang et al. 2020; Imamura and Sumita 2020)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Mask = Literal["block", "causal", "same-direction"]
SlotPositions = Literal["absolute", "signed", "step-direction", "learned"]
Tail = Literal["none", "fill"]
Start = Literal["zero", "shared", "per-slot"]
Stop = Literal["first-eos", "per-direction"]


@dataclass(frozen=True, kw_only=True)
class GenerationOrder:
    """The layout of target tokens in steps. Raises ValueError for an invalid combination of properties."""

    arrangement: Literal["l2r", "r2l", "fold", "multi", "middle-out"] = "l2r"
    """Arrangement of tokens: from the left, from the right, both in turn, both in each of `directions / 2` segments in turn, or
    from the middle outwards."""
    directions: int = 1
    """Directions written side by side (h)."""
    tokens_per_direction: int = 1
    """Tokens of each direction in a step (c)."""
    step_size: int = 0
    """Tokens emitted together by one decoder call (z); 0: h c. 1 writes the same arrangement token by token."""
    mask: Mask = "block"
    """Slots that a slot attends to: those of steps up to its own, all up to itself, or those of its own direction."""
    target_positions: SlotPositions = "absolute"
    """Code of a slot t: t, +-(t / 2 + 1), (t / h, t mod h), or row t of a learned table."""
    tail: Tail = "none"
    """Labels of the slots after EOS in its step: none, or EOS as well."""
    start: Start = "zero"
    """Input of the slots of the first step: zeros, one learned vector, or one for each slot."""
    stop: Stop = "first-eos"
    """Event that ends an output: the first EOS in writing order, or an EOS in either direction; the other token of that step is
    kept."""

    def __post_init__(self) -> None:
        if self.step_size == 0:
            object.__setattr__(self, "step_size", self.directions * self.tokens_per_direction)
        if problems := _problems(self):
            raise ValueError("; ".join(problems))


def _problems(order: GenerationOrder) -> list[str]:
    """The invalid combinations of properties, each as "`field`: expected ..., got ..."."""
    arrangement = order.arrangement
    h = order.directions
    c = order.tokens_per_direction
    z = order.step_size
    directions = {"l2r": "1", "r2l": "1", "fold": "2", "middle-out": "2", "multi": "an even number"}[arrangement]
    fits = h >= 2 and h % 2 == 0 if arrangement == "multi" else str(h) == directions
    codes = order.target_positions
    signed = arrangement in ("fold", "middle-out")
    two_sided = arrangement == "fold" and z == 2
    rules = (
        (fits, "directions", f"{directions} with {arrangement}", h),
        (c >= 1 and (c == 1 or arrangement != "multi"), "tokens_per_direction", "1 with multi, else at least 1", c),
        (z in (1, h * c), "step_size", f"1 or directions x tokens_per_direction ({h * c})", z),
        (order.mask != "same-direction" or h > 1 == c, "mask", "block or causal with this arrangement", order.mask),
        (codes != "signed" or signed, "target_positions", f"absolute or learned with {arrangement}", codes),
        (codes != "step-direction" or h > 1 == c, "target_positions", "others unless h > 1 and c = 1", codes),
        (order.stop == "first-eos" or two_sided, "stop", "first-eos unless two directions write one token each", order.stop),
        (order.stop == "first-eos" or order.tail == "fill", "tail", "fill with stop per-direction", order.tail),
    )
    return [f"{field}: expected {expected}, got {got}" for good, field, expected, got in rules if not good]


_FOLD = GenerationOrder(arrangement="fold", directions=2, target_positions="signed")
_PAIRS = GenerationOrder(tokens_per_direction=2, target_positions="learned", tail="fill", start="per-slot")

ORDERS: dict[str, GenerationOrder] = {
    "autoregressive": GenerationOrder(),
    "right-to-left": GenerationOrder(arrangement="r2l"),
    "semi-autoregressive": GenerationOrder(tokens_per_direction=2),
    "interleaved": _FOLD,
    "interleaved-sa": replace(_FOLD, tokens_per_direction=2, step_size=0),
    "multi-directional": GenerationOrder(arrangement="multi", directions=4, target_positions="step-direction"),
    "double-token": GenerationOrder(
        arrangement="fold", directions=2, target_positions="learned", tail="fill", start="per-slot", stop="per-direction"
    ),
    "double-token-l2r": _PAIRS,
    "double-token-r2l": replace(_PAIRS, arrangement="r2l"),
    "bidirectional-autoregressive": replace(_FOLD, step_size=1),
    "causal-mask": replace(_FOLD, mask="causal"),
    "plain-positions": replace(_FOLD, target_positions="absolute"),
    "independent-directions": replace(_FOLD, mask="same-direction"),
    "middle-to-side": replace(_FOLD, arrangement="middle-out"),
}
"""The rows of the table by name: Zhang et al. 2020 (semi-autoregressive: Wang et al. 2018), Imamura & Sumita 2020 (double-token),
and the ablations of the former's Table 2, which change one property of `interleaved`."""
OrderName = Literal[
    "autoregressive",
    "right-to-left",
    "semi-autoregressive",
    "interleaved",
    "interleaved-sa",
    "multi-directional",
    "double-token",
    "double-token-l2r",
    "double-token-r2l",
    "bidirectional-autoregressive",
    "causal-mask",
    "plain-positions",
    "independent-directions",
    "middle-to-side",
]


def natural_positions(order: GenerationOrder, length: int) -> tuple[int, ...]:
    """Return the position, from the left, of each token of an output of `length` tokens, in writing order.

    Conventions: Zhang, Titov and Sennrich (2020), with 0-based indices.
    """
    last = length - 1
    if order.arrangement == "l2r":
        return tuple(range(length))
    if order.arrangement == "r2l":
        return tuple(last - index for index in range(length))
    if order.arrangement == "middle-out":
        return tuple(_fold(last - index, length) for index in range(length))
    return tuple(_segment(index, length, order.directions // 2) for index in range(length))


def _fold(index: int, length: int) -> int:
    """Return the position of an index 0, 1, 2, 3, ...: leftmost, rightmost, second, second to last, ..."""
    return index // 2 if index % 2 == 0 else length - 1 - index // 2


def _segment(index: int, length: int, segments: int) -> int:
    """Return the position of an index if folded segments alternate; the first `length mod segments` have one token more, so that no
    turn is empty."""
    segment = index % segments
    turn = index // segments
    shorter, longer = divmod(length, segments)
    return segment * shorter + min(segment, longer) + _fold(turn, shorter + (segment < longer))
