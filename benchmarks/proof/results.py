"""The results of a proof as far as it has come: the report's figures of all systems that were decoded, and their speed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks.proof.pieces import Proof
from stages import benchmark
from stages.report.findings.results import gather, results_json
from stages.report.page.markdown import table

Results = dict[str, Any]
COLUMNS = ("system", "BLEU", "chrF++", "gap", "95 % interval", "ms, batch 1", "to the baseline", "to CTranslate2")
"""Columns of the table, which those of batches follow. The gap is that to the baseline in BLEU."""


def results(proof: Proof) -> Results:
    """Return the scores, comparisons and times of what is in the store; nothing before the baseline was decoded."""
    inputs, config = proof.report
    present = {step.fingerprint for step in proof.targets if proof.present(step)}
    evaluated = tuple(item for item in inputs.evaluated if item.scores.fingerprint in present)
    found: Results = {}
    if any(item.entry == config.baseline for item in evaluated):
        bare = replace(
            inputs, trainings={}, evaluated=evaluated, timings={}, cut={}, counts={}, analyses={}, tuned={}, imported=None
        )
        plain = replace(config, seeds={}, system_pairs={}, min_bleu=0.0, min_rouge=0.0)
        found = results_json(gather(bare, plain), plain)
    found["timings"] = {
        step.name: json.loads((step.directory / "records/benchmark.json").read_text(encoding="utf-8"))
        for step in proof.targets
        if step.stage is benchmark.STAGE and step.fingerprint in present
    }
    return found


def markdown(found: Results) -> str:
    """Return the results as a table. A dash stands for what was not measured; ratios are of times of a single sentence, in the same
    rounds, above 1 where the system is faster."""
    timed: dict[str, Results] = {}
    rivals: dict[str, Results] = {}
    for record in found["timings"].values():
        against = rivals if "ctranslate2" in record["protocol"]["baseline"] else timed
        against.update({entry: figures for entry, figures in record["entries"].items() if entry not in against})
    sizes = list(dict.fromkeys(size for figures in (*timed.values(), *rivals.values()) for size in figures["batches"]))
    rows = [list(_cells(row, timed, rivals, sizes)) for row in found.get("rows", ())]
    return table([*COLUMNS, *(f"sentences/s, batch {size}" for size in sizes)], rows, 1)


def _cells(row: Results, timed: dict[str, Results], rivals: dict[str, Results], sizes: list[str]) -> Iterator[str]:
    entry = f"{row['system']}/{row['search']}"
    compared = row["comparisons"].get("bleu", {})
    yield entry
    yield _number(row["metrics"].get("bleu", {}).get("score"))
    yield _number(row["metrics"].get("chrf", {}).get("score"))
    yield _number(compared.get("delta"), "+.2f")
    low, high = compared.get("low"), compared.get("high")
    yield "-" if low is None else f"{low:+.2f} to {high:+.2f}"
    figures = timed.get(entry) or rivals.get(entry, {})
    yield _number(figures.get("latency_ms", {}).get("median"))
    for ratios in (timed, rivals):
        yield _number(ratios.get(entry, {}).get("latency_ratio", {}).get("median"), ".2f", "x")
    for size in sizes:
        yield _number(figures.get("batches", {}).get(size, {}).get("sentences_per_second", {}).get("median"), ",.0f")


def _number(value: float | None, form: str = ".2f", unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"
