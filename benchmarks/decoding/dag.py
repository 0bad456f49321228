"""Time of the Directed Acyclic Transformer against greedy autoregressive decoding on a CPU.

    python -m benchmarks.decoding.dag [--engines native torch] [--lists none 300] [--sizes tiny base] [--vocabularies 2000 8000]
        [--factors 4 8] [--threads 1 2] [--batches 1 32] [--rounds 30] [--json FILE]

Networks have random weights, except for the links of a graph, which lead every vertex to the one `factor` positions later. The
autoregressive network writes as many tokens as its source has. A decode starts with lists of ids and ends with lists of ids.
Entries take turns of five decodes, round by round. Milliseconds are wall time of one batch, the median and the minimum of all
rounds. "gain" is the ratio of medians to the autoregressive network with the same size, engine, precision and shortlist. The time
of native lookahead depends on how peaked the token distributions are, which random weights do not show: measure it with trained
systems. In torch it ranks all vertices in any case.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from benchmarks.record import publish, spread
from fewstep import Lexicon
from fewstep.config.network import SIZES, Sizes
from fewstep.config.options import MAX_LINKS, MAX_SHORTLIST_TOKENS, OutputLimits, Precision, Shortlist
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.vocabulary import RESERVED
from models.common.layers.embeddings import sinusoids
from models.dag.decode import DagDecoder
from models.dag.model import DagModel
from models.dag.model import build as build_graphs
from models.stepwise.decode import StepwiseDecoder
from models.stepwise.model import build

STRATEGIES = {"native": ("greedy", "joint-viterbi", "beam"), "torch": ("greedy", "lookahead")}
PRECISIONS: dict[str, tuple[Precision, ...]] = {"native": ("float32", "bfloat16", "int8"), "torch": ("float32",)}
ENGINES: dict[str, Literal["auto", "torch"]] = {"native": "auto", "torch": "torch"}
IN_A_ROW = 5
"""Number of batches of a turn, decoded one after the other as in a text."""
SURE = 20.0
"""Gap between the score of the next vertex and the scores of others."""


class Entry(NamedTuple):
    """An entry of the comparison."""

    network: str
    engine: str
    precision: str
    listed: int | None
    """Common tokens of its shortlist."""
    strategy: str
    decoder: Any
    search: Any

    @property
    def name(self) -> str:
        words = "all words" if self.listed is None else f"{self.listed} words and links"
        return f"{self.network} {self.strategy}, {self.engine} {self.precision}, {words}"

    @property
    def peers(self) -> tuple[str, str, int | None]:
        """Engine, precision and shortlist, which are those of its baseline."""
        return self.engine, self.precision, self.listed


def lead(model: DagModel, factor: float) -> None:
    """Link every vertex to the one `factor` behind it: queries are the sinusoids of positions so far behind, which are those of the
    vertex turned, keys those of positions; sines lie beside their cosines, so that each head has both."""
    width = model.config.width
    sines, cosines = (part.diag() for part in sinusoids(torch.tensor(factor), width).chunk(2))
    turn = torch.cat((torch.cat((cosines, sines), 1), torch.cat((-sines, cosines), 1)))
    beside = torch.arange(width).view(2, -1).t().flatten()
    with torch.no_grad():
        for part, ways in ((model.links.queries, SURE * turn), (model.links.keys, torch.eye(width))):
            part.weight.copy_(torch.cat((torch.zeros(width, width), ways[beside]), 1))
            part.bias.zero_()
        model.links.gates.weight.zero_()
        model.links.gates.bias.zero_()


def lexicon(vocabulary: int) -> Lexicon:
    """Return a lexicon of all tokens by their ids that links each source token to itself and to random others."""
    draw = random.Random(vocabulary)
    linked = [[word, *draw.sample(range(len(RESERVED), vocabulary), MAX_LINKS - 1)] for word in range(vocabulary)]
    return Lexicon(np.arange(min(MAX_SHORTLIST_TOKENS, vocabulary)), np.array(linked))


def entries(size: Any, vocabulary: int, arguments: argparse.Namespace) -> list[Entry]:
    """Return all entries, the autoregressive ones first."""
    sizes, words = Sizes(vocabulary, vocabulary, True), lexicon(vocabulary)
    torch.manual_seed(1)
    autoregressive = StepwiseDecoder(build(StepwiseConfig(size=size, **SIZES[size]), sizes).eval(), lexicon=words, frozen=True)
    graphs = {}
    for factor in arguments.factors:
        torch.manual_seed(1)
        model = build_graphs(DagConfig(size=size, graph_factor=factor, **SIZES[size]), sizes).eval()
        lead(model, factor)
        graphs[f"graph {factor:g}"] = DagDecoder(model, lexicon=words, frozen=True)
    kinds = itertools.product(arguments.engines, arguments.lists)
    alike = [(engine, precision, listed) for engine, listed in kinds for precision in PRECISIONS[engine]]
    limits = OutputLimits(min_tokens=arguments.tokens, max_tokens=arguments.tokens)
    found = []
    for engine, precision, listed in alike:
        shortlist = None if listed is None else Shortlist(tokens=listed)
        greedy = StepwiseSearch(output_limits=limits, engine=ENGINES[engine], precision=precision, shortlist=shortlist)
        found.append(Entry("autoregressive", engine, precision, listed, "greedy", autoregressive, greedy))
    for (name, decoder), (engine, precision, listed) in itertools.product(graphs.items(), alike):
        for strategy in STRATEGIES[engine]:
            shortlist = None if listed is None else Shortlist(tokens=listed)
            search = DagSearch(strategy=strategy, engine=ENGINES[engine], precision=precision, shortlist=shortlist)  # type: ignore[arg-type]
            found.append(Entry(name, engine, precision, listed, strategy, decoder, search))
    return found


def measure(sides: list[Entry], sources: list[list[int]], rounds: int) -> list[dict[str, Any]]:
    times: list[list[float]] = [[] for _ in sides]
    for turn in range(rounds + 1):
        for side, taken in zip(sides, times, strict=True):
            started = time.perf_counter()
            for _ in range(IN_A_ROW):
                side.decoder.decode(side.decoder.prepare(sources), side.search)
            if turn:
                taken.append(1000 * (time.perf_counter() - started) / IN_A_ROW)
    return [{"median": statistics.median(taken), "least": min(taken), "rounds": taken} for taken in times]


def listing(text: str) -> int | None:
    return None if text == "none" else int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", choices=sorted(ENGINES), default=["native"])
    parser.add_argument(
        "--lists", nargs="+", type=listing, default=[None], help="Common tokens of shortlists; `none` for all tokens."
    )
    parser.add_argument("--sizes", nargs="+", choices=sorted(SIZES), default=["tiny"])
    parser.add_argument("--vocabularies", nargs="+", type=int, default=[2000, 8000])
    parser.add_argument("--factors", nargs="+", type=float, default=[4.0, 8.0])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--tokens", type=int, default=13, help="Tokens of each source.")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    arguments = parser.parse_args()
    results = []
    for size, vocabulary in itertools.product(arguments.sizes, arguments.vocabularies):
        sides = entries(size, vocabulary, arguments)
        for threads, batch in itertools.product(arguments.threads, arguments.batches):
            torch.set_num_threads(threads)
            draw = random.Random(batch)
            sources = [[draw.randrange(7, vocabulary) for _ in range(arguments.tokens)] for _ in range(batch)]
            found = list(zip(sides, measure(sides, sources, arguments.rounds), strict=True))
            baselines = {side.peers: taken["median"] for side, taken in found if side.network == "autoregressive"}
            for side, taken in found:
                gain = baselines[side.peers] / taken["median"]
                run = {"size": size, "vocabulary": vocabulary, "threads": threads, "batch": batch, "name": side.name}
                results.append({**run, **taken, "gain": gain})
            print(f"{size}, {vocabulary} tokens, {threads} threads, batch {batch}: done", file=sys.stderr, flush=True)
    keys = ("name", "size", "vocabulary", "threads", "batch")
    publish(
        arguments,
        section="Graphs",
        explanation="Random weights, no tokenisation: times faster than the autoregressive network, like for like.",
        columns=[*keys, "ms (median)", "ms (least)", "gain"],
        rows=[
            [*(str(row[key]) for key in keys), f"{row['median']:.2f}", f"{row['least']:.2f}", f"{row['gain']:.2f}x"]
            for row in results
        ],
        seed=1,
        rounds=arguments.rounds,
        spread=spread([row["rounds"] for row in results]),
        figures=results,
    )


if __name__ == "__main__":
    main()
