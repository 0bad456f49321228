"""Former names of config keys and values. A config that uses one is refused with the current name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.config.types import inside, keys, strip

KEYS: dict[str, tuple[str, ...]] = {
    "shortlist_words": ("shortlist.tokens",),
    "shortlist_links": ("shortlist.links",),
    "draft_words": ("draft_shortlist.tokens",),
    "draft_links": ("draft_shortlist.links",),
    "max_extra_tokens": ("output_limits.max_extra_tokens",),
    "min_tokens": ("output_limits.min_tokens",),
    "max_tokens": ("output_limits.max_tokens",),
    "allow_unknown": ("output_limits.allow_unknown",),
    "temperature": ("sampling.temperature",),
    "top_p": ("sampling.top_p",),
    "seed": ("sampling.seed",),
    "prune": ("beam_threshold", "candidate_threshold"),
    "ranks": ("top_k",),
    "gap": ("max_logprob_gap",),
    "strict_end": ("require_top1_eos",),
    "worthwhile": ("min_tokens_per_pass",),
    "last_token": ("feed_last_token",),
    "prefix": ("prefix_attention",),
    "sampled_words": ("sampled_tokens",),
    "length_loss": ("length_loss_weight",),
    "average_count": ("num_averaged",),
    "average_fewer": ("num_averaged",),
    "graphs": ("dag_analysis",),
    "lattices": ("lattice_analysis",),
    "minimum_bleu": ("min_bleu",),
    "minimum_rouge": ("min_rouge",),
    "pass_tokens": ("microbatch_tokens",),
    "patience_seconds": ("node_wait_seconds",),
}
"""Former key -> current key beside it, dotted where it lies in an option type. The first that exists in its place applies."""

VALUES = {
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "graphs": "dag_analysis",
    "lattices": "lattice_analysis",
}
"""Former value, or key of a map whose keys are fixed -> current one."""


def current_key(key: str, kinds: Sequence[Any]) -> str | None:
    """Return the current name of a key that none of the dataclasses `kinds` has; None if it is not a former name there."""
    candidates = KEYS.get(key, ())
    return next((name for name in candidates if any(_has(kind, name.split(".")) for kind in kinds)), None)


def current_value(value: Any) -> str | None:
    """Return the current name of a value; None if it is not a former name."""
    return VALUES.get(value) if isinstance(value, str) else None


def _has(kind: Any, path: Sequence[str]) -> bool:
    first, *rest = path
    if first not in keys(kind):
        return False
    return not rest or any(_has(strip(inner), rest) for inner in inside(kind, first))
