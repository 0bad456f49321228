"""Rules on systems that draft, and on those who verify what they draft."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from models.aggressive.config import AggressiveConfig
from pipeline.config.rules import Rule, broken
from pipeline.config.tree import Path

if TYPE_CHECKING:
    from pipeline.config.schema import RunConfig
    from pipeline.config.systems import AggressiveSystem

SHARED = ("width", "encoder_layers", "feed_forward", "heads", "norm", "positions", "max_positions")
"""What a drafter that reads its verifier's encoder has in common with it."""
PARALLEL = (
    "draft_width_range",
    "prefix",
    "soft_copy",
    "last_token",
    "layer_positions",
    "prefixes",
    "glancing_ratio",
    "glancing_ratio_end",
    "glancing_updates",
)
"""What only drafters with empty slots have."""


def verifiers(config: RunConfig) -> Iterator[Rule]:
    """Drafters, and those who verify what they draft."""
    from pipeline.config.systems import AggressiveSystem

    for name, system in config.systems.items():
        if not isinstance(system, AggressiveSystem):
            continue
        path: Path = ("systems", name)
        yield from _drafting(path, system)
        others = [other for other, kind in config.systems.items() if not isinstance(kind, AggressiveSystem)]
        for key, other in (("verifier", system.verifier), ("drafter_system", system.drafter_system or system.verifier)):
            if other not in others:
                expected = f"one of {', '.join(others)}" if others else "a system of another family"
                yield broken((*path, key), expected, repr(other), ("systems",), valid=others)
        if system.verifier in others:
            yield from _pair(config, path, system)
        for i, search in enumerate(system.search):
            if search.drafter == "system" and not system.drafter_system:
                yield broken(
                    (*path, "search", i), "drafter: network or lookup without drafter_system", "system", (*path, "drafter_system")
                )
            if search.draft_links and search.draft_words is None:
                expected = "0 without draft_words, which leaves the drafter all words"
                yield broken((*path, "search", i, "draft_links"), expected, search.draft_links, (*path, "search", i, "draft_words"))
            if search.draft_precision != "fp32" and (search.looks_up or search.strategy in ("greedy", "sample")):
                expected = "fp32 where no network drafts natively"
                yield broken((*path, "search", i, "draft_precision"), expected, search.draft_precision)
            if search.verifier_precision != "fp32" and search.strategy in ("draft", "sample"):
                expected = "fp32 where nothing is verified" if search.strategy == "draft" else "fp32 for sampling"
                yield broken((*path, "search", i, "verifier_precision"), expected, search.verifier_precision)


def _drafting(path: Path, system: AggressiveSystem) -> Iterator[Rule]:
    """What goes with one way of drafting, or with one kind of data, only."""
    if system.monolingual and system.data != "verifier":
        expected, got = f"no file with data: {system.data}", ", ".join(map(str, system.monolingual))
        yield broken((*path, "monolingual"), expected, got, (*path, "data"))
    if system.drafting == "parallel":
        for i, search in enumerate(system.search):
            if search.confidence:
                expected = "0 for a drafter that fills blocks at once"
                yield broken((*path, "search", i, "confidence"), expected, search.confidence, (*path, "drafting"))
        return
    if system.encoder != "shared":
        yield broken((*path, "encoder"), "shared with drafting: autoregressive", system.encoder, (*path, "drafting"))
    usual = {field.name: field.default for field in fields(AggressiveConfig)}
    for key in PARALLEL:
        if getattr(system, key) != usual[key]:
            expected = f"{usual[key]} (no other is for drafting: autoregressive)"
            yield broken((*path, key), expected, getattr(system, key), (*path, "drafting"))


def _pair(config: RunConfig, path: Path, system: AggressiveSystem) -> Iterator[Rule]:
    from pipeline.config.schema import stepwise_network

    if config.systems[system.verifier].family != "stepwise":
        got = f"{system.verifier!r} of family {config.systems[system.verifier].family}"
        yield broken((*path, "verifier"), "a system of family stepwise", got, ("systems", system.verifier))
        return
    rests_on: tuple[Path, ...] = (("systems", system.verifier), ("teacher",))
    if getattr(config.systems[system.verifier], "use", "") == "ensemble":
        yield broken(
            (*path, "verifier"), "a system of one network", f"{system.verifier!r}, an ensemble", ("systems", system.verifier)
        )
    network = stepwise_network(config, system.verifier)
    if network is None:  # pinned: its directory says
        return
    try:
        order = network.generation()
    except ValueError:  # which the system is told itself
        return
    if (order.step_size, order.arrangement) != (1, "l2r"):
        got = f"{system.verifier!r}, which writes {order.step_size} in the arrangement {order.arrangement}"
        yield broken((*path, "verifier"), "a system that writes one token a step from left to right", got, *rests_on)
    if system.drafting == "autoregressive" and (order.start, order.target_positions) != ("zero", "absolute"):
        expected = "a system whose slots have position codes alone, for drafting: autoregressive"
        yield broken((*path, "verifier"), expected, f"{system.verifier!r}", (*path, "drafting"), *rests_on)
    keys = SHARED if system.encoder == "shared" else ("norm", "positions") if system.initial_weights == "verifier" else ()
    reasons = dict.fromkeys(keys, "to share its encoder" if system.encoder == "shared" else "to start from its weights")
    if system.drafting == "autoregressive":
        reasons["decoder_layers"] = "to be a layer on top of it"
    for key, why in (reasons | {"max_positions": "to end where its greedy outputs do"}).items():
        if getattr(system, key) != getattr(network, key):
            yield broken(
                (*path, key), f"{getattr(network, key)} as {system.verifier!r} has, {why}", getattr(system, key), *rests_on
            )
    if system.encoder == "shared" and system.initial_weights != "verifier":
        yield broken((*path, "initial_weights"), "verifier with encoder: shared", system.initial_weights, (*path, "encoder"))
