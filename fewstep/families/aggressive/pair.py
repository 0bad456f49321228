"""The tensors that a drafter shares with its verifier, and the check that two networks are such a pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fewstep.config.network import NetworkConfig, Sizes
from fewstep.families.aggressive.config import AggressiveConfig

CODES = ("source_positions", "slot_codes", "copy_queries")
"""Arrays that are no weights."""


def is_shared(name: str, config: AggressiveConfig, joint: bool) -> bool:
    """Return whether a drafter's weights of this name are those of the verifier, which are not trained. `joint`: source and target
    share one vocabulary."""
    if config.on_verifier:
        return not config.train_verifier and not name.startswith(("features.", "head.", "medusa.", "words."))
    table = "target_embedding" if joint else "source_embedding"
    return config.encoder == "shared" and name.startswith(("encoder.", "source_positions.", table))


def check_pair(
    config: AggressiveConfig,
    sizes: Sizes,
    tensors: Mapping[str, Any],
    verifier: NetworkConfig,
    verifier_sizes: Sizes,
    verifier_tensors: Mapping[str, Any],
    equal: Callable[[Any, Any], bool] = np.array_equal,
) -> None:
    """Raise ValueError for networks with vocabularies of other sizes or with other `max_positions`, for a drafter whose shared
    weights are not those of the verifier, and for one that shares an encoder of which it lacks a part.

    Tensors are weights by name, in the same notation on both sides, and `slot_codes`; `equal` compares two of them.
    """
    if verifier.needs_torch and config.encoder == "shared":
        raise ValueError(
            "encoder: expected separate for a verifier with embedding_norm or begin_vectors (BART), which drafters do not have, "
            "got shared; train a parallel drafter with an encoder of its own"
        )
    if sizes != verifier_sizes:
        raise ValueError(f"verifier: expected vocabularies {tuple(sizes)} as the drafter has, got {tuple(verifier_sizes)}")
    expected = config.max_positions
    got = verifier.max_positions
    if expected != got:
        raise ValueError(f"verifier: expected max_positions {expected} as the drafter has, got {got}; train both with one value")
    shared = [name for name in tensors if name not in CODES and is_shared(name, config, sizes.joint)]
    others = verifier_tensors
    if different := [name for name in shared if name not in others or not equal(tensors[name], others[name])]:
        raise ValueError(
            f"verifier: expected the one that the drafter was trained on, but {len(different)} of {len(shared)} tensors that "
            f"they share differ, first {different[0]}; train the drafter with `initial_weights: verifier`, from this verifier"
        )
    slots = tensors["slot_codes"][:expected], others["slot_codes"][:expected]
    if config.on_verifier and not config.train_verifier and not equal(*slots):
        raise ValueError("verifier: expected slots with position codes only for a drafter on top of it, got start vectors too")
