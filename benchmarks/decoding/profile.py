"""Where the time of a sentence goes at Transformer-base size, by family, from samples of Linux perf.

    python -m benchmarks.decoding.profile [--size base] [--batches 1 32] [--seconds 3] [--only graph] [--json FILE]

Each entry of `benchmarks.decoding.base_size` decodes on one thread while perf samples this process; native functions are grouped
into parts by their names. The extension must have its symbols: configure it with `-DCMAKE_BUILD_TYPE=RelWithDebInfo`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.decoding.base_entries import chosen, entries
from benchmarks.decoding.networks import VOCABULARY, sentences
from benchmarks.decoding.rounds import Decode
from benchmarks.record import publish

PARTS = {
    "8-bit products": r"gemm|Gemm|Int8Matrix|quantiz|Quantiz",
    "attention": r"[Aa]tten|score_positions|softmax|pack_keys|transpose",
    "normalisation": r"LayerNorm|moments",
    "ranking of tokens": r"rank|top_k|[Tt]op_?[Tt]okens|[Ss]hortlist|build_group|threshold|log_sum",
    "search": r"walk|viterbi|[Bb]eam|[Ll]attice|[Dd]ag|prefix|[Ss]earch|[Ss]lots|[Dd]raft|[Pp]ropos|[Jj]oint|step",
    "copies and allocation": r"mem(move|set|cpy)|malloc|free|alloc|page|fault",
}
"""Patterns of the functions of each part; the first that matches counts."""
PYTHON, OTHER = "Python", "other"
FREQUENCY = 997
"""Samples a second."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base", choices=list(VOCABULARY))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--tokens", type=int, default=27, help="Tokens of each source and each output.")
    parser.add_argument("--seconds", type=float, default=3, help="Time that is sampled of each entry and batch.")
    parser.add_argument("--only", nargs="+", default=[""], help="Only entries whose names contain one of these.")
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    symbols = {}
    for name, entry in chosen(entries(arguments.size, arguments.tokens, tuple(arguments.batches)), arguments.only).items():
        decode = entry.make()
        for batch in arguments.batches:
            found = sampled(decode, sentences(batch, arguments.tokens, VOCABULARY[arguments.size]), arguments.seconds)
            symbols[f"{name}, batch {batch}"] = dict(sorted(found.items(), key=lambda item: -item[1])[:20])
            shares = by_part(found)
            rows.append([name, str(batch), *(f"{shares.get(part, 0):.0%}" for part in (*PARTS, PYTHON, OTHER))])
            print(*rows[-1], file=sys.stderr, flush=True)
    publish(
        arguments,
        section="Comparison with CTranslate2",
        explanation=f"Shares of the time of a sentence at size `{arguments.size}` in int8, one thread, by samples of perf.",
        columns=["entry", "batch", *PARTS, PYTHON, OTHER],
        rows=rows,
        seed=1,
        rounds=1,
        spread=f"about {FREQUENCY * arguments.seconds:.0f} samples a row",
        figures=symbols,
    )


def sampled(decode: Decode, sources: list[list[int]], seconds: float) -> dict[str, float]:
    """Return the share of samples of this process by function, as "library function"."""
    decode(sources)
    with TemporaryDirectory(prefix="fewstep-perf-") as folder:
        path = Path(folder) / "samples"
        record = ["perf", "record", "--quiet", "-F", str(FREQUENCY), "-o", str(path), "-p", str(os.getpid())]
        with subprocess.Popen([*record, "--", "sleep", str(seconds)]) as process:
            end = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < end:
                decode(sources)
        report = ["perf", "report", "-i", str(path), "--stdio", "--no-children", "--sort", "dso,symbol", "-t", "\t", "--quiet"]
        lines = subprocess.run(report, capture_output=True, text=True, check=True).stdout.splitlines()
    found: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) >= 3 and cells[0].endswith("%"):
            found[f"{cells[1]} {cells[2]}"] += float(cells[0].rstrip("%")) / 100
    return found


def by_part(functions: Mapping[str, float]) -> dict[str, float]:
    """Return shares that sum to 1 by part."""
    found: defaultdict[str, float] = defaultdict(float)
    total = sum(functions.values())
    for function, share in functions.items():
        found[_part(function)] += share / total
    return found


def _part(function: str) -> str:
    library, name = function.split(" ", 1)
    if library.startswith(("libpython", "python")):
        return PYTHON
    return next((part for part, pattern in PARTS.items() if re.search(pattern, name)), OTHER)


if __name__ == "__main__":
    main()
