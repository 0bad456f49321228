"""Drafting and verifying on a CPU without torch: finished networks as arrays for `kernels.AggressiveTransformer`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import cast

import torch

from fewstep import AggressiveTransformer, BeamOptions, Drafter, DraftOptions, Lexicon, SlotRules
from fewstep.networks.aggressive_transformer import Drafts
from models.aggressive.config import AggressiveSearch
from models.aggressive.head import DraftHead
from models.aggressive.model import AggressiveModel
from models.aggressive.rules import banned, block_width
from models.aggressive.verifier import Autoregressive, codes_of
from models.common.layers.backbone import Backbone
from models.common.native import arrays_of, kernel_precision, shape_of, shortlist_sizes
from models.common.options import MAX_SHORTLIST_TOKENS, Precision
from models.family import EOS, MASK, PAD
from models.training.batch import Ints

BEAM = BeamOptions(beam_size=1, eos=EOS, pad=PAD)


class NativeLoop:
    """Copies of a drafter and a verifier that do not change any more, a pair for each precision of the verifier that is asked for.
    It counts torch's threads as its own."""

    def __init__(self, model: AggressiveModel | DraftHead, verifier: Backbone, lexicon: Lexicon | None = None) -> None:
        """Networks on the CPU in float32, and what lists of words are made of."""
        self._model, self._verifier, self._lexicon = model, verifier, lexicon
        self._transformers: dict[Precision, AggressiveTransformer] = {"float32": self._transformer("float32")}

    def __call__(
        self, source: Ints, lengths: Ints, search: AggressiveSearch, limits: Ints, hints: Sequence[Sequence[int]]
    ) -> Drafts:
        """For each source [B,S] what `models.aggressive.loop` finds, to the last bit alike in any company."""
        precision = search.verifier_precision
        if precision not in self._transformers:
            self._transformers[precision] = self._transformer(precision)
        return self._transformers[precision](
            source,
            lengths,
            limits,
            options=BEAM,
            rules=writing_rules(search),
            drafts=draft_options(search, block_width(search, self._model.config)),
            hints=hints,
            threads=torch.get_num_threads(),
        )

    @torch.no_grad()
    def _transformer(self, precision: Precision) -> AggressiveTransformer:
        config = cast(Autoregressive, self._verifier).config
        arrays = arrays_of(self._verifier, config) | {"slot_codes": codes_of(self._verifier).numpy()}
        lexicon = self._lexicon
        drafter = copied(self._model, None if lexicon is None else lexicon.linked_tokens)
        return AggressiveTransformer(
            arrays, shape=shape_of(config, "relu"), precision=kernel_precision(precision), drafter=drafter, lexicon=self._lexicon
        )


@lru_cache
def writing_rules(search: AggressiveSearch) -> SlotRules:
    """The kernel's rules."""
    return SlotRules(
        mask="causal",
        banned=tuple(banned(search)),
        min_tokens=search.output_limits.min_tokens,
        **shortlist_sizes(search.shortlist),
    )


@lru_cache
def draft_options(search: AggressiveSearch, width: int) -> DraftOptions:
    """The kernel's options."""
    loose, shortlist = search.strategy == "gad++", search.draft_shortlist
    return DraftOptions(
        proposals="nothing" if search.strategy == "greedy" else "lookup" if search.looks_up else "network",
        verify=search.strategy != "draft",
        width=width,
        adaptive=search.adaptive,
        words=0 if shortlist is None else shortlist.tokens,
        links=0 if shortlist is None else shortlist.links,
        confidence=search.confidence,
        precision="int8" if search.draft_precision == "int8" else "fp32",
        ngram=search.ngram,
        ranks=search.top_k if loose else 1,
        gap=search.max_logprob_gap if loose else 0.0,
        strict_end=search.require_top1_eos,
        worthwhile=search.min_tokens_per_pass,
    )


@torch.no_grad()
def copied(model: AggressiveModel | DraftHead, linked: Ints | None = None) -> Drafter:
    """The kernel's copy of a drafter."""
    drafter = _head(model) if isinstance(model, DraftHead) else _block_decoder(model)
    return replace(drafter, lexicon=Lexicon(model.words.most(MAX_SHORTLIST_TOKENS).numpy(), linked))


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
