"""Summarization from text to report: it is learnt, scored by ROUGE, and the pipeline and `translate` write the same."""

import json
import logging
from pathlib import Path

import pytest

from pipeline.commands.translate import system_directory
from pipeline.config.load import load_config
from pipeline.plan.wiring import build_plan
from pipeline.run import execute
from pipeline.run.execute import RunReport
from pipeline.store.artifacts import Store
from tests.translating import translated

pytestmark = [pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = ("tracking.enabled=false", "corpus.train.embedded=5000", "corpus.test.demo.embedded=150", "benchmark.sentences=5")


def demo(store: Path, *settings: str) -> RunReport:
    config = load_config(ROOT / "configs/summarization.yaml", [f"store.path={store}", *SMALL, *settings])
    plan = build_plan(config, Store(config.store.path))
    return execute.run(config, plan, Store(config.store.path), config_file="demo-summarization.yaml", in_process=True)


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


@pytest.mark.exhaustive
def test_a_network_that_learnt_nothing_fails_the_check(tmp_path: Path) -> None:
    failed = demo(tmp_path / "store", "defaults.training.updates=1", "systems.interleaved=null", "benchmark.enabled=false").failed
    assert list(failed) == ["report:run"]
    assert "ROUGE-L on test demo, expected at least 60" in str(failed["report:run"])
