"""What a family of models offers to its callers, and the letters that name tensor dimensions everywhere.

B batch    S source tokens    T target slots    V vocabulary    D model width    H heads    K candidates or beam    z step size
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor, nn

PAD, BOS, EOS, UNK, MASK, BLANK, LENGTH = range(7)
RESERVED = ("<pad>", "<s>", "</s>", "<unk>", "<mask>", "<blank>", "<length>")
"""The first seven ids of every vocabulary, source and target alike."""


@dataclass(frozen=True)
class Loss:
    """A sum and what it was summed over, so that accumulation and data-parallel sums stay exact."""

    total: Tensor
    """Scalar: the objective summed over the batch, in nats."""
    count: Tensor
    """Scalar: what `total` is divided by, usually target tokens with EOS."""
    statistics: dict[str, Tensor]
    """Other sums over the batch (scalars without gradient), each reported divided by `count`."""


@dataclass(frozen=True)
class Hypothesis:
    """One translation as target ids without BOS and EOS."""

    ids: list[int]
    score: float
    """What the search maximised, length penalty included; natural logarithm."""
    steps: int
    """Decoder calls until this sentence was done."""
    statistics: dict[str, Any] = field(default_factory=dict)
    """`margin`: smallest gap, in nats, between what the search kept and what it dropped; below 1e-4 it is a near-tie. Where it was
    asked for, `confidences`: a list of what each token is worth, in nats."""


class Decoder(Protocol):
    """A loaded system at work on ids."""

    def prepare(self, sources: Sequence[Sequence[int]], search: Any = None) -> Any:
        """CPU work before the network, such as padding or table look-up; may run a batch ahead. `search` is the one that will be
        decoded with: told beforehand it saves time, for what a table is asked depends on it."""
        ...

    def decode(self, prepared: Any, search: Any) -> list[list[Hypothesis]]:
        """For each source its hypotheses, best first."""
        ...

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """For each pair (ids without EOS, either side may be empty) the log-probability of writing the target and ending it there.

        Natural logarithm, float32, unsmoothed; it does not depend on the other pairs, save for rounding. No search enters: no token
        is banned (the unknown one, which text may hold, is scored like any other) and no length is rewarded. Minus infinity where
        the network cannot write the target. Raises ValueError for sides of unequal number, for one that is too long for the
        network, and for a target with any other reserved id, which no text is encoded to.
        """
        ...


class Sizes(NamedTuple):
    """Vocabulary sizes that a network is built for. `joint`: source and target share one vocabulary and one table."""

    source: int
    target: int
    joint: bool


class Family(NamedTuple):
    """Five plain things; families share no base class."""

    config_type: type
    """Frozen dataclass of the network (`models/<family>/config.py`)."""
    search_type: type
    """Frozen dataclass of a search and its options."""
    build: Callable[[Any, Sizes], nn.Module]
    """`build(config, sizes)` makes the network, freshly initialised from torch's current generator."""
    loss: Callable[[nn.Module, Any, int, float], Loss]
    """`loss(model, batch, update, label_smoothing)`."""
    fits: Callable[[Any, int, int], bool]
    """`fits(config, source_length, target_length)`: can this pair (lengths in tokens without EOS) be trained on?"""
    load: Callable[[Path, str], Decoder]
    """`load(directory, device)`: the decoder of a system directory (`models.bundle.directory`)."""
    decoder: Callable[..., Decoder]
    """`decoder(network)`: the decoder of a living network, as it is at each call; its training mode is left as it was. A family
    that looks its candidates up is given `tables` (`kernels.CandidateTables`) beside it."""
