"""A system of the `aggressive` family in a config, and its rules on the system that verifies its drafts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Protocol, cast

from fewstep.config.bounds import MinLen
from fewstep.config.labels import labelled
from fewstep.config.network import NetworkConfig
from fewstep.config.problems import Problem
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.families.aggressive.roles import can_draft
from fewstep.system.format import DRAFTER, VERIFIER
from models.training.recipe import Companion, TrainedSystem, part

VERIFIER_FAMILY = "stepwise"
CODES = ("positions", "sinusoids", "position_offset")
SHARED = ("width", "encoder_layers", "feed_forward", "heads", "norm", "activation", "scale_embeddings", *CODES, "max_positions")
"""The options that a drafter with its verifier's encoder shares with the verifier."""


class _Order(Protocol):
    step_size: int
    arrangement: str
    start: str
    target_positions: str


class _Verifier(Protocol):
    """A network of the family that verifies."""

    def valid_generation(self) -> _Order | None: ...


@dataclass(frozen=True, kw_only=True)
class AggressiveSystem(TrainedSystem, AggressiveConfig):
    """A trained drafter, with the system that verifies its drafts. The values of `defaults` apply to its keys, except for
    `search`."""

    network_type: ClassVar = AggressiveConfig
    search_type: ClassVar = AggressiveSearch
    training_presets: ClassVar = {"validation_metric": "tokens_per_pass"}

    family: Literal["aggressive"]
    """Family of models."""
    verifier: Annotated[str, MinLen(1)]
    """Name of another system, which writes one token a step from left to right. Its network verifies, and is copied into this
    system."""
    drafter_system: str = ""
    """Name of another system, which drafts where a search has `drafter: system`, or token after token where it has
    `drafter: draft_model`; the latter needs a network of family stepwise that writes one token a step from left to right, such as
    one of a layer or two. It is copied into this system."""
    data: Literal["raw", "distilled", "mixed", "verifier"] = "distilled"
    """Targets that the drafter learns from: those of the training text, those that the teacher writes, or both; or those that the
    verifier writes greedily, which drafts are compared with."""
    monolingual: tuple[Path, ...] = ()
    """Files of further text in the source language, one sentence per line, that the verifier translates as well (`data: verifier`).
    A verifier writes sentences of its own training text differently from new ones. Sentences of test and validation texts are
    dropped."""
    initial_weights: Literal["random", "teacher", "verifier"] = "verifier"
    """Weights that training starts from: random ones, or another network's wherever name and shape are the same."""
    copied_weights: Literal["all", "encoder"] = "encoder"
    """Weights of the verifier or the teacher that training starts from, unless `initial_weights` is random: those of the encoder
    and of the embeddings, as in the paper, since a causal decoder computes something else than a parallel one (`encoder`); or
    those of the decoder as well (`all`). An autoregressive drafter starts from the verifier's last layer in any case, and heads
    from its network."""
    search: Annotated[dict[str, AggressiveSearch], MinLen(1)] = field(
        default_factory=lambda: labelled(AggressiveSearch(), AggressiveSearch(strategy="gad++"))
    )
    """Searches that it is evaluated with, the first its default: `gad`, `{gad++: {top_k: 5, max_logprob_gap: 3}}`, a list of these,
    or a map of them by label."""

    @property
    def network(self) -> AggressiveConfig:
        """The network alone."""
        network = part(self, AggressiveConfig)
        return replace(network, copied_weights="all") if self.on_verifier else network

    @property
    def companions(self) -> dict[str, str]:
        """The names of the systems that are copied into this one, by role."""
        return {VERIFIER: self.verifier} | ({DRAFTER: self.drafter_system} if self.drafter_system else {})

    @property
    def further_sources(self) -> tuple[Path, ...]:
        """Files of source text that the verifier translates in addition to the training text."""
        return self.monolingual

    def problems(self) -> Iterator[Problem]:
        """Yield the options that are not a valid combination."""
        yield from super().problems()
        if self.monolingual and self.data != "verifier":
            got = ", ".join(map(str, self.monolingual))
            yield Problem(("monolingual",), f"no file with data: {self.data}", got)
        if self.encoder == "shared" and self.initial_weights != "verifier":
            yield Problem(("initial_weights",), "verifier with encoder: shared", self.initial_weights)

    def companion_problems(self, companions: Mapping[str, Companion]) -> Iterator[Problem]:
        """Yield the options that are not valid with the verifier and the drafter system."""
        if DRAFTER in companions:
            yield from self._draft_model_problems(companions[DRAFTER])
        verifier = companions.get(VERIFIER)
        if verifier is None:
            return
        if verifier.family != VERIFIER_FAMILY:
            got = f"{verifier.name!r} of family {verifier.family}"
            yield Problem(("verifier",), f"a system of family {VERIFIER_FAMILY}", got)
            return
        if verifier.networks > 1:
            yield Problem(("verifier",), "a system of one network", f"{verifier.name!r}, an ensemble")
        if verifier.network is not None:
            yield from self._verifier_problems(verifier.name, verifier.network)

    def _draft_model_problems(self, drafter: Companion) -> Iterator[Problem]:
        """Yield the searches that draft with a system that is no draft model."""
        if drafter.network is None or (drafter.networks == 1 and can_draft(drafter.network, self)):
            return
        for label, search in self.search.items():
            if search.drafter == "draft_model":
                expected = (
                    f"system, as {drafter.name!r} is not one network that native code decodes, with max_positions "
                    f"{self.max_positions}, which writes one token a step from left to right"
                )
                yield Problem(("search", label, "drafter"), expected, search.drafter)

    def _verifier_problems(self, name: str, network: NetworkConfig) -> Iterator[Problem]:
        order = cast(_Verifier, network).valid_generation()
        if order is None:  # a problem of the verifier's own
            return
        if (order.step_size, order.arrangement) != (1, "l2r"):
            got = f"{name!r}, which writes {order.step_size} in the arrangement {order.arrangement}"
            yield Problem(("verifier",), "a system that writes one token a step from left to right", got)
        if network.needs_torch:
            yield from self._torch_problems(name)
        elif self.on_verifier and (order.start, order.target_positions) != ("zero", "absolute"):
            expected = f"a system whose slots have position codes alone, for drafting: {self.drafting}"
            yield Problem(("verifier",), expected, f"{name!r}")
        for key, reason in self._equal_options().items():
            if getattr(self, key) != getattr(network, key):
                yield Problem((key,), f"{getattr(network, key)} as {name!r} has, {reason}", getattr(self, key))

    def _torch_problems(self, name: str) -> Iterator[Problem]:
        """Yield the options that are not valid with a verifier that torch alone decodes (BART), whose parts no drafter has."""
        cause = f"with the verifier {name!r}, which has embedding_norm or begin_vectors, or not tied_output"
        if self.on_verifier:
            yield Problem(("drafting",), f"parallel {cause}", self.drafting)
        elif self.encoder == "shared":
            yield Problem(("encoder",), f"separate {cause}", self.encoder)
        for label, search in self.search.items():
            if search.verifier_precision != "float32":
                got = search.verifier_precision
                yield Problem(("search", label, "verifier_precision"), f"float32 {cause} and is decoded by torch", got)

    def _equal_options(self) -> dict[str, str]:
        """The options that are equal to the verifier's, each with the reason."""
        if self.encoder == "shared":
            reasons = dict.fromkeys(SHARED, "to share its encoder")
        else:
            keys = ("norm", "activation", "scale_embeddings", *CODES) if self.initial_weights == "verifier" else ()
            reasons = dict.fromkeys(keys, "to start from its weights")
        if self.on_verifier:
            reasons["decoder_layers"] = "to be a layer on top of it" if self.drafting == "autoregressive" else "to read its states"
        return reasons | {"max_positions": "to end where its greedy outputs end"}


SYSTEM = AggressiveSystem
