"""Options of `fewstep.AggressiveTransformer` from the search config, the tokens that may be written, and the width of blocks."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from fewstep.config.options import shortlist_sizes
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.networks.aggressive_transformer import DraftOptions
from fewstep.networks.transformer import SlotRules
from fewstep.vocabulary import EOS, RESERVED, UNK


def banned(search: AggressiveSearch) -> list[int]:
    """Return the ids that neither drafter nor verifier writes."""
    allowed = {EOS, UNK} if search.output_limits.allow_unknown else {EOS}
    return [token for token in range(len(RESERVED)) if token not in allowed]


def block_width(search: AggressiveSearch, config: AggressiveConfig) -> int:
    """Return the width k of a block."""
    return search.draft_width or config.draft_width


@lru_cache
def slot_rules(search: AggressiveSearch) -> SlotRules:
    """Return the rules of slots."""
    return SlotRules(
        mask="causal",
        banned=tuple(banned(search)),
        min_tokens=search.output_limits.min_tokens,
        **shortlist_sizes(search.shortlist),
    )


def proposals(search: AggressiveSearch) -> Literal["network", "lookup", "jacobi", "nothing"]:
    """Return the source of drafts in native code."""
    if search.strategy == "greedy":
        return "nothing"
    if search.drafts_by == "jacobi":
        return "jacobi"
    return "lookup" if search.looks_up else "network"


@lru_cache
def draft_options(search: AggressiveSearch, config: AggressiveConfig) -> DraftOptions:
    """Return the options of drafting with a drafter."""
    loose = search.strategy == "gad++"
    return DraftOptions(
        proposals=proposals(search),
        verify=search.strategy != "draft",
        width=block_width(search, config),
        adaptive=search.adaptive,
        tree_nodes=search.tree_nodes,
        tree_branches=search.tree_branches,
        **shortlist_sizes(search.draft_shortlist),
        confidence=search.confidence,
        precision="int8" if search.draft_precision == "int8" else "float32",
        ngram=search.ngram,
        top_k=search.top_k if loose else 1,
        max_logprob_gap=search.max_logprob_gap if loose else 0.0,
        require_top1_eos=search.require_top1_eos,
        min_tokens_per_pass=search.with_fallback(config).min_tokens_per_pass or 0.0,
    )
