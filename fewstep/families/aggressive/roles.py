"""The networks that may verify drafts, and those that may write them."""

from __future__ import annotations

from typing import Protocol, cast

from fewstep.config.network import NetworkConfig
from fewstep.families.aggressive.config import AggressiveConfig


class _Order(Protocol):
    step_size: int
    arrangement: str


class _Ordered(Protocol):
    """A network config of a family that can verify."""

    def generation(self) -> _Order: ...


def check_verifier(config: object) -> None:
    """Raise ValueError unless a network with this config writes one token per step from left to right."""
    if not hasattr(config, "generation"):
        got = "a network without an order"
    else:
        order = cast(_Ordered, config).generation()
        if (order.step_size, order.arrangement) == (1, "l2r"):
            return
        got = f"{order.step_size} at a time, {order.arrangement}"
    raise ValueError(f"verifier: expected a network that writes one token per step from left to right, got {got}")


def can_draft(network: NetworkConfig, config: AggressiveConfig) -> bool:
    """Return whether a network may be the draft model of a system with this config: native code decodes it, it writes one token per
    step from left to right, and its outputs may be as long."""
    try:
        check_verifier(network)
    except ValueError:
        return False
    return not network.needs_torch and network.max_positions == config.max_positions
