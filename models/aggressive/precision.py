"""A drafter and its verifier in several precisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fewstep.config.options import HALF_PRECISIONS, Precision
from fewstep.config.problems import Problem
from fewstep.families.aggressive.config import AggressiveSearch
from models.aggressive.model import AggressiveModel
from models.aggressive.on_verifier import DraftHead, MedusaHeads
from models.common.inference import Precisions
from models.common.layers.backbone import Backbone

Network = AggressiveModel | DraftHead | MedusaHeads


class Pair:
    """A drafter, with its verifier and a draft model if it has them, in the precisions that searches ask for."""

    def __init__(self, model: Network, verifier: Backbone | None, draft_model: Backbone | None = None, *, frozen: bool) -> None:
        """`frozen` states that the weights do not change any more."""
        self._drafters = Precisions(model, frozen=frozen)
        self._verifiers = None if verifier is None else Precisions(verifier, frozen=frozen)
        self._draft_models = None if draft_model is None else Precisions(draft_model, frozen=frozen)

    def drafter(self, search: AggressiveSearch) -> Network:
        """Return the drafter of a search."""
        return self._drafters[_drafting(search)]

    def draft_model(self, search: AggressiveSearch) -> Backbone | None:
        """Return the draft model of a search; None for a system without one."""
        return None if self._draft_models is None else self._draft_models[_drafting(search)]

    def verifier(self, search: AggressiveSearch) -> Backbone | None:
        """Return the verifier of a search; None if nothing is verified."""
        return None if self._verifiers is None else self._verifiers[search.verifier_precision]

    def problems(self, search: AggressiveSearch) -> Iterator[Problem]:
        """Yield the precisions of a search that torch does not have on this device."""
        for problem in self._drafters.problems(_drafting(search)):
            yield replace(problem, path=("draft_precision",))
        if self._verifiers is not None:
            for problem in self._verifiers.problems(search.verifier_precision):
                yield replace(problem, path=("verifier_precision",))


def _drafting(search: AggressiveSearch) -> Precision:
    """Return the precision of drafts, which is float32 where a search asks for int8: verified outputs are the same."""
    return search.draft_precision if search.draft_precision in HALF_PRECISIONS else "float32"
