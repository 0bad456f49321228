"""Distillation of a text by several engines, undisturbed, and killed at random moments and resumed.

    python -m benchmarks.pipeline.distillation DATA TEACHER [--engines auto ctranslate2 ctranslate2:int8] [--kills 3] [--rounds 2]

DATA holds the Multi30k text (train, val and test_2016 in both languages), TEACHER is the directory of a finished system of any
store; it is only read. Each engine runs the pipeline's own steps, `fewstep run ... --until distill:train`, in fresh stores:
undisturbed, in turns A B A B over the rounds, then killed (SIGKILL to the driver) and started again until it is done. The program
checks that the killed run leaves the same bytes as the undisturbed one, that no shard was decoded twice, and that no shard that
existed at a kill was written again. `auto` is native decoding, `torch` the same search through torch. Sentences and target
tokens a second are the step's own, from its first shard to its last; seconds are the whole step's.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.record import publish, spread
from pipeline.run.run_directory import Run, find_run
from pipeline.store.records import metric_files, points_after, step_directory
from stages.shared.shards import read_shards

STEP = "distill:train"


class Distillation:
    """The run of one engine on a store of its own."""

    def __init__(self, store: Path, arguments: argparse.Namespace, engine: str) -> None:
        self.store = store
        self.options = ["--in-process"] if arguments.in_process else []
        name, _, precision = engine.partition(":")
        described = json.loads((arguments.teacher / "system.json").read_text(encoding="utf-8"))
        languages = described["languages"]

        def text(folder: Path, part: str) -> dict[str, str]:
            return {side: str(folder / f"{part}.{language}") for side, language in languages.items()}

        self.config = {
            "name": "distillation",
            "languages": languages,
            "corpus": {
                "train": text(arguments.text, "train"),
                "validation": text(arguments.data, "val"),
                "test": {"test_2016": text(arguments.data, "test_2016")},
            },
            "teacher": {"from": str(arguments.teacher.absolute())},
            "distillation": {"beam_size": arguments.beam_size, "engine": name, **({"precision": precision} if precision else {})},
            "systems": {"student": {"data": "distilled"}},
            "store": {"path": str(store)},
            "cluster": {"cpus": arguments.cpus},
            "tracking": {"enabled": False},
        }

    def start(self, until: str = STEP) -> subprocess.Popen[bytes]:
        self.store.mkdir(parents=True, exist_ok=True)
        config = self.store / "distillation.yaml"
        config.write_text(json.dumps(self.config, indent=1), encoding="utf-8")  # JSON is YAML
        command = [sys.executable, "-m", "pipeline", "run", str(config), "--until", until, *self.options]
        with (self.store / "output.txt").open("ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def finish(self, until: str = STEP) -> None:
        """Run it to its end; end the program if the run fails."""
        if self.start(until).wait():
            raise SystemExit(f"{self.store}: failed:\n{(self.store / 'output.txt').read_text(errors='replace')[-3000:]}")

    def kill_when(self, ready: Callable[[], bool]) -> None:
        process = self.start()
        while not ready():
            if process.poll() is not None:
                raise SystemExit(f"{self.store}: ended before it was killed; take a longer text")
            time.sleep(0.02)
        process.kill()
        process.wait()
        time.sleep(2.0)  # Ray's processes end by themselves when their driver is gone

    @property
    def run(self) -> Run:
        return find_run(self.store, "latest")

    @property
    def directory(self) -> Path:
        (entry,) = [entry for entry in self.run.spec["plan"] if entry["step"] == STEP]
        return step_directory(self.store, entry)

    def shards(self) -> dict[str, int]:
        """Return the time at which each decoded shard was written, by name."""
        return {path.name: path.stat().st_mtime_ns for path in (self.store / "shards").glob("*.arrow")}

    def files(self) -> dict[str, Any]:
        """Return the files of the step with their sha256."""
        found: dict[str, Any] = json.loads((self.directory / "manifest.json").read_text(encoding="utf-8"))["files"]
        return found

    def decoded(self) -> Counter[str]:
        """Return the number of times that each shard was decoded, over all attempts."""
        logs = {path.resolve() for path in (self.store / "runs").glob("*/logs/distill-train.*.log")}
        return Counter(key for log in logs for key in re.findall(r"decoded ([0-9a-f]{64})", log.read_text(encoding="utf-8")))

    def figures(self) -> dict[str, Any]:
        last = [point for path in metric_files(self.directory) for point in points_after(path, 0)][-1].values
        counts = json.loads((self.directory / "distill.json").read_text(encoding="utf-8"))
        seconds = self.run.state().steps[STEP].seconds
        return {
            "seconds": seconds,
            "sentences_per_second": last["sentences_per_second"],
            "tokens_per_second": last["target_tokens_per_second"],
            "counts": counts,
        }

    def targets(self) -> dict[int, str]:
        return {row["id"]: row["target"] for shard in read_shards(self.directory) for row in shard.to_pylist()}


def killed(run: Distillation, shards: int, kills: int, draw: random.Random) -> dict[str, int]:
    """Kill the run `kills` times, once in each part of its work, between shards and within one; then let it finish.

    Return the times at which the shards that existed at a kill had been written.
    """
    before: dict[str, int] = {}
    for kill in range(kills):
        enough = draw.randrange(kill * shards // kills, (kill + 1) * shards // kills)
        later = draw.random()

        def ready(enough: int = enough, later: float = later) -> bool:
            if not (run.store / "shards").is_dir() or len(run.shards()) < enough:
                return False
            time.sleep(later)
            return True

        run.kill_when(ready)
        print(f"killed with {len(run.shards())} of {shards} shards there", file=sys.stderr, flush=True)
        before |= run.shards()
    run.finish()
    return before


def check(run: Distillation, undisturbed: Distillation, before: dict[str, int], kills: int) -> dict[str, Any]:
    """Return the checks of a killed run. A kill may fall between a shard and its line in the log."""
    decoded = run.decoded()
    shards = run.shards()
    return {
        "same_bytes": run.files() == undisturbed.files(),
        "decoded": sum(decoded.values()),
        "decoded_twice": sum(count > 1 for count in decoded.values()),
        "written_again": sum(shards.get(name) != moment for name, moment in before.items()),
        "shards": len(shards),
        "kills": kills,
        "there_when_killed": len(before),
    }


def cut(data: Path, folder: Path, rows: int) -> None:
    """Copy the first rows of the training text."""
    for path in data.glob("train.*"):
        with path.open(encoding="utf-8") as lines, (folder / path.name).open("w", encoding="utf-8") as file:
            file.writelines(islice(lines, rows))


def fresh(origin: Distillation, path: Path, arguments: argparse.Namespace, engine: str) -> Distillation:
    """Return a run on a store that holds the cleaned text and nothing else."""
    shutil.copytree(origin.store, path, symlinks=True, ignore=shutil.ignore_patterns("runs"))
    return Distillation(path, arguments, engine)


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    origin = Distillation(folder / "text", arguments, arguments.engines[0])
    origin.finish("corpus")
    undisturbed: dict[str, list[Distillation]] = {engine: [] for engine in arguments.engines}
    for turn in range(arguments.rounds):
        for number, engine in enumerate(arguments.engines):
            undisturbed[engine].append(fresh(origin, folder / f"{number}-{turn}", arguments, engine))
            undisturbed[engine][-1].finish()
            print(engine, undisturbed[engine][-1].figures(), file=sys.stderr, flush=True)
    draw = random.Random(arguments.seed)
    found: dict[str, dict[str, Any]] = {}
    reference = undisturbed[arguments.engines[0]][0].targets()
    for number, (engine, runs) in enumerate(undisturbed.items()):
        targets = runs[0].targets()
        found[engine] = {"rounds": [run.figures() for run in runs]}
        same = sum(reference.get(id_) == target for id_, target in targets.items())
        found[engine]["as_first"] = same / max(len(reference), len(targets))
        if arguments.kills:
            run = fresh(origin, folder / f"{number}-killed", arguments, engine)
            before = killed(run, len(runs[0].shards()), arguments.kills, draw)
            found[engine]["check"] = check(run, runs[0], before, arguments.kills)
    return found


def row(engine: str, found: dict[str, Any]) -> list[str]:
    rates = [
        f"{statistics.median(one[key] for one in found['rounds']):,.0f}"
        for key in ("seconds", "sentences_per_second", "tokens_per_second")
    ]
    cells = [engine, *rates, f"{found['as_first']:.2%}"]
    if "check" not in found:
        return [*cells, "-", "-", "-"]
    checked = found["check"]
    again = f"{checked['decoded_twice'] + checked['written_again']} of {checked['shards']}"
    return [*cells, str(checked["kills"]), "yes" if checked["same_bytes"] else "NO", again]


def failed(results: dict[str, Any], workers: int) -> Sequence[str]:
    """Return the engines whose killed run failed a check, or whose logs miss decoded shards."""

    def broken(one: dict[str, Any]) -> bool:
        unlogged = one["decoded"] < one["shards"] - one["kills"] * workers
        return not one["same_bytes"] or one["decoded_twice"] or one["written_again"] or unlogged

    return [engine for engine, found in results.items() if "check" in found and broken(found["check"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("--engines", nargs="+", default=["auto", "ctranslate2"], metavar="ENGINE[:PRECISION]")
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--rows", type=int, help="Rows of the training text, the first ones; all if not given.")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="The seed of the moments of the kills.")
    parser.add_argument("--in-process", action="store_true", help="Run without Ray.")
    parser.add_argument("--work", type=Path, help="The folder for the stores, which are kept; a temporary one if not given.")
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="fewstep-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary) if arguments.work is None else arguments.work.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        arguments.data = arguments.text = arguments.data.absolute()
        if arguments.rows is not None:
            arguments.text = folder / "head"
            arguments.text.mkdir(exist_ok=True)
            cut(arguments.data, arguments.text, arguments.rows)
        results = measure(arguments, folder)
    publish(
        arguments,
        section="Distillation",
        explanation=f"Distillation with beam {arguments.beam_size}, undisturbed; then with kills (SIGKILL) at random moments.",
        columns=[
            "engine",
            "seconds",
            "sentences/s",
            "tokens/s",
            f"outputs as `{arguments.engines[0]}`",
            "kills",
            "same bytes",
            "shards twice",
        ],
        rows=[row(engine, found) for engine, found in results.items()],
        seed=arguments.seed,
        rounds=arguments.rounds,
        spread=spread([[one["seconds"] for one in found["rounds"]] for found in results.values()]),
        figures=results,
    )
    if broken := failed(results, arguments.cpus):
        raise SystemExit(
            f"expected a killed run to end with the same bytes and no shard decoded twice; it failed for {', '.join(broken)}"
        )


if __name__ == "__main__":
    main()
