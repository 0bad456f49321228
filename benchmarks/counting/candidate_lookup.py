"""Time of looking up the candidate lattice of a sentence and of loading the tables, with tables of Multi30k.

Everything is built from the raw text: subword vocabulary, alignment of the pieces, tables. Sentences of the requested length are
cut from the pieces of the validation text, each looked up alone; the first look-ups (cold pages) are a row of their own. The slow
twin in Python looks some of them up in the same run, and must find the same candidates.

    python -m benchmarks.counting.candidate_lookup --data data/multi30k --threads 1 --json candidates.json
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

import kernels
from benchmarks.public_data import multi30k
from benchmarks.record import publish
from fewstep.vocabulary import RESERVED
from kernels.candidates import CountOptions, Sentences, TableOptions, count_candidates, merge_candidates
from kernels.reference.candidates import ReferenceTables
from stages.vocabulary import VocabularyConfig
from stages.vocabulary.run import train_pieces


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=multi30k(), help="The folder with train.en, train.de, val.en and val.de.")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--tokens", type=int, default=30, help="Pieces of a sentence.")
    parser.add_argument("--candidates", type=int, default=64, help="Candidates of a slot (K).")
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    return parser.parse_args()


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def encoded(folder: Path, size: int) -> dict[str, list[list[int]]]:
    """Return the pieces of each side of the training and the validation text."""
    text = {f"{part}.{side}": lines(folder / f"{part}.{side}") for part in ("train", "val") for side in ("en", "de")}
    model = train_pieces(iter([*text["train.en"], *text["train.de"]]), VocabularyConfig(size=size))
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    return {name: pieces.encode(rows) for name, rows in text.items()}


def linked(source: list[list[int]], target: list[list[int]], threads: int) -> tuple[list[list[int]], float]:
    """Return for each target piece its source position or -1 by forward fast_align, and the resulting tension."""
    pairs = [([str(x) for x in xs], [str(y) for y in ys]) for xs, ys in zip(source, target, strict=True)]
    aligned = kernels.fast_align(pairs, options=kernels.AlignOptions(threads=threads))
    links = [[-1] * len(ys) for ys in target]
    for row, found in zip(links, aligned.links, strict=True):
        for s, t in found:
            row[t] = s
    return links, aligned.model.tension


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Return milliseconds and the result."""
    began = time.perf_counter()
    result = action()
    return 1000 * (time.perf_counter() - began), result


def summary(milliseconds: list[float]) -> dict[str, float]:
    ordered = sorted(milliseconds)
    return {
        "median": statistics.median(ordered),
        "p95": ordered[math.ceil(0.95 * len(ordered)) - 1],
        "most": ordered[-1],
        "count": len(ordered),
    }


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    text = encoded(arguments.data, arguments.vocabulary)
    source, target = text["train.en"], text["train.de"]
    align_ms, (links, tension) = timed(lambda: linked(source, target, arguments.threads))
    sides = [Sentences.of(rows) for rows in (source, target, links)]
    counting = CountOptions(source_size=arguments.vocabulary, target_size=arguments.vocabulary)
    count_ms, _ = timed(lambda: count_candidates(sides[0], sides[1], sides[2].values, folder / "run", options=counting))
    table = folder / "tables.bin"
    options = TableOptions(reserved=len(RESERVED), tension=tension)
    merge_ms, made = timed(lambda: merge_candidates([folder / "run"], table, options=options))
    loads = [timed(lambda: kernels.CandidateTables.load(table))[0] for _ in range(50)]
    tables = kernels.CandidateTables.load(table)
    flat = np.array([piece for row in text["val.en"] for piece in row])
    size = arguments.tokens
    sentences = [flat[start : start + size].reshape(1, -1) for start in range(0, len(flat) - size, size)][: arguments.sentences]
    how = kernels.CandidateOptions(candidates=arguments.candidates, threads=arguments.threads)

    def look_up(ids: np.ndarray) -> kernels.Candidates:
        return kernels.lattice_candidates(tables, ids, [size], options=how)

    first = [timed(partial(look_up, ids))[0] for ids in sentences]
    again = [timed(partial(look_up, ids)) for ids in sentences]
    reference = ReferenceTables(reserved=len(RESERVED), tension=tension)
    reference.add(zip(source, target, links, strict=True))

    def slowly(pieces: list[int], slots: int) -> list[list[tuple[int, float]]]:
        return [reference.candidates(pieces, slot, arguments.candidates) for slot in range(slots)]

    slow = []
    for ids, (_, found) in list(zip(sentences, again, strict=True))[:10]:
        slots, pieces = int(found.num_slots[0]), ids[0].tolist()
        ms, expected = timed(partial(slowly, pieces, slots))
        slow.append(ms)
        assert [[y for y, _ in column] for column in expected] == [
            [y for y in column if y >= 0] for column in found.token_ids[0].tolist()
        ]
    return {
        "look_up_ms": {
            "native": summary([ms for ms, _ in again]),
            "native, first time": summary(first),
            "slow twin": summary(slow),
        },
        "slots": int(again[0][1].num_slots[0]),
        "load_ms": summary(loads),
        "build_ms": {"align": align_ms, "count": count_ms, "merge": merge_ms},
        "table": {"bytes": made.file_bytes, "rows": made.rows, "entries": made.entries, "pairs": made.pairs, "links": made.linked},
    }


def main() -> None:
    arguments = parse()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(arguments, Path(folder))
    table = result["table"]
    times = {**result["look_up_ms"], "load": result["load_ms"]}
    publish(
        arguments,
        section="Candidate tables",
        explanation=(
            f"Milliseconds to look up sentences of {arguments.tokens} pieces ({result['slots']} slots) with "
            f"K = {arguments.candidates}, {arguments.threads} threads; the table has {table['entries']:,} entries and "
            f"{table['bytes'] / 1e6:.2f} MB."
        ),
        columns=["action", "median", "95th percentile", "most"],
        rows=[[name, *(f"{figures[key]:.3f}" for key in ("median", "p95", "most"))] for name, figures in times.items()],
        seed=None,
        rounds=None,
        spread="columns `95th percentile` and `most`",
        note="Nothing is random. Each sentence is looked up twice.",
        figures=result,
    )


if __name__ == "__main__":
    main()
