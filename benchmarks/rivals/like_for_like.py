"""This project's engine and others with the same networks, one token a step: the gain of the engine alone.

    python -m benchmarks.rivals.like_for_like [--size base] [--batches 1 8 32] [--threads 1 2] [--rounds 5] [--only 6-6]
        [--settings FILE] [--models FOLDER] [--bergamot PYTHON] [--transformers PYTHON] [--json FILE]

Each group of rows has networks of the same layers and the same choice of output tokens: a shortlist, which CTranslate2 has as a
vocabulary map and Marian as a shortlist, or all tokens. Networks have random weights of 8 bits (CTranslate2: whichever compute
type is the fastest) and read and write 27 tokens. Every other engine runs in a process of its own, with its user's environment,
and times itself. CTranslate2's settings are those of `--settings` (`benchmarks.rivals.ctranslate2_settings` tries all and writes
them; without the option they are tried first); the two fastest of each case take part, and the faster one is the row. transformers
takes part in each precision, and the fastest one is the row; it has no shortlist. In each round
the entries take turns (A B C A B C). A cell is the median of the rounds by one thread / by two; "x" is CTranslate2's time over the
row's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.decoding.networks import VOCABULARY, Layers, sentences
from benchmarks.decoding.random_systems import SHORTLIST, Decode, natively
from benchmarks.decoding.rounds import Turn, measure, medians, turns
from benchmarks.record import publish, spread
from benchmarks.rivals.ctranslate2_settings import Model, Trial, depths, read_trials, try_settings
from benchmarks.rivals.entries import CTranslate2, Transformers, marian_turns, named
from benchmarks.rivals.marian import Bergamot
from fewstep.config.options import OutputLimits
from fewstep.families.stepwise.config import StepwiseSearch

CTRANSLATE2 = "CTranslate2"
MARIAN = "Marian (bergamot)"
TRANSFORMERS = "transformers"
OWN = "fewstep"


class Group(NamedTuple):
    """Networks that are compared with each other."""

    layers: Layers
    short: bool
    """Choose among a shortlist, or among all tokens."""

    @property
    def name(self) -> str:
        return f"{named(self.layers)}, {'shortlist' if self.short else 'all tokens'}"

    def entry(self, engine: str) -> str:
        return f"{engine}, {self.name}"


def main() -> None:
    arguments = arguments_of()
    groups = [Group(layers, short) for short in (True, False) for layers in depths(arguments.size)]
    groups = [group for group in groups if any(part in group.name for part in arguments.only)]
    with TemporaryDirectory(prefix="fewstep-rivals-") as temporary:
        folder = arguments.models or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = list(_turns(arguments, groups, folder))
        results = measure(found, arguments.rounds)
    publish_results(arguments, groups, list(dict.fromkeys(turn.entry for turn in found)), results)


def _turns(arguments: argparse.Namespace, groups: Sequence[Group], folder: Path) -> Iterator[Turn]:
    size = arguments.size
    tokens = arguments.tokens
    batches = arguments.batches
    threads = arguments.threads
    rival = CTranslate2(folder, size, tokens, trials(arguments, folder, [group.layers for group in groups]))
    for group in groups:
        yield from rival.turns(group.entry(CTRANSLATE2), group.layers, group.short, batches, threads)
        if arguments.bergamot and group.short:
            other = Bergamot(arguments.bergamot, folder, size, group.layers, tokens, max(batches))
            yield from marian_turns({group.entry(MARIAN): other}, batches, threads, size, tokens)
        if arguments.transformers and not group.short:
            theirs = Transformers(arguments.transformers, size, tokens)
            yield from theirs.turns(group.entry(TRANSFORMERS), group.layers, batches, threads)
        yield from turns({group.entry(OWN): own(size, group, tokens)}, batches, threads, tokens, VOCABULARY[size])


def trials(arguments: argparse.Namespace, folder: Path, layers: Sequence[Layers]) -> list[Trial]:
    """Return CTranslate2's settings with their times: those of `--settings`, or tried now."""
    if arguments.settings:
        return read_trials(arguments.settings)
    print("trying the settings of CTranslate2", file=sys.stderr, flush=True)
    models = [Model(folder, arguments.size, one) for one in dict.fromkeys(layers)]
    sources = {batch: sentences(batch, arguments.tokens, VOCABULARY[arguments.size]) for batch in sorted(arguments.batches)}
    return try_settings(models, sources, arguments.threads)


def own(size: str, group: Group, tokens: int) -> Decode:
    """Return this project's decoder of a group's network."""
    search = StepwiseSearch(
        rescore=False,
        precision="int8",
        shortlist=SHORTLIST if group.short else None,
        output_limits=OutputLimits(min_tokens=tokens, max_tokens=tokens),
    )
    return natively(size, group.layers, "autoregressive", search)


def publish_results(
    arguments: argparse.Namespace, groups: Sequence[Group], entries: Sequence[str], results: list[dict[str, Any]]
) -> None:
    found = medians(results)
    threads = " / ".join(map(str, arguments.threads))

    def times(entry: str, batch: int) -> str:
        return " / ".join(f"{found[entry, count, batch]:.2f}" for count in arguments.threads)

    def ratios(group: Group, entry: str, batch: int) -> str:
        base = group.entry(CTRANSLATE2)
        return " / ".join(f"{found[base, count, batch] / found[entry, count, batch]:.2f}x" for count in arguments.threads)

    publish(
        arguments,
        section="Comparison with CTranslate2",
        explanation=(
            f"The same networks of size `{arguments.size}` (random weights, 8 bits, one token a step, {arguments.tokens} tokens in "
            f"and out) in other engines, each at its best: milliseconds a sentence by {threads} threads, and CTranslate2's time "
            "over the row's, above 1 where the row is faster."
        ),
        columns=[
            "entry",
            *(f"ms, batch {batch}" for batch in arguments.batches),
            *(f"x, batch {batch}" for batch in arguments.batches),
        ],
        rows=[
            [
                entry,
                *(times(entry, batch) for batch in arguments.batches),
                *(ratios(group, entry, batch) for batch in arguments.batches),
            ]
            for group in groups
            for entry in entries
            if entry.endswith(group.name)
        ],
        seed=1,
        rounds=arguments.rounds,
        spread=spread([row["rounds"] for row in results]),
        figures=results,
    )


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base", choices=list(VOCABULARY))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--tokens", type=int, default=27, help="Tokens of each source and each output.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[""], help="Only groups whose names contain one of these.")
    parser.add_argument("--settings", type=Path, help="Settings of CTranslate2 that were tried on this processor.")
    parser.add_argument("--models", type=Path, help="Keep the converted models in this folder, or use those that are there.")
    parser.add_argument("--bergamot", metavar="PYTHON", help="An interpreter with the package bergamot, for its entries.")
    parser.add_argument("--transformers", metavar="PYTHON", help="An interpreter with torch and transformers, for their entries.")
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    return parser.parse_args()


if __name__ == "__main__":
    main()
