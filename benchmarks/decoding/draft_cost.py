"""Measure the cost of drafting: CPU time of a pass with a draft, relative to a greedy step, for several drafters.

    python -m benchmarks.decoding.draft_cost [--width 512] [--layers 6] [--tokens 16000]

The ratio is the number of tokens a pass from which drafting pays (`min_tokens_per_pass`). Weights are random, so that hardly any
draft is accepted. One sentence at a time on one thread; each round measures both searches, and the median of rounds is printed.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import torch

from fewstep import Lexicon
from fewstep.config.network import Sizes
from fewstep.config.options import OutputLimits, Shortlist
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.vocabulary import RESERVED
from models.aggressive.decode import AggressiveDecoder
from models.aggressive.model import AggressiveModel
from models.aggressive.on_verifier import MedusaHeads
from models.stepwise.model import StepwiseModel

ROUNDS = 5
SENTENCES = 3
"""Sentences of each round."""
LENGTH = 30
"""Source tokens and output tokens of a sentence."""
LIMITS = OutputLimits(min_tokens=LENGTH, max_tokens=LENGTH)
SHORT = {"draft_shortlist": Shortlist(tokens=300, links=16)}


def decoders(width: int, layers: int, tokens: int) -> Iterator[tuple[str, AggressiveDecoder, dict[str, Any]]]:
    """Yield drafters over one verifier by name, each with the options of its search."""
    options: dict[str, Any] = {"width": width, "feed_forward": 4 * width, "heads": 8, "encoder_layers": layers, "max_positions": 80}
    sizes = Sizes(tokens, tokens, True)
    torch.manual_seed(1)
    config = StepwiseConfig(decoder_layers=layers, **options)
    verifier = StepwiseModel(config, sizes, config.generation()).eval()
    heads = MedusaHeads(
        AggressiveConfig(decoder_layers=layers, drafting="medusa", encoder="shared", draft_width=3, **options), sizes
    )
    taken = verifier.state_dict()
    heads.load_state_dict({**heads.state_dict(), **{name: taken[name] for name in heads.shared_parameters()}})
    block = AggressiveModel(AggressiveConfig(decoder_layers=1, draft_width=8, **options), sizes)
    shallow = replace(config, encoder_layers=1, decoder_layers=1)
    draft_model = StepwiseModel(shallow, sizes, shallow.generation()).eval()
    links = (np.arange(tokens)[:, None] * 7 + np.arange(16)) % (tokens - len(RESERVED)) + len(RESERVED)
    lexicon = Lexicon(np.arange(len(RESERVED)), np.sort(links, 1))
    for name, model, search in (
        ("look-up, 3 tokens", heads, {"drafter": "lookup"}),
        ("look-up, 8 tokens", block, {"drafter": "lookup"}),
        ("Jacobi decoding, 3 tokens", block, {"drafter": "jacobi", "draft_width": 3}),
        ("Jacobi decoding, 8 tokens", block, {"drafter": "jacobi"}),
        ("draft model, 1 + 1 layers, 3 tokens, shortlist", block, {"drafter": "draft_model", "draft_width": 3, **SHORT}),
        ("draft model, 1 + 1 layers, 3 tokens", block, {"drafter": "draft_model", "draft_width": 3}),
        ("3 heads, shortlist", heads, SHORT),
        ("3 heads", heads, {}),
        ("parallel, 1 layer, 8 tokens, shortlist", block, SHORT),
        ("parallel, 1 layer, 8 tokens", block, {}),
    ):
        yield name, AggressiveDecoder(model.eval(), verifier, None, lexicon, draft_model, frozen=True), search


def seconds_per_pass(decoder: AggressiveDecoder, sources: Sequence[Sequence[int]], search: AggressiveSearch) -> float:
    """Return the CPU seconds of a pass of the verifier, over all sentences."""
    passes, seconds = 0, 0.0
    for source in sources:
        prepared = decoder.prepare([source])
        began = time.process_time()
        passes += decoder.decode(prepared, search, 1)[0][0].steps
        seconds += time.process_time() - began
    return seconds / passes


def main() -> None:
    """Print the cost of each drafter in greedy steps."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=16000)
    given = parser.parse_args()
    draw = random.Random(1)
    sources = [[draw.randrange(len(RESERVED), given.tokens) for _ in range(LENGTH)] for _ in range(SENTENCES)]
    for name, decoder, options in decoders(given.width, given.layers, given.tokens):
        drafted = AggressiveSearch(min_tokens_per_pass=0.0, output_limits=LIMITS, **options)
        greedy = AggressiveSearch(strategy="greedy", output_limits=LIMITS)
        ratios = [seconds_per_pass(decoder, sources, drafted) / seconds_per_pass(decoder, sources, greedy) for _ in range(ROUNDS)]
        print(f"{name:46} {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


if __name__ == "__main__":
    main()
