"""Gather the figures of localisation runs: quality, placeholders, terms and times of all systems, from finished runs.

    python -m benchmarks.pipeline.localisation --run configs/localisation/python-docs-en-fr.yaml STORE

`--run` may stand several times. Steps of a run that are not in its store are refused, but for the timings: their cells are dashes
then. Times are those of the step `benchmark`, whose rounds time all entries in turn.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import publish
from pipeline.config.load import load_config
from pipeline.plan.wiring import build_plan
from pipeline.store.marker import open_store
from stages import report
from stages.report import Evaluated

COLUMNS = (
    "pair, system and search", "BLEU", "chrF++", "placeholders kept", "by the search", "terms honoured", "ms", "speed-up",
    "sentences/s, batch 32",
)  # fmt: skip
GLOSSARY = "-glossary"
"""The end of the name of a search that was given the glossary."""
ROUNDS = 3
BATCH = "32"


def gather(config: Path, store: Path) -> dict[str, Any]:
    """Return scores, placeholders and terms by entry, and the record of the timings, of the only test set of a run."""
    settings = load_config(config, [f"store.path={store}"])
    plan = build_plan(settings, open_store(settings.store.path))
    (last,) = (step for step in plan.steps if step.stage is report.STAGE)
    entries = {item.entry: figures(item) for item in last.inputs.evaluated}
    (timings,) = last.inputs.timings.values()
    record = timings.records / "benchmark.json"
    pair = f"{settings.languages.source}-{settings.languages.target}"
    return {"pair": pair, "entries": entries, "timings": read(record) if record.is_file() else {}}


def figures(item: Evaluated) -> dict[str, Any]:
    """Return the figures of one entry. Exits if it was not scored."""
    files = {name: item.scores.path / f"{name}.json" for name in ("scores", "placeholders", "terms")}
    if missing := [str(path) for path in files.values() if not path.is_file()]:
        sys.exit(f"{item.entry}: expected a scored run, found no {missing[0]}; run its config to the end")
    return {name: read(path) for name, path in files.items()}


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def rows(run: dict[str, Any]) -> Iterator[list[str]]:
    """Yield a row for each entry; the terms with the glossary stand beside those without it."""
    timed = run["timings"].get("entries", {})
    for entry, found in run["entries"].items():
        if entry.endswith(GLOSSARY):
            continue
        kept = found["placeholders"]
        terms = [found["terms"], *(run["entries"][name]["terms"] for name in (entry + GLOSSARY,) if name in run["entries"])]
        time = timed.get(entry)
        yield [
            f"{run['pair']} {entry}",
            f"{found['scores']['bleu']['score']:.2f}",
            f"{found['scores']['chrf']['score']:.2f}",
            share(kept["kept"], kept["sentences"]),
            share(kept["searched"], kept["sentences"]),
            ", ".join(share(one["honoured"], one["terms"]) for one in terms),
            "-" if time is None else f"{time['latency_ms']['median']:.2f}",
            "-" if time is None else f"{time['latency_ratio']['median']:.2f}x",
            "-" if time is None else f"{time['batches'][BATCH]['sentences_per_second']['median']:,.0f}",
        ]


def share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}"


def other_work_of(runs: Sequence[dict[str, Any]]) -> str:
    """Return how busy the machine was with other work while the runs were timed."""
    found = [f"{run['pair']} {run['timings']['environment']['other_processors']:.1f}" for run in runs if run["timings"]]
    return f"Processors that were busy with other work while the times were taken: {', '.join(found) or 'not timed'}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", nargs=2, type=Path, action="append", required=True, metavar=("CONFIG", "STORE"))
    parser.add_argument("--note", help="A remark on these runs for readers of the table.")
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    arguments = parser.parse_args()
    runs = [gather(*run) for run in arguments.run]
    publish(
        arguments,
        section="Localisation",
        explanation=(
            "Mixed-case BLEU and chrF++ on whole files that were held out; the share of the sentences with placeholders whose "
            "output has the same ones, after what is missing was put back, and by the search alone; the share of the terms of the "
            "glossary that the output has as stated, without and with the glossary; the median time of a sentence alone on one "
            "thread, its ratio to greedy search of the teacher, and sentences a second in batches of 32."
        ),
        columns=COLUMNS,
        rows=[row for run in runs for row in rows(run)],
        seed=1,
        rounds=ROUNDS,
        spread=None,
        note=" ".join(filter(None, [other_work_of(runs), arguments.note])),
        figures={run["pair"]: run["timings"].get("entries") for run in runs},
    )


if __name__ == "__main__":
    main()
