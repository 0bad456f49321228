"""Drafting and verification in native code on a CPU: finished networks as arrays for `fewstep.AggressiveTransformer`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import cast

import torch

from fewstep import AggressiveTransformer, BeamOptions, Drafter, DraftOptions, Lexicon, SlotRules
from fewstep.config.options import MAX_SHORTLIST_TOKENS, Precision, shortlist_sizes
from fewstep.config.problems import Problem
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.networks.copies import native_precision
from fewstep.sources import Ints, Sources
from fewstep.system.networks import shape_of
from fewstep.translation import Hypothesis
from fewstep.vocabulary import EOS, MASK, PAD
from models.aggressive.engines.result import Drafting
from models.aggressive.head import DraftHead
from models.aggressive.model import AggressiveModel
from models.aggressive.record import draft_statistics
from models.aggressive.rules import banned, block_width
from models.aggressive.verifier import Autoregressive, codes_of
from models.common.layers.backbone import Backbone
from models.common.native import arrays_of

BEAM = BeamOptions(beam_size=1, eos=EOS, pad=PAD)


class NativeEngine:
    """Copies of a finished drafter and verifier, one pair for each precision of the verifier that was used.

    It uses as many threads as torch. Outputs are bit-identical in any batch.
    """

    def __init__(self, model: AggressiveModel | DraftHead, verifier: Backbone, lexicon: Lexicon | None) -> None:
        """Copy networks on the CPU in float32."""
        self._model, self._verifier, self._lexicon = model, verifier, lexicon
        self._transformers: dict[Precision, AggressiveTransformer] = {"float32": self._transformer("float32")}

    def problems(self, search: AggressiveSearch, network: AggressiveConfig) -> list[Problem]:
        """Return the reasons why native code cannot run a search."""
        if search.strategy == "sample":
            return [Problem(("strategy",), "a strategy other than sample in native code", search.strategy)]
        return []

    def decode(self, prepared: Sources, search: AggressiveSearch, limits: Ints, hints: Sequence[Sequence[int]]) -> Drafting:
        """Return the hypothesis of each source, as `models.aggressive.loop` finds it."""
        precision = search.verifier_precision
        if precision not in self._transformers:
            self._transformers[precision] = self._transformer(precision)
        drafts = self._transformers[precision](
            prepared.ids,
            prepared.lengths,
            limits,
            options=BEAM,
            rules=slot_rules(search),
            drafts=draft_options(search, block_width(search, self._model.config)),
            hints=hints,
            threads=torch.get_num_threads(),
        )
        hypotheses = [Hypothesis(one.tokens, one.score, one.steps, draft_statistics(*one[3:])) for one in drafts.outcomes]
        return Drafting(hypotheses, drafts.seconds._asdict())

    @torch.no_grad()
    def _transformer(self, precision: Precision) -> AggressiveTransformer:
        config = cast(Autoregressive, self._verifier).config
        arrays = arrays_of(self._verifier, config) | {"slot_codes": codes_of(self._verifier).numpy()}
        return AggressiveTransformer(
            arrays,
            shape=shape_of(config, "relu"),
            precision=native_precision(precision),
            drafter=native_drafter(self._model, None if self._lexicon is None else self._lexicon.linked_tokens),
            lexicon=self._lexicon,
        )


@lru_cache
def slot_rules(search: AggressiveSearch) -> SlotRules:
    """Return the rules of slots of `fewstep.AggressiveTransformer`."""
    return SlotRules(
        mask="causal",
        banned=tuple(banned(search)),
        min_tokens=search.output_limits.min_tokens,
        **shortlist_sizes(search.shortlist),
    )


@lru_cache
def draft_options(search: AggressiveSearch, width: int) -> DraftOptions:
    """Return the drafting options of `fewstep.AggressiveTransformer`."""
    loose = search.strategy == "gad++"
    return DraftOptions(
        proposals="nothing" if search.strategy == "greedy" else "lookup" if search.looks_up else "network",
        verify=search.strategy != "draft",
        width=width,
        adaptive=search.adaptive,
        **shortlist_sizes(search.draft_shortlist),
        confidence=search.confidence,
        precision="int8" if search.draft_precision == "int8" else "float32",
        ngram=search.ngram,
        top_k=search.top_k if loose else 1,
        max_logprob_gap=search.max_logprob_gap if loose else 0.0,
        require_top1_eos=search.require_top1_eos,
        min_tokens_per_pass=search.min_tokens_per_pass,
    )


@torch.no_grad()
def native_drafter(model: AggressiveModel | DraftHead, linked: Ints | None = None) -> Drafter:
    """Return the native copy of a drafter; `linked` [U,L] are the translations of each source token for its shortlists."""
    drafter = _head(model) if isinstance(model, DraftHead) else _block_decoder(model)
    return replace(drafter, lexicon=Lexicon(model.words.most_common(MAX_SHORTLIST_TOKENS).numpy(), linked))


def _head(model: DraftHead) -> Drafter:
    config = replace(model.config, decoder_layers=1)
    layers = {f"decoder.{name}": values.numpy() for name, values in model.head.state_dict().items()}
    arrays = {name: values for name, values in arrays_of(model, config).items() if not name.startswith("decoder.")}
    return Drafter(
        arrays={**arrays, **layers, "slot_codes": model.slot_codes(config.max_positions).numpy()},
        shape=shape_of(config, "relu"),
        shares_encoder=True,
        shares_words=True,
        features=model.features.weight.numpy(),
    )


def _block_decoder(model: AggressiveModel) -> Drafter:
    config = model.config
    codes = model.slot_codes(config.max_positions)
    return Drafter(
        arrays={**arrays_of(model, config), "slot_codes": codes.numpy()},
        shape=shape_of(config, "relu"),
        shares_encoder=config.encoder == "shared",
        shares_words=config.encoder == "shared" and model.sizes.joint,
        sight="all" if config.prefix_attention == "all" else "prefix",
        codes_in_layers=config.layer_positions,
        last_token=config.feed_last_token,
        mask=MASK,
        copy_queries=model.copy_queries(codes).numpy() if config.soft_copy else None,
    )
