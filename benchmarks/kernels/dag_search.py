"""Milliseconds to search the graph of one sentence in one thread: beam search with and without an n-gram model, Viterbi and
lookahead, and the slow beam search in Python, which must find the same best score.

Graphs are drawn: the transitions of a vertex from a Dirichlet(0.5) over the next 15 vertices, the tokens of a vertex from another
one over 3 words of the text as they are frequent; the 5 most probable pairs are its candidates. `--systems` adds graphs that
trained systems predict for sentences of a text. The n-gram model is estimated from the words of a text, or from its pieces by a
system's vocabulary.

The published search in C++ (its authors' code, beam 200, without a language model) took 2.7, 5.8 and 18 ms at 60, 100 and 200
vertices on an idle machine, and reserved 0.34 GB.

    python -m benchmarks.kernels.dag_search --systems store/system/... --json build/dag_search.json
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.public_data import multi30k
from benchmarks.record import publish
from fewstep import DagBeamOptions, DagViterbiOptions, dag_beam_search, dag_lookahead, dag_viterbi
from fewstep.families.dag.config import DagSearch
from fewstep.families.dag.search import candidates as best_pairs
from fewstep.ngram import NgramScorer
from fewstep.system.system import System
from kernels import NgramModel
from kernels.reference import dag_search as reference
from models.bundle.directory import load_system
from models.dag.decode import DagDecoder

PUBLISHED = {60: 2.7, 100: 5.8, 200: 18.0}
"""Milliseconds by vertices."""

SETTINGS = {
    "10 a length, top-p 0.9": DagBeamOptions(length_penalty=1.1),
    "200 a length, top-p 1": DagBeamOptions(length_penalty=1.1, beams_per_length=200, top_p=1.0),
}
Graph = tuple[Any, Any, Any, Any]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, nargs="+", default=[60, 100, 200])
    parser.add_argument("--graphs", type=int, default=20, help="Graphs of each size.")
    parser.add_argument("--systems", type=Path, nargs="*", default=[], help="Directories of systems whose graphs are searched too.")
    parser.add_argument("--source", type=Path, default=multi30k() / "test_2016.en", help="The source text of these systems.")
    parser.add_argument("--sentences", type=int, default=100, help="The number of its sentences, evenly spaced.")
    parser.add_argument("--text", type=Path, default=multi30k() / "train.de", help="The training text of the n-gram model.")
    parser.add_argument(
        "--vocabulary", type=int, default=8000, help="The number of most frequent words of the text that graphs emit."
    )
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=7, help="Rounds, of which the fastest counts.")
    parser.add_argument("--no-verify", action="store_true", help="Load systems without comparing checksums.")
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    return parser.parse_args()


def drawn(seed: int, vertices: int, shares: np.ndarray, window: int = 15, words: int = 3, candidates: int = 5) -> Graph:
    """Draw one graph; `shares` are the frequencies of the words."""
    draw = np.random.default_rng([seed, vertices])
    tokens = draw.choice(len(shares), (vertices, words), p=shares)
    emitted = draw.dirichlet([0.5] * words, vertices)
    scores = np.full((1, vertices, candidates), -np.inf, np.float32)
    next_vertices, token_ids = np.zeros((2, 1, vertices, candidates), np.int64)
    for vertex in range(vertices - 1):
        reach = min(window, vertices - 1 - vertex)
        pairs = draw.dirichlet([0.5] * reach)[:, None] * emitted[vertex + 1 : vertex + 1 + reach]
        best = np.argsort(-pairs, axis=None)[:candidates]
        steps, places = np.unravel_index(best, pairs.shape)
        count = len(best)
        with np.errstate(divide="ignore"):
            scores[0, vertex, :count] = np.log(pairs[steps, places])
        next_vertices[0, vertex, :count] = vertex + 1 + steps
        token_ids[0, vertex, :count] = tokens[vertex + 1 + steps, places]
    return scores, next_vertices, token_ids, np.array([vertices])


def made(system: System, lines: list[str], candidates: int = 5) -> list[Graph]:
    """Return the graphs that a system computes for lines of text."""
    decoder, search = system.decoder, DagSearch(strategy="beam", candidates=candidates)
    assert isinstance(decoder, DagDecoder)
    found: list[Graph] = []
    for source in system.encode(lines):
        graph = decoder.graph(decoder.prepare([source], search), search)
        given = graph.numpy()
        pairs = best_pairs(given.transitions, given.tokens, candidates, search.token_weight)
        found.append((*pairs, given.lengths))
    return found


def of_words(args: argparse.Namespace, text: list[str]) -> tuple[dict[str, list[Graph]], NgramModel, list[str]]:
    """Return drawn graphs, and the n-gram model of the words that they emit."""
    lines = [line.split() for line in text]
    counts = Counter(word for line in lines for word in line).most_common(args.vocabulary)
    shares = np.array([count for _, count in counts], float)
    graphs = {
        f"{vertices} vertices": [drawn(seed, vertices, shares / shares.sum()) for seed in range(args.graphs)]
        for vertices in args.vertices
    }
    return graphs, NgramModel.estimate(lines, args.order), [word for word, _ in counts]


def of_pieces(args: argparse.Namespace, text: list[str], path: Path) -> tuple[dict[str, list[Graph]], NgramModel, list[str]]:
    """Return the graphs of a trained system, and the n-gram model of its pieces."""
    system = load_system(path, verify=not args.no_verify)
    pieces = system.target_pieces
    lines = args.source.read_text(encoding="utf-8").splitlines()
    some = lines[:: max(1, len(lines) // args.sentences)][: args.sentences]
    ids = [[str(piece) for piece in line] for line in pieces.encode(text)]
    return {system.name: made(system, some)}, NgramModel.estimate(ids, args.order), [str(piece) for piece in range(len(pieces))]


def milliseconds(action: Callable[[Graph], Any], graphs: list[Graph], rounds: int) -> dict[str, float]:
    """Return milliseconds a graph, the mean over graphs of the fastest round; by the clock, and of this thread."""
    least = np.full((len(graphs), 2), np.inf)
    for _ in range(rounds):
        for place, graph in enumerate(graphs):
            wall, cpu = time.perf_counter(), time.thread_time()
            action(graph)
            least[place] = np.minimum(least[place], (time.perf_counter() - wall, time.thread_time() - cpu))
    wall, cpu = 1e3 * least.mean(0)
    return {"ms": wall, "cpu_ms": cpu}


def transitions(graph: Graph) -> tuple[Any, Any, Any]:
    """Return transitions to all next vertices, each with its best token, the input of Viterbi."""
    scores, next_vertices, _, lengths = graph
    vertices = int(lengths[0])
    whole = np.full((1, vertices, vertices - 1), -np.inf, np.float32)
    for vertex in range(vertices - 1):
        possible = next_vertices[0, vertex] > vertex
        np.maximum.at(whole[0, vertex], next_vertices[0, vertex, possible] - vertex - 1, scores[0, vertex, possible])
    return whole, np.zeros((1, vertices), np.float32), lengths


def measure(graphs: list[Graph], ngram: NgramScorer, rounds: int) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for name, options in SETTINGS.items():
        for model, kind in ((None, ""), (ngram, ", n-gram model")):

            def search(graph: Graph, options: DagBeamOptions = options, model: NgramScorer | None = model) -> Any:
                return dag_beam_search(*graph, options=options, ngram=model)

            found[f"beam, {name}{kind}"] = milliseconds(search, graphs, rounds)
    found["lookahead, no repeats"] = milliseconds(lambda graph: dag_lookahead(*graph), graphs, rounds)
    whole = {id(graph): transitions(graph) for graph in graphs}
    lengths = DagViterbiOptions()
    found["Viterbi, every length"] = milliseconds(lambda graph: dag_viterbi(*whole[id(graph)], options=lengths), graphs, rounds)
    return found


def resident() -> float:
    """Return the MiB of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def twin(graph: Graph) -> dict[str, float]:
    """Return seconds of the slow search of one graph, and the distance of its best score from the kernel's."""
    options = next(iter(SETTINGS.values()))
    begin = time.perf_counter()
    outputs = reference.beam_search(reference.possible(*(part[0] for part in graph)), options).outputs
    seconds = time.perf_counter() - begin
    best = dag_beam_search(*graph, options=options)[0][0]
    return {"seconds": seconds, "score_difference": abs(max(outputs.values()) - best.score)}


