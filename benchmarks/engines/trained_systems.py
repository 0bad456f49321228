"""Every system of a config through torch and natively, in turns in one run: the effect of the engine alone.

    python -m benchmarks.engines.trained_systems CONFIG [--set KEY=VALUE ...] [--sentences 100] [--rounds 5] [--threads 1]
        [--json FILE]

Nothing is trained: systems that the config's store does not hold are left out and named. Each search of each system decodes the
same sentences of the first test set, from text to text, one by one and in batches, with the same weights by both engines. The
engines alternate, A B A B ... as in the stage `benchmark`. Milliseconds are medians a sentence; "same" are outputs that both
engines wrote alike. A dash stands where a search has one engine alone: sampling has no native one, bfloat16 none through torch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import publish
from fewstep.config.search import SearchConfig
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.system.system import System
from models.aggressive.decode import AggressiveDecoder
from models.dag.decode import DagDecoder
from models.lattice.decode import LatticeDecoder
from pipeline.config.load import load_config
from pipeline.config.schema import RunConfig
from pipeline.plan.step import Plan
from pipeline.plan.wiring import build_plan
from pipeline.store.artifacts import Store
from stages.artifacts import MANIFEST
from stages.artifacts import System as SystemArtifact
from stages.benchmark.timing import RoundTimings, measure
from stages.benchmark.translator import timed_translator
from stages.shared.decoding.sentences import read_sentences
from stages.shared.decoding.systems import load
from stages.shared.statistics import evenly_spaced

TORCH, NATIVE = "torch", "native"


def through_torch(system: System) -> System:
    """Return the system with its networks in torch; stepwise searches choose the engine themselves."""
    found = system.decoder
    if isinstance(found, DagDecoder):
        return replace(system, decoder=DagDecoder(found.model, found.ngram, found.lexicon))
    if isinstance(found, LatticeDecoder):
        return replace(system, decoder=LatticeDecoder(found.model, found.tables, found.bigrams))
    if isinstance(found, AggressiveDecoder):
        return replace(system, decoder=AggressiveDecoder(found.model, found.verifier, found.draft_system, found.lexicon))
    return system


def engines(system: System, search: SearchConfig) -> dict[str, tuple[System, Any]]:
    """Return system and search by engine."""
    asked = replace(search, engine="torch") if isinstance(search, StepwiseSearch) else search
    found = {}
    if search.workload.precision == "float32":
        found[TORCH] = (through_torch(system), asked)
    if search.strategy != "sample":
        found[NATIVE] = (system, search)
    return found


def made(plan: Plan, stage: str) -> dict[str, Path]:
    """Return directories of finished artifacts by name."""
    steps = [step for step in plan.steps if step.stage.name == stage and (step.directory / MANIFEST).is_file()]
    return {step.name.partition(":")[2]: step.directory for step in steps}


def same(pairs: Sequence[tuple[System, Any]], lines: Sequence[str], size: int) -> float | None:
    """Return the share of lines that both engines translate alike."""
    if len(pairs) < 2:
        return None
    written = []
    for system, search in pairs:
        texts: list[str] = []
        for start in range(0, len(lines), size):
            texts += system.translate(lines[start : start + size], search)
        written.append(texts)
    return statistics.fmean(one == other for one, other in zip(*written, strict=True))


def timed(timings: Sequence[RoundTimings], size: int, sentences: int) -> dict[str, float]:
    """Return milliseconds a sentence, alone and in batches."""
    alone = statistics.median(value for one in timings for value in one.latencies_ms)
    return {"alone": alone, "batch": statistics.median(1000 * one.batch_seconds[size] / sentences for one in timings)}


def cells(found: dict[str, Any], kind: str) -> list[str]:
    before, after = (found.get(engine, {}).get(kind) for engine in (TORCH, NATIVE))
    ratio = f"{before / after:.2f}x" if before and after else "-"
    return [*("-" if value is None else f"{value:.2f}" for value in (before, after)), ratio]


def entries(config: RunConfig, plan: Plan, only: Sequence[str]) -> dict[str, dict[str, tuple[System, Any]]]:
    """Return system and search by `system/search` and engine, of the finished systems."""
    found: dict[str, dict[str, tuple[System, Any]]] = {}
    finished = made(plan, "system")
    for name, settings in config.systems.items():
        if name not in finished:
            print(f"left out, not made yet: {name}", file=sys.stderr)
            continue
        searches = {
            f"{name}/{label}": search
            for label, search in settings.search.items()
            if not search.uses_ctranslate2 and any(part in f"{name}/{label}" for part in only)
        }
        if searches:
            system = load(SystemArtifact(finished[name], "system"), "cpu")
            found |= {entry: engines(system, search) for entry, search in searches.items()}
    return found


def sentences(config: RunConfig, plan: Plan, wanted: int) -> list[str]:
    """Return sentences evenly spaced over the first test set."""
    text = made(plan, "corpus")[next(iter(config.corpus.test))]
    lines = [one.source for one in read_sentences(text) if one.source.strip()]
    return [lines[index] for index in evenly_spaced(len(lines), wanted)]


def compared(
    pairs: dict[str, dict[str, tuple[System, Any]]], lines: Sequence[str], rounds: int, size: int
) -> dict[str, dict[str, Any]]:
    """Return the times of each entry with each engine."""
    translators = {(entry, engine): timed_translator(*pair) for entry, both in pairs.items() for engine, pair in both.items()}
    timings: list[RoundTimings] = []
    for number, fresh in enumerate(measure({" ".join(key): one for key, one in translators.items()}, lines, rounds, (size,)), 1):
        timings += fresh
        print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
    results: dict[str, dict[str, Any]] = {entry: {"same": same(list(both.values()), lines, size)} for entry, both in pairs.items()}
    for entry, engine in translators:
        own = [one for one in timings if one.entry == f"{entry} {engine}"]
        results[entry][engine] = timed(own, size, len(lines))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[""], help="Only entries (system/search) whose names contain one of these.")
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    config = load_config(arguments.config, arguments.overrides)
    plan = build_plan(config, Store(config.store.path))
    lines = sentences(config, plan, arguments.sentences)
    results = compared(entries(config, plan, arguments.only), lines, arguments.rounds, arguments.batch)
    header = [f"{what}, batch {size}" for size in (1, arguments.batch) for what in ("torch ms", "native ms", "x")]
    rows = [
        [entry, *cells(found, "alone"), *cells(found, "batch"), "-" if found["same"] is None else f"{found['same']:.1%}"]
        for entry, found in results.items()
    ]
    publish(
        arguments,
        section="Native decoding",
        explanation=(
            f"Systems of `{arguments.config}` through torch and natively, {len(lines)} sentences, {arguments.threads} threads: "
            "milliseconds a sentence."
        ),
        columns=["entry", *header, "same outputs"],
        rows=rows,
        seed=None,
        rounds=arguments.rounds,
        spread=None,
        note="Decoding is not random. Times of single rounds are not kept.",
        figures=results,
    )


if __name__ == "__main__":
    main()
