"""Estimation of an n-gram model: whole processes that turn a text into an ARPA file, compared with KenLM's lmplz if it is
installed; then loading and queries, compared with the kenlm package.

    python -m benchmarks.counting.ngram data/multi30k/train.de --heldout data/multi30k/val.de --threads 2 --json build/ngram.json
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.record import publish, spread
from kernels import NgramModel
from kernels.reference.ngram import read_arpa

ESTIMATE = """
import sys, time
from pathlib import Path
from kernels import NgramModel
text, order, threads, prune, arpa, model = sys.argv[1:]
options = {"prune": [*map(int, prune.split())], "discount_fallback": (0.5, 1, 1.5), "threads": int(threads)}
begin = time.perf_counter()
found = NgramModel.estimate(Path(text), int(order), **options)
print(time.perf_counter() - begin)
(found.write_arpa if arpa == "arpa" else found.save)(model)
"""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="A text of one sentence a line.")
    parser.add_argument("--heldout", type=Path, help="The text that the model scores; the training text if not given.")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--prune", type=int, nargs="+", default=[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--lmplz", default="lmplz", help="KenLM's program: a path, or a name on PATH.")
    parser.add_argument("--lmplz-memory", default="500M", help="The memory of lmplz for sorting.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    return parser.parse_args()


def measure(command: list[str], stdout: Path | None = None, stdin: Path | None = None) -> dict[str, float]:
    """Return wall-clock and CPU seconds of a process and its peak of resident memory in MiB."""
    begin = time.perf_counter()
    with open(stdout or os.devnull, "wb") as out, open(stdin or os.devnull, "rb") as source:
        process = subprocess.Popen(command, stdin=source, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(command)}")
    return {
        "seconds": time.perf_counter() - begin,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mib": usage.ru_maxrss / 1024,
    }


def estimators(args: argparse.Namespace, folder: Path) -> dict[str, Callable[[], dict[str, float]]]:
    """Return functions that run one whole process each, by name."""

    def ours(threads: int, kind: str) -> dict[str, float]:
        prune = " ".join(map(str, args.prune))
        out = folder / f"ours.{kind}"
        arguments = [str(args.text), str(args.order), str(threads), prune, kind, str(out)]
        found = measure([sys.executable, "-c", ESTIMATE, *arguments], stdout=folder / "said")
        return found | {"estimate_seconds": float((folder / "said").read_text())}

    entries: dict[str, Callable[[], dict[str, float]]] = {}
    for threads in args.threads:
        entries[f"to ARPA, {threads} threads"] = partial(ours, threads, "arpa")
        entries[f"to a model file, {threads} threads"] = partial(ours, threads, "ngram")
    if lmplz := shutil.which(args.lmplz):
        options = ["-o", str(args.order), "-S", args.lmplz_memory, "-T", f"{folder}/", "--discount_fallback"]
        command = [lmplz, *options, "--prune", *map(str, args.prune)]
        entries["lmplz, to ARPA"] = lambda: measure(command, stdout=folder / "lmplz.arpa", stdin=args.text)
    return entries


def differences(folder: Path) -> dict[str, Any]:
    """Return the differences of our ARPA file from lmplz's."""
    ours, theirs = (read_arpa((folder / f"{name}.arpa").read_text(encoding="utf-8").split("\n")) for name in ("ours", "lmplz"))
    both = ours.keys() & theirs.keys()
    largest = max(abs(ours[ngram][part] - theirs[ngram][part]) for ngram in both for part in (0, 1))
    return {"ngrams": len(theirs), "only_in_one": len(ours.keys() ^ theirs.keys()), "largest_difference_log10": largest}


