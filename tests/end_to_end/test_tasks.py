"""Whole runs of other texts and tasks: real text, distillation, pre-training and summarization."""

import json
import logging
import os
import random
import re
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.commands.translate import system_directory
from pipeline.config.load import load_config
from pipeline.plan.wiring import build_plan
from pipeline.run import execute
from pipeline.run.execute import RunReport
from pipeline.store.artifacts import Store
from stages.corpus.job import PIECE_ROWS
from stages.shared.embedded import documents
from tests.end_to_end.runs import ALONE, Watched
from tests.translating import translated

PAIRS = 3 * PIECE_ROWS + 1000


def write_text(path: Path) -> None:
    """Write pairs of which some are repeated far from their first copy."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(PAIRS):
            value = number % 150_000 if number % 3 else number
            file.write(f"The man with number {value} sleeps here.\tDer Mann mit der Nummer {value} schläft da.\n")


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.exhaustive
def test_text_is_cleaned_on_workers_that_die(tmp_path: Path) -> None:
    write_text(tmp_path / "text.tsv")
    text = {"corpus.train.embedded": 0, "corpus.train.tsv": tmp_path / "text.tsv"}
    options = ("--until", "corpus:train", *(word for key, value in text.items() for word in ("--set", f"{key}={value}")))
    alone = Watched(tmp_path / "alone", *ALONE, *options)
    alone.finish()

    run = Watched(tmp_path / "store", *options, "--set", "cluster.cpus=2")
    with run.background() as process:
        run.wait(lambda: run.progress("corpus:train") > 0 and len(run.processes("corpus:train")) > 2, process)
        os.kill(run.processes("corpus:train")[-1], signal.SIGKILL)  # a worker whose first piece has just begun
        run.wait(lambda: "which is given to another worker" in run.log("corpus:train"), process)
        run.wait(lambda: run.progress("corpus:train") >= PIECE_ROWS, process)
    directory = next((run.store / "corpus").glob("*.partial*/checkpoints"))
    finished = {path.name: path.stat().st_mtime_ns for path in directory.glob("*-ledger-*")}
    assert len(finished) >= 2
    run.finish()
    assert run.agrees_with(alone)
    assert run.started("corpus:train") == 2


KILLS = 3
SEARCH = "distillation={strategy: beam, beam_size: 8, n_best: 8, choose: reference}"
OPTIONS = (*ALONE, "--set", "corpus.shard_rows=48", "--set", "teacher.ensemble=2", "--set", SEARCH)


def decoded(run: Watched) -> Counter[str]:
    """Return the number of times that each shard was decoded and kept, over all attempts."""
    logs = {path.resolve() for path in (run.store / "runs").glob("*/logs/distill-train.*.log")}  # `latest` is a link
    return Counter(key for log in logs for key in re.findall(r"decoded ([0-9a-f]{64})", log.read_text()))


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.exhaustive
def test_killed_three_times_at_random_moments(tmp_path: Path) -> None:
    trained = Watched(tmp_path / "trained", *OPTIONS, "--until", "system:teacher")
    trained.finish()
    undisturbed, killed = runs = [
        Watched(tmp_path / name, *OPTIONS, "--until", "distill:train") for name in ("undisturbed", "killed")
    ]
    for run in runs:
        shutil.copytree(trained.store, run.store, symlinks=True)
    undisturbed.finish()
    shards = len(list((undisturbed.store / "shards").glob("*.arrow")))
    assert shards > 25

    seed = random.randrange(2**32)
    draw = random.Random(seed)
    times: dict[str, int] = {}
    for kill in range(KILLS):
        enough = draw.randrange(kill * shards // KILLS, (kill + 1) * shards // KILLS)
        later = draw.random() * 0.3

        def ready(enough: int = enough, later: float = later) -> bool:
            if any(e["step"] == "distill:train" for e in killed.events("step_done")):
                return True  # it was faster than this process, which kills nothing then
            if killed.running("distill:train") is None or len(list((killed.store / "shards").glob("*.arrow"))) < enough:
                return False
            time.sleep(later)
            return True

        killed.kill_when(ready)
        times |= {path.name: path.stat().st_mtime_ns for path in (killed.store / "shards").glob("*.arrow")}
    killed.finish()

    assert killed.files() == undisturbed.files(), f"seed {seed}"
    assert {path.name: path.stat().st_mtime_ns for path in (killed.store / "shards").glob("*.arrow")}.items() >= times.items()
    assert max(decoded(killed).values()) == 1, f"seed {seed}"
    assert sum(decoded(undisturbed).values()) == shards
    assert sum(decoded(killed).values()) >= shards - KILLS, "a kill between a shard and its line in the log"


GRAPH = {"family": "dag", "graph_size": "predicted", "graph_factor": 3, "glancing_updates": 100}
START = {"initial_weights": "pretraining"}
CONFIG: dict[str, Any] = {
    "name": "pretraining",
    "task": "summarization",
    "languages": {"source": "en"},
    "corpus": {"train": {"embedded": 600}, "validation": {"embedded": 60}, "test": {"demo": {"embedded": 8}}},
    "vocabulary": {"size": 400, "model": "bpe"},
    "defaults": {
        "width": 64,
        "feed_forward": 128,
        "heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "dropout": 0,
        "training": {
            "updates": 20, "batch_tokens": 512, "learning_rate": 0.004, "warmup_updates": 10, "validate_every": 10,
            "validation_metric": "loss", "validation_sentences": 0,
        },
    },
    "pretraining": {"updates": 120, "validate_every": 60},
    "systems": {
        "graph": GRAPH,
        "graph-pretrained": {**GRAPH, **START},
        "stepwise": {"search": ["greedy"]},
        "stepwise-pretrained": {"search": ["greedy"], **START},
    },
    "benchmark": {"enabled": False},
    "cluster": {"cpus": 1},
    "tracking": {"enabled": False},
}  # fmt: skip


SPANS = pytest.param("spans", ("graph", "stepwise"), marks=pytest.mark.exhaustive)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "names"), [SPANS, ("segments", ("graph",))])
def test_a_pretrained_network_begins_with_a_lower_loss(tmp_path: Path, target: str, names: tuple[str, ...]) -> None:
    text = tmp_path / "documents.txt"
    text.write_text("".join(f"{document}\n" for document, _ in documents("further", 0, 1500)), encoding="utf-8")
    values = {**CONFIG, "store": {"path": str(tmp_path / "store")}}
    values["pretraining"] = {**CONFIG["pretraining"], "monolingual": [str(text)], "target": target}
    values["systems"] = {name: system for name, system in CONFIG["systems"].items() if name.startswith(names)}
    path = tmp_path / "pretraining.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    config = load_config(path)
    plan = build_plan(config, Store(config.store.path))
    assert execute.run(config, plan, Store(config.store.path), config_file=str(path), in_process=True).failed == {}

    found = {step.name: step.directory for step in plan.steps if step.stage.name == "train"}
    losses = {name: validations(directory) for name, directory in found.items()}
    for name in names:
        assert len(losses[f"train:{name}-pretrained/pretraining"]) == 2
        assert losses[f"train:{name}-pretrained"][0] < losses[f"train:{name}"][0]
        assert losses[f"train:{name}-pretrained/pretraining"][1] < losses[f"train:{name}-pretrained/pretraining"][0]
    markdown = next((tmp_path / "store").glob("report/*/records/report.html")).read_text()
    assert "graph-pretrained/pretraining" in markdown


def validations(directory: Path) -> list[float]:
    report = json.loads((directory / "training.json").read_text())
    return [validation["loss"] for validation in report["validations"]]


ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = ("tracking.enabled=false", "corpus.train.embedded=5000", "corpus.test.demo.embedded=150", "benchmark.sentences=5")


def demo(store: Path, *settings: str) -> RunReport:
    config = load_config(ROOT / "configs/summarization.yaml", [f"store.path={store}", *SMALL, *settings])
    plan = build_plan(config, Store(config.store.path))
    return execute.run(config, plan, Store(config.store.path), config_file="demo-summarization.yaml", in_process=True)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_both_orders_learn_to_summarise(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = tmp_path / "store"
    assert demo(store, "defaults.training.updates=400", "evaluation.min_rouge=50").failed == {}
    results = json.loads(next(store.glob("report/*/results.json")).read_text())
    scores = {row["system"]: row["metrics"]["rougeL"]["score"] for row in results["rows"] if row["search"] == "greedy"}
    lead = results["lead_baselines"]["demo"]["scores"]["rougeL"]
    assert scores.keys() == {"autoregressive", "interleaved", "pretrained"}
    assert min(scores.values()) > max(50, lead + 15)
    assert scores["pretrained"] > scores["autoregressive"] + 10, "it has learnt to copy"
    markdown = next(store.glob("report/*/records/report.md")).read_text()
    assert "Sources truncated to 64 tokens: " in markdown

    for path in store.glob("decode/*/manifest.json"):
        manifest = json.loads(path.read_text())
        name, search = manifest["step"].split(":")[1].split("/")
        if search == "greedy":
            assert_translated_alike(store, name, path.parent, store / "corpus" / manifest["inputs"]["text"], caplog)


def assert_translated_alike(store: Path, name: str, decoded: Path, text: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Assert that the command writes the summaries of the pipeline, also for cut documents, and reports the number of these."""
    from stages.shared.decoding.sentences import read_sentences

    sources = [sentence.source for sentence in read_sentences(text)]
    written, given = store.parent / f"{name}.txt", store.parent / "documents.txt"
    given.write_text("".join(f"{source}\n" for source in sources))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "fewstep"):
        translated(system_directory(store, "latest", name), given, written, "greedy", batch=200)
    near_ties = json.loads((decoded / "decode.json").read_text())["near_ties"]
    assert near_ties["count"] == len(near_ties["first"])
    pairs = zip(written.read_text().splitlines(), (decoded / "hypotheses.txt").read_text().splitlines(), strict=True)
    assert {row for row, (one, other) in enumerate(pairs) if one != other} <= set(near_ties["first"])
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"lines 1 to {len(sources)}: cut ")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_network_that_learnt_nothing_fails_the_check(tmp_path: Path) -> None:
    failed = demo(tmp_path / "store", "defaults.training.updates=1", "systems.interleaved=null", "benchmark.enabled=false").failed
    assert list(failed) == ["report:run"]
    assert "ROUGE-L on test demo, expected at least 60" in str(failed["report:run"])
