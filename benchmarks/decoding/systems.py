"""A table of a config's systems, trained and timed by the pipeline, and sweeps over any value of the config.

    python -m benchmarks.decoding.systems configs/benchmarks/demo.yaml [--set KEY=VALUE ...] [--json FILE]
    python -m benchmarks.decoding.systems configs/benchmarks/demo.yaml --sweep vocabulary.size=300,600,1200
    python -m benchmarks.decoding.systems configs/sweeps/beam.yaml --sweep systems.factor-2.graph_factor=1,2,3 --only factor-2

Steps in the store are reused: a sweep trains only what its value changes. Searches of one system are swept in its `search`, batch
sizes in `benchmark.batch_sizes`, in one process; everything else by `--sweep KEY=VALUE,VALUE,...`, one run for each value (several
sweeps: each combination). Without a sweep the tables of the report are printed too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import publish
from pipeline.config.load import load_config
from pipeline.run.run_directory import find_run
from pipeline.store.records import step_directory
from stages.report.page.markdown import table

METRICS = {"bleu": "BLEU", "rougeL": "ROUGE-L"}


def run(config: Path, overrides: Sequence[str], *options: str) -> dict[str, Path]:
    """Run the pipeline; return the directories of the steps by name. End the program if the run fails."""
    settings = [part for override in overrides for part in ("--set", override)]
    command = [sys.executable, "-m", "pipeline", "run", str(config), *settings, *options]
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        raise SystemExit(f"failed: {' '.join(command)}")
    found = find_run(load_config(config, overrides).store.path, "latest")
    return {entry["step"]: step_directory(found.store, entry) for entry in found.spec["plan"]}


def figures(steps: dict[str, Path]) -> dict[str, Any]:
    """Return the timings, each entry with its quality if it was scored."""
    (timed,) = [directory for step, directory in steps.items() if step.startswith("benchmark:")]
    (reported,) = [directory for step, directory in steps.items() if step.startswith("report")]
    found: dict[str, Any] = json.loads((timed / "records/benchmark.json").read_text(encoding="utf-8"))
    found["tables"] = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((timed / "records/tables").glob("*.json"))]
    for row in json.loads((reported / "results.json").read_text(encoding="utf-8"))["rows"]:
        if entry := found["entries"].get(f"{row['system']}/{row['search']}"):
            entry["metrics"] = row["metrics"]
    return found


def swept(sweeps: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield every combination of `KEY=VALUE,VALUE,...` as overrides."""
    choices = []
    for sweep in sweeps:
        key, _, values = sweep.partition("=")
        choices.append([f"{key}={value}" for value in values.split(",")])
    return itertools.product(*choices)


def quality(entry: dict[str, Any]) -> str:
    """Return the first metric that was computed, as text."""
    metrics = entry.get("metrics", {})
    name = next((name for name in METRICS if name in metrics), None)
    value = metrics[name] if name else None
    if value is None:
        return "-"
    return f"{value['score'] if isinstance(value, dict) else value:.2f}"


def rows(combination: Sequence[str], found: dict[str, Any], only: Sequence[str]) -> Iterator[list[str]]:
    sizes = [str(size) for size in found["protocol"]["batch_sizes"]]
    for name, entry in found["entries"].items():
        if any(part in name for part in only):
            yield [
                *(part.partition("=")[2] for part in combination),
                name,
                quality(entry),
                f"{entry['latency_ms']['median']:.2f}",
                f"{entry['latency_ms']['p95']:.2f}",
                f"{entry['latency_ratio']['median']:.2f}x",
                f"{min(entry['latency_ratio']['rounds']):.2f} to {max(entry['latency_ratio']['rounds']):.2f}",
                *(f"{entry['batches'][size]['sentences_per_second']['median']:,.1f}" for size in sizes),
                f"{entry['decoder_calls_per_sentence']:.1f}",
            ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--sweep", dest="sweeps", action="append", default=[], metavar="KEY=VALUE,VALUE,...")
    parser.add_argument("--in-process", action="store_true", help="Run without Ray.")
    parser.add_argument("--only", nargs="+", default=[""], help="Only entries whose names contain one of these.")
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    arguments = parser.parse_args()
    results = []
    for combination in swept(arguments.sweeps):
        options = ["--in-process"] if arguments.in_process else []
        found = figures(run(arguments.config, [*arguments.overrides, *combination], *options))
        results.append({"values": list(combination), **found})
    first = results[0]
    for one in first["tables"] if not arguments.sweeps else []:
        print(f"\n## {one['title']}\n\n{table(one['columns'], one['rows'], 1)}\n\n{one['caption']}")
    keys = [sweep.partition("=")[0] for sweep in arguments.sweeps]
    sizes = [f"sentences/s ({size})" for size in first["protocol"]["batch_sizes"]]
    metrics = [METRICS[name] for name in METRICS if any(name in entry.get("metrics", {}) for entry in first["entries"].values())]
    header = [*keys, "entry", *(metrics[:1] or ["quality"]), "ms (p50)", "ms (p95)", "speed-up", "rounds", *sizes, "calls"]
    lines = [row for result in results for row in rows(result["values"], result, arguments.only)]
    publish(
        arguments,
        section="Comparison with CTranslate2",
        explanation=f"Systems of `{arguments.config}`, times faster than `{first['protocol']['baseline']}`.",
        columns=header,
        rows=lines,
        seed=None,
        rounds=first["protocol"]["rounds"],
        spread="column `rounds`, of the speed-up",
        note="The seed is that of the config.",
        figures=results,
    )


if __name__ == "__main__":
    main()