def best(action: Callable[[], Any], rounds: int) -> float:
    """Return the seconds of the fastest of some calls."""
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def queries(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure loading, and queries about the held-out text in one thread."""
    import kenlm

    arpa, mapped = folder / "ours.arpa", folder / "ours.ngram"
    heldout = args.heldout or args.text
    lines = heldout.read_text(encoding="utf-8").splitlines()
    model = NgramModel.load(mapped)
    found = model.perplexity(heldout)
    scorer = model.for_vocabulary(model.words)
    ids = {word: number for number, word in enumerate(model.words)}
    sentences = [[ids.get(word, 0) for word in line.split()] for line in lines]
    quiet = kenlm.Config()
    quiet.show_progress = False
    quiet.arpa_complain = kenlm.ARPALoadComplain.NONE
    theirs = kenlm.Model(str(arpa), quiet)

    def step_all() -> None:
        for sentence in sentences:
            state = scorer.begin
            for word in sentence:
                state = scorer.step(state, word)[1]

    total = sum(theirs.score(line) for line in lines)
    return {
        "words": found.words,
        "load_mapped_ms": 1e3 * best(lambda: NgramModel.load(mapped), args.rounds),
        "load_arpa_ms": 1e3 * best(lambda: NgramModel.load(arpa), args.rounds),
        "kenlm_load_arpa_ms": 1e3 * best(lambda: kenlm.Model(str(arpa), quiet), args.rounds),
        "text_ns_per_word": 1e9 * best(lambda: model.perplexity(heldout), args.rounds) / found.words,
        "python_step_ns_per_word": 1e9 * best(step_all, args.rounds) / found.words,
        "kenlm_text_ns_per_word": 1e9 * best(lambda: [theirs.score(line) for line in lines], args.rounds) / found.words,
        "perplexity": found.perplexity,
        "kenlm_perplexity": math.exp(-total * math.log(10) / found.words),
        "unknown_rate": found.unknown_rate,
        "model_bytes": mapped.stat().st_size,
        "arpa_bytes": arpa.stat().st_size,
        "ngrams": model.counts,
    }


def main() -> None:
    args = parse()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        entries = estimators(args, folder)
        rounds: dict[str, list[dict[str, float]]] = {entry: [] for entry in entries}
        for _ in range(args.rounds):
            for entry, run in entries.items():  # in turns, so that a slow spell of the machine meets all
                rounds[entry].append(run())
        figures = {
            entry: {key: statistics.median(round_[key] for round_ in found) for key in found[0]}
            | {"least_seconds": min(round_["seconds"] for round_ in found)}
            for entry, found in rounds.items()
        }
        result = {
            "sentences": sum(1 for _ in args.text.open("rb")),
            "estimating": figures,
            "agreement": differences(folder) if (folder / "lmplz.arpa").exists() else None,
            "queries": queries(args, folder),
        }
    publish(
        args,
        section="n-gram models",
        explanation=f"Whole processes that estimate a model of order {args.order} from {result['sentences']:,} sentences.",
        columns=["program", "wall time", "least", "CPU time", "estimation alone", "peak memory"],
        rows=[row(entry, found) for entry, found in figures.items()],
        seed=None,
        rounds=args.rounds,
        spread=spread([[round_["seconds"] for round_ in found] for found in rounds.values()]),
        note=f"Nothing is random. {remarks(result)}",
        figures=result,
    )


def row(entry: str, found: dict[str, float]) -> list[str]:
    seconds = [f"{found[key]:.3f} s" for key in ("seconds", "least_seconds", "cpu_seconds")]
    alone = f"{found['estimate_seconds']:.3f} s" if "estimate_seconds" in found else "-"
    return [entry, *seconds, alone, f"{found['peak_mib']:.0f} MiB"]


def remarks(result: dict[str, Any]) -> str:
    queries = result["queries"]
    found = (
        f"Scoring takes {queries['text_ns_per_word']:.0f} ns a word, with the kenlm package "
        f"{queries['kenlm_text_ns_per_word']:.0f} ns; "
        f"perplexity of the held-out text {queries['perplexity']:.3f} and {queries['kenlm_perplexity']:.3f}."
    )
    if agreement := result["agreement"]:
        found += (
            f" {agreement['ngrams']:,} n-grams, {agreement['only_in_one']} in one file only, "
            f"largest difference {agreement['largest_difference_log10']:.1e} in log10."
        )
    return found


if __name__ == "__main__":
    main()
