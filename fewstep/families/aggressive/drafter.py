"""The drafting network of a pair, from its arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fewstep.config.network import NetworkConfig
from fewstep.config.options import MAX_SHORTLIST_TOKENS
from fewstep.families.aggressive.config import AggressiveConfig
from fewstep.networks.aggressive_transformer import Drafter
from fewstep.shortlist import Lexicon
from fewstep.sources import Ints
from fewstep.system.networks import shape_of
from fewstep.vocabulary import EOS, MASK, RESERVED

if TYPE_CHECKING:
    from fewstep.system.networks import Arrays

OWN_WEIGHTS = {"parallel": (), "autoregressive": ("features.weight",), "medusa": ("medusa.weight", "medusa.bias")}
"""Names of weights that no other network has, by the kind of drafting."""


def drafter_of(config: AggressiveConfig, arrays: Arrays, joint: bool, linked: Ints | None) -> Drafter:
    """Return the drafter with these arrays; `joint`: source and target share one vocabulary.

    `linked` [U,L] are the translations of each source token for its shortlists. Raises ValueError for missing arrays, and for
    another number of heads than the config's.
    """
    needed = ["words.counts", *OWN_WEIGHTS[config.drafting]]
    needed += ["copy_queries"] if config.soft_copy and config.drafting == "parallel" else []
    if missing := [name for name in needed if name not in arrays]:
        raise ValueError(f"drafter: arrays: missing {', '.join(missing)}")
    if config.drafting == "medusa":
        drafter = _medusa(config, arrays)
    else:
        drafter = _head(config, arrays) if config.drafting == "autoregressive" else _block_decoder(config, arrays, joint)
    return replace(drafter, lexicon=Lexicon(common_tokens(arrays["words.counts"]), linked))


def common_tokens(counts: object, max_tokens: int = MAX_SHORTLIST_TOKENS) -> Ints:
    """Return [W], at most `max_tokens` ids: EOS, then tokens by their counts [V], ties by the lower id, without reserved ids."""
    numbers = np.asarray(counts)[len(RESERVED) :]
    return np.concatenate(([EOS], len(RESERVED) + np.argsort(-numbers, kind="stable")))[:max_tokens].astype(np.int64)


def _head(config: AggressiveConfig, arrays: Arrays) -> Drafter:
    layers = {name.replace("head.", "decoder.", 1): array for name, array in arrays.items() if name.startswith("head.")}
    others = {name: array for name, array in arrays.items() if not name.startswith(("decoder.", "head."))}
    return Drafter(
        arrays={**others, **layers},
        shape=shape_of(replace(config, decoder_layers=1)),
        shares_encoder=True,
        shares_words=True,
        sight="causal",
        features=arrays["features.weight"],
    )


def draft_model_of(network: NetworkConfig, arrays: Arrays, lexicon: Lexicon | None) -> Drafter:
    """Return the autoregressive network with these arrays as a drafter that chooses from the shortlists of `lexicon`."""
    return Drafter(arrays=arrays, shape=shape_of(network), shares_encoder=False, sight="causal", lexicon=lexicon)


def _medusa(config: AggressiveConfig, arrays: Arrays) -> Drafter:
    expected, got = (config.draft_width * config.width,), arrays["medusa.bias"].shape
    if got != expected:
        raise ValueError(
            f"drafter: medusa.bias: expected {list(expected)} for {config.draft_width} heads (draft_width), got {list(got)}"
        )
    return Drafter(
        arrays={
            name: array for name, array in arrays.items() if not name.startswith(("encoder.layers.", "decoder.layers.", "medusa."))
        },
        shape=shape_of(replace(config, encoder_layers=0, decoder_layers=0)),
        shares_encoder=True,
        shares_words=True,
        heads=arrays["medusa.weight"],
        heads_bias=arrays["medusa.bias"],
    )


def _block_decoder(config: AggressiveConfig, arrays: Arrays, joint: bool) -> Drafter:
    return Drafter(
        arrays=arrays,
        shape=shape_of(config),
        shares_encoder=config.encoder == "shared",
        shares_words=config.encoder == "shared" and joint,
        sight="all" if config.prefix_attention == "all" else "prefix",
        codes_in_layers=config.layer_positions,
        last_token=config.feed_last_token,
        mask=MASK,
        copy_queries=arrays["copy_queries"] if config.soft_copy else None,
    )
