"""Agreement of the engines of autoregressive decoding: greedy and beam search of a finished system by every engine.

    python -m benchmarks.decoding.agreement SYSTEM SOURCE REFERENCE [--sentences 1000] [--beam-size 5] [--json FILE]

SYSTEM is the directory of a system of the family `stepwise`, SOURCE and REFERENCE are files of text. Each engine is compared with
decoding through torch. Two greedy outputs may differ where, somewhere in the output, two tokens are equally likely within 1e-4 nats
(a near-tie, counted). For beam search at least 97 % of the outputs must be identical, the same hypothesis must have the same score
within 1e-4, and BLEU may differ by 0.1 at most. int8 is shown without requirements.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import sacrebleu

from benchmarks.record import publish
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.system.system import System
from fewstep.translation import Hypothesis
from models.bundle.directory import load_system
from stages.shared.decoding.text import NEAR_TIE, translate

IDENTICAL = 0.97
"""Smallest share of outputs that must be the same."""
SCORE = 1e-4
"""Largest difference of scores."""
BLEU = 0.1
"""Largest difference of BLEU."""
ENGINES: dict[str, dict[str, Any]] = {
    "native": {"engine": "auto"},
    "native int8": {"precision": "int8"},
    "ctranslate2 float32": {"engine": "ctranslate2"},
    "ctranslate2 int8": {"engine": "ctranslate2", "precision": "int8"},
}


@dataclass(frozen=True)
class Agreement:
    """A comparison of the best hypotheses of two engines."""

    sentences: int
    identical: int
    near_ties: int
    """Others where the first engine was near a tie (greedy search only; margins of a beam do not predict its result)."""
    score_difference: float
    """The largest difference between equal hypotheses."""
    bleu: float
    bleu_difference: float

    def holds(self, search: StepwiseSearch) -> bool:
        """True if it meets the requirements on two engines in float32."""
        if self.score_difference > SCORE:
            return False
        if search.strategy == "greedy":
            return self.identical + self.near_ties == self.sentences
        return self.identical >= IDENTICAL * self.sentences and abs(self.bleu_difference) <= BLEU


def agreement(
    system: System, expected: Sequence[Hypothesis], found: Sequence[Hypothesis], references: Sequence[str], *, greedy: bool
) -> Agreement:
    """Compare the best hypotheses of two engines for the same sources."""
    pairs = list(zip(expected, found, strict=True))
    same = [one.ids == other.ids for one, other in pairs]
    near = [not equal and greedy and one.statistics["margin"] < NEAR_TIE for (one, _), equal in zip(pairs, same, strict=True)]
    gaps = [abs(one.score - other.score) for (one, other), equal in zip(pairs, same, strict=True) if equal]
    bleu = [
        sacrebleu.corpus_bleu(system.decode_ids([one.ids for one in hypotheses]), [list(references)]).score
        for hypotheses in (expected, found)
    ]
    return Agreement(len(pairs), sum(same), sum(near), max(gaps, default=0.0), bleu[1], bleu[1] - bleu[0])


def best(system: System, lines: Sequence[str], search: StepwiseSearch) -> list[Hypothesis]:
    _, ranked = translate(system, lines, search, 2000)
    return [one[0] for one in ranked]


def compared(system: System, lines: Sequence[str], references: Sequence[str], search: StepwiseSearch) -> dict[str, Agreement | str]:
    """Compare each engine with torch; an engine without this search yields the reason."""
    expected = best(system, lines, replace(search, engine="torch"))
    results: dict[str, Agreement | str] = {}
    for name, changes in ENGINES.items():
        try:
            found = best(system, lines, replace(search, **changes))
            results[name] = agreement(system, expected, found, references, greedy=search.strategy == "greedy")
        except ValueError as error:
            results[name] = str(error)
    return results


def row(search: StepwiseSearch, engine: str, one: Agreement | str) -> list[str]:
    if isinstance(one, str):
        return [search.label, engine, *["-"] * 6]
    other = one.sentences - one.identical - one.near_ties
    verdict = "-"
    if "int8" not in engine:
        verdict = "yes" if one.holds(search) else "NO"
    bleu = f"{one.bleu:.2f} ({one.bleu_difference:+.2f})"
    return [
        search.label,
        engine,
        f"{one.identical / one.sentences:.2%}",
        str(one.near_ties),
        str(other),
        f"{one.score_difference:.1e}",
        bleu,
        verdict,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--no-verify", action="store_true", help="Load systems without comparing checksums.")
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    arguments = parser.parse_args()
    system = load_system(arguments.system, verify=not arguments.no_verify)
    lines, references = (
        path.read_text(encoding="utf-8").splitlines()[: arguments.sentences] for path in (arguments.source, arguments.reference)
    )
    searches = StepwiseSearch(), StepwiseSearch(strategy="beam", beam_size=arguments.beam_size)
    found = {search: compared(system, lines, references, search) for search in searches}
    rows = [row(search, engine, one) for search, engines in found.items() for engine, one in engines.items()]
    publish(
        arguments,
        section="Agreement of engines",
        explanation=f"Outputs of each engine compared with those through torch, {len(lines)} sentences.",
        columns=["search", "engine", "identical", "near-ties", "other", "score, at most", "BLEU (relative to torch)", "agrees"],
        rows=rows,
        seed=None,
        rounds=None,
        spread=None,
        note="Nothing is random.",
        figures={
            search.label: {engine: one if isinstance(one, str) else asdict(one) for engine, one in engines.items()}
            for search, engines in found.items()
        },
    )
    for search, engines in found.items():
        print(*(f"{search.label}, {engine}: {one}" for engine, one in engines.items() if isinstance(one, str)), sep="\n")


if __name__ == "__main__":
    main()
