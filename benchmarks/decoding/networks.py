"""Networks of random weights, and what they decode with, for measurements at any size."""

from __future__ import annotations

import itertools
import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from fewstep.candidates import CandidateTables
from fewstep.config.network import SIZES, Sizes
from fewstep.families.aggressive.config import AggressiveConfig
from fewstep.families.parallel.config import ParallelConfig
from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.vocabulary import RESERVED
from kernels.candidates import CountOptions, Sentences, TableOptions, count_candidates, merge_candidates
from models.aggressive.family import build as build_drafter
from models.aggressive.model import AggressiveModel
from models.aggressive.on_verifier import DraftHead, MedusaHeads
from models.common.layers.backbone import Backbone
from models.parallel.model import ParallelModel
from models.parallel.model import build as build_slots
from models.stepwise.model import StepwiseModel, build

VOCABULARY = {"tiny": 8000, "base": 32000}
ORDERS = ("autoregressive", "interleaved", "interleaved-sa")
Layers = tuple[int, int]
AGREED, OTHER = 10, 11
"""Tokens that biased networks write."""
DRAFTERS: dict[str, dict[str, Any]] = {
    "k4 autoregressive": {"drafting": "autoregressive", "encoder": "shared", "draft_width": 4},
    "k4 shared 1-layer": {"encoder": "shared", "decoder_layers": 1, "prefix_attention": "prefix", "draft_width": 4},
    "k15 separate": {"draft_width": 15},
}
"""Sizes of the recipes for a CPU, and of the paper."""


@cache
def zipf(vocabulary: int) -> list[float]:
    """Return cumulative weights of the tokens behind the reserved ones, as frequent as words of a text (Mandelbrot 1953). Uniform
    tokens would have more translations in a batch than those of a text, which the map of a whole batch would have to hold."""
    return list(itertools.accumulate(1 / (rank + 2.7) for rank in range(vocabulary - len(RESERVED))))


def sentences(count: int, tokens: int, vocabulary: int) -> list[list[int]]:
    """Return sentences of random tokens, frequent ones first in the vocabulary."""
    draw = random.Random(count)
    ids = range(len(RESERVED), vocabulary)
    return [draw.choices(ids, cum_weights=zipf(vocabulary), k=tokens) for _ in range(count)]


def sizes(size: str) -> Sizes:
    return Sizes(VOCABULARY[size], VOCABULARY[size], True)


def network(size: str, layers: Layers, order: Any = "autoregressive") -> StepwiseModel:
    torch.manual_seed(1)
    shape = {**SIZES[size], "encoder_layers": layers[0], "decoder_layers": layers[1]}
    return build(StepwiseConfig(order=order, size=size, **shape), sizes(size)).eval()  # type: ignore[arg-type]


def slot_network(size: str, objective: Any) -> ParallelModel:
    """Return a network that fills slots; where it predicts lengths, a target is as long as its source."""
    torch.manual_seed(1)
    config = ParallelConfig(size=size, objective=objective, **SIZES[size])  # type: ignore[arg-type]
    model = build_slots(config, sizes(size)).eval()
    if model.length is not None:
        with torch.no_grad():
            model.length.weight.zero_()
            model.length.weight[config.length_offset] = 1
            model.get_parameter("encoder.norm.bias").add_(1)
    return model


def candidates_for(sources: list[list[int]], vocabulary: int) -> CandidateTables:
    """Return tables counted from translations of the sources: adjacent tokens swapped at times, 24 translations of each token."""
    draw = random.Random(2)
    pairs = []
    for source in sources * 64:
        order = sorted(range(len(source)), key=lambda place: place + 1.6 * draw.random())
        pairs.append((source, [7 + (24 * source[place] + draw.randrange(24)) % (vocabulary - 7) for place in order], order))
    read, written, links = (Sentences.of([pair[side] for pair in pairs]) for side in range(3))
    with TemporaryDirectory() as directory:
        run, path = Path(directory) / "counts.run", Path(directory) / "tables"
        count_candidates(read, written, links.values, run, options=CountOptions(source_size=vocabulary, target_size=vocabulary))
        merge_candidates([run], path, options=TableOptions())
        return CandidateTables.load(path)


@torch.no_grad()
def biased(model: Backbone, word: int) -> None:
    """Shift the last states so that `word` is the most probable token everywhere."""
    towards = model.target_embedding.weight[word]
    last = "head" if isinstance(model, DraftHead) else "decoder"
    model.get_parameter(f"{last}.norm.bias").add_(1000 * towards / towards.norm())


def drafter_of(verifier: StepwiseModel, size: str, drafter: str, *, accepted: bool) -> AggressiveModel | DraftHead | MedusaHeads:
    """Return a drafter of a verifier that always writes `AGREED`; its drafts are all accepted (`accepted`), or all rejected."""
    model = build_drafter(AggressiveConfig(size=size, **{**SIZES[size], **DRAFTERS[drafter]}), sizes(size)).eval()  # type: ignore[arg-type]
    given = verifier.state_dict()
    model.load_state_dict({name: given[name] for name in model.shared_parameters()}, strict=False)
    biased(model, AGREED if accepted else OTHER)
    return model
