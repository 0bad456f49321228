"""The table of families, the interface of a family, and the letters that name tensor dimensions everywhere.

The letters are: B batch, S source tokens, T target slots, V vocabulary, D model width, H heads, K candidates or beam, z step size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from fewstep.config.network import NetworkConfig, Sizes
from fewstep.config.search import SearchConfig
from fewstep.decoding import Decoder
from fewstep.families import table
from models.training.recipe import TrainedSystem

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Loss:
    """A sum and its count, so that gradient accumulation and data-parallel sums stay exact."""

    total: Tensor
    """Scalar: the objective summed over the batch, in nats."""
    count: Tensor
    """Scalar: the divisor of `total`, usually the number of target tokens with EOS."""
    statistics: dict[str, Tensor]
    """Other sums over the batch (scalars without gradient), each reported divided by `count`."""


class ScoringDecoder(Decoder, Protocol):
    """The decoder of a loaded system, on ids, which also scores given targets."""

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """Return for each pair (ids without EOS, either side may be empty) the log-probability of writing the target and ending it
        there.

        The result is a natural logarithm, float32, unsmoothed, and does not depend on the other pairs except for rounding. It does
        not depend on a search: no token is banned (the unknown token is scored like any other) and no length is rewarded. It is
        minus infinity if the network cannot write the target. Raises ValueError for different numbers of sources and targets, for a
        side that is too long for the network, and for a target with any other reserved id, which encoded text never contains.
        """
        ...


class Family(NamedTuple):
    """Functions of a family; families share no base class."""

    build: Callable[[Any, Sizes], nn.Module]
    """`build(config, sizes)` makes the network, initialised from torch's current generator. Raises ValueError for an invalid
    config."""
    loss: Callable[[nn.Module, Any, int, float], Loss]
    """`loss(model, batch, update, label_smoothing)`."""
    fits: Callable[[Any, int, int], bool]
    """`fits(config, source_length, target_length)`: whether a pair (lengths in tokens without EOS) can be trained on."""
    load: Callable[[Path, Mapping[str, Any], Any, str], ScoringDecoder]
    """`load(directory, description, search, device)`: the decoder of a system directory (`models.bundle.directory`), whose
    `system.json` holds the description, ready for its default search."""
    decoder: Callable[..., ScoringDecoder]
    """`decoder(network)`: the decoder of a network whose weights may change between calls; its training mode does not change. A
    family whose systems need candidate tables takes `tables` (`fewstep.CandidateTables`) as well."""


@dataclass(frozen=True)
class FamilyEntry:
    """A family in the table: a package whose modules are imported when they are first needed.

    `system` defines `SYSTEM`, the config of a system with its network and search types, and imports nothing heavy; `family`
    defines `FAMILY`, the functions on networks, and imports torch.
    """

    package: str

    @property
    def system(self) -> type[TrainedSystem]:
        """Config of a system."""
        return cast("type[TrainedSystem]", import_module(f"{self.package}.system").SYSTEM)

    @property
    def network(self) -> type[NetworkConfig]:
        """Config of a network."""
        return self.system.network_type

    @property
    def search(self) -> type[SearchConfig]:
        """Config of a search."""
        return self.system.search_type

    @property
    def functions(self) -> Family:
        """Functions on networks."""
        return cast(Family, import_module(f"{self.package}.family").FAMILY)


FAMILIES = {name: FamilyEntry(f"models.{name}") for name in table.FAMILIES}
"""The table of families by name: those of the runtime's table. A family without a native decoder is added here."""


def family_named(name: str) -> FamilyEntry:
    """Return the entry of a family. Raises ValueError for a name that is not in the table."""
    if name not in FAMILIES:
        raise ValueError(f"family: expected one of {', '.join(FAMILIES)}, got {name!r}")
    return FAMILIES[name]