def main() -> None:
    args = parse()
    text = args.text.read_text(encoding="utf-8").splitlines()
    torch.set_num_threads(1)
    figures, sizes, twins, ngrams, kept = {}, {}, {}, {}, 0.0
    for graphs, model, words in (of_words(args, text), *(of_pieces(args, text, path) for path in args.systems)):
        ngram = model.for_vocabulary(words)
        before = resident()
        for name, some in graphs.items():
            figures[name] = measure(some, ngram, args.rounds)
            sizes[name] = {"graphs": len(some), "vertices": float(np.mean([lengths[0] for *_, lengths in some]))}
        kept += resident() - before
        first = next(iter(graphs))
        twins[first], ngrams[first] = twin(graphs[first][0]), model.counts
    result = {
        "graphs": sizes,
        "ngrams": ngrams,
        "kept_mib": kept,
        "published_ms": {f"{vertices} vertices": ms for vertices, ms in PUBLISHED.items()},
        "figures": figures,
        "twin": twins,
    }
    publish(
        args,
        section="Graphs",
        explanation="Milliseconds to search a graph on one thread, in brackets CPU time: the fastest round, mean over graphs.",
        columns=["search", *(f"{name} ({size['vertices']:.0f} on average)" for name, size in sizes.items())],
        rows=rows(result),
        seed=None,
        rounds=args.rounds,
        spread=None,
        note=f"Each graph has a seed of its own. The fastest round has no spread. {remarks(result)}",
        figures=result,
    )


def rows(result: dict[str, Any]) -> list[list[str]]:
    names = list(result["figures"])
    found = []
    for search in result["figures"][names[0]]:
        cells = [result["figures"][name][search] for name in names]
        found.append([search, *(f"{cell['ms']:.2f} ({cell['cpu_ms']:.2f})" for cell in cells)])
    published = [result["published_ms"].get(name) for name in names]
    return [*found, ["published search, no language model", *(f"{ms:.1f}" if ms else "-" for ms in published)]]


def remarks(result: dict[str, Any]) -> str:
    ngrams = ", ".join(f"{name} {sum(counts):,}" for name, counts in result["ngrams"].items())
    slow = ", ".join(
        f"{name} {one['seconds']:.2f} s, scores differ by {one['score_difference']:.1e}" for name, one in result["twin"].items()
    )
    return f"n-grams: {ngrams}. The process grew by {result['kept_mib']:.0f} MiB. Slow search in Python: {slow}."


if __name__ == "__main__":
    main()
