"""Tests of estimates from the records of finished steps."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.__main__ import main
from pipeline.config.load import load_config
from pipeline.config.schema import RunConfig
from pipeline.plan.estimate import Estimate, estimate, totals
from pipeline.plan.step import Plan
from pipeline.plan.wiring import build_plan
from pipeline.run import execute
from pipeline.store.artifacts import Store
from stages.workers import Resources

SMALL = Path(__file__).resolve().parents[2] / "end_to_end/small.yaml"
SECONDS = 10.0

Planned = Callable[..., tuple[RunConfig, Plan]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Return a store with text and tokens of 1,500 pairs whose manifests state ten seconds for each step."""
    store = Store(tmp_path_factory.mktemp("estimate") / "store")
    config, plan = planned(store)
    assert execute.run(config, plan.until("encode:raw"), store, config_file="small.yaml", in_process=True).failed == {}
    for path in store.root.glob("*/*/records/progress.json"):
        path.unlink()
    for path in store.root.glob("*/*/manifest.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": SECONDS}))
    return store


def planned(store: Store, *changes: str) -> tuple[RunConfig, Plan]:
    config = load_config(SMALL, [f"store.path={store.root}", *changes])
    return config, build_plan(config, store)


def estimates(store: Store, *changes: str, **asked: Resources) -> dict[str, Estimate]:
    return {one.step.name: one for one in estimate(planned(store, *changes)[1], store, asked)}


def test_finished_steps_take_no_time(store: Store) -> None:
    found = estimates(store)
    text = found["corpus:train"]
    assert (text.hit, text.seconds, text.bytes) == (True, 0.0, 0)
    assert text.rows == found["encode:raw"].rows


def test_time_and_storage_grow_with_the_text(store: Store) -> None:
    before, grown = estimates(store), estimates(store, "corpus.train.embedded=6000")
    for step in ("corpus:train", "encode:raw"):
        one = grown[step]
        assert not one.hit
        assert one.seconds == pytest.approx(4 * SECONDS, rel=0.01)
        assert one.rows == pytest.approx(4 * (before[step].rows or 0), rel=0.01)
        on_disk = sum(
            file["bytes"] for file in json.loads((before[step].step.directory / "manifest.json").read_text())["files"].values()
        )
        assert one.bytes == pytest.approx(4 * on_disk, rel=0.01)
    assert grown["vocabulary:joint"].seconds == pytest.approx(4 * SECONDS, rel=0.01)
    assert grown["vocabulary:joint"].bytes < 100_000  # the size of a model is not that of its text


def test_stated_workers_shorten_stages_that_distribute_their_work(store: Store) -> None:
    grown = estimates(store, "corpus.train.embedded=6000", encode=Resources(workers=8), vocabulary=Resources(workers=8))
    alone = json.loads((estimates(store)["encode:raw"].step.directory / "manifest.json").read_text())["environment"]
    times = 8 / alone["workers"]
    assert grown["encode:raw"].seconds == pytest.approx(4 * SECONDS / times, rel=0.01)
    assert grown["vocabulary:joint"].seconds == pytest.approx(4 * SECONDS, rel=0.01)


def made_up(store: Store, stage: str, config: dict[str, Any], seconds: float, progress: dict[str, Any] | None = None) -> None:
    directory = store.root / stage / f"{stage}made"
    (directory / "records").mkdir(parents=True)
    manifest = {
        "schema": 1, "stage": stage, "version": 1, "step": f"{stage}:other", "fingerprint": directory.name, "config": config,
        "inputs": {}, "environment": {"workers": 1, "cpus": 1.0}, "files": {}, "records": [], "code_digest": "",
        "git_revision": "", "run_id": "other-1", "attempt": "x", "seconds": seconds, "finished": 0.0,
    }  # fmt: skip
    (directory / "manifest.json").write_text(json.dumps(manifest))
    if progress is not None:
        (directory / "records/progress.json").write_text(json.dumps({"unit": "updates", "attempt": "x", **progress}))


def test_a_training_is_measured_by_updates_times_tokens_at_its_own_rate(store: Store) -> None:
    assert totals(list(estimates(store).values())).unknown[0] == "train:teacher"
    recipe = {"training": {"updates": 100, "batch_tokens": 2048}}
    progress = {"done": 100, "total": 100, "time": 60.0, "first_done": 80, "first_time": 50.0}  # 20 updates in 10 s, then the end
    made_up(store, "train", recipe, 11.0, progress)
    found = estimates(store, "defaults.training.updates=400")["train:teacher"]  # of 1024 tokens
    assert found.seconds == pytest.approx(100 * 0.5 * 2)
    assert found.basis == "train:other of other-1 x 2"


def test_totals_are_sums_and_the_longest_chain(store: Store) -> None:
    found = list(estimates(store, "corpus.train.embedded=6000").values())
    sums = totals(found)
    assert sums.seconds == pytest.approx(sum(one.seconds or 0 for one in found))
    by_name = {one.step.name: one.seconds or 0.0 for one in found}
    assert by_name["corpus:train"] + by_name["vocabulary:joint"] <= sums.longest <= sums.seconds
    assert "system:autoregressive" in sums.unknown


def test_the_command_prints_estimates(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(SMALL), "--estimate", "--set", f"store.path={store.root}", "--set", "corpus.train.embedded=6000"]) == 0
    out = capsys.readouterr().out
    line = next(line for line in out.splitlines() if line.startswith("corpus:train"))
    assert line.split()[1:4] == ["MISS", "6,000", "40s"] or "40s" in line
    assert "one after the other" in out
    assert "not estimated, since" in out
