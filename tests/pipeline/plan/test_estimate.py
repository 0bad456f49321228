"""The figures of `plan` before a run: trainings and GPU-hours, time and storage, and steps that a cluster can never hold."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.__main__ import main
from pipeline.config.load import load_config
from pipeline.config.schema import RunConfig
from pipeline.plan.demand import SUSTAINED_FLOPS, Demand, demands, summary, vocabulary_size
from pipeline.plan.estimate import Estimate, estimate, totals
from pipeline.plan.step import Plan
from pipeline.plan.wiring import build_plan
from pipeline.run import execute
from pipeline.run.ray_cluster import connection
from pipeline.store.artifacts import Store
from stages.workers import Resources
from tests.pipeline.plan.toy_plans import CONFIG

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


PAPERS = Path(__file__).resolve().parents[3] / "configs/papers"


def of(name: str) -> dict[str, Demand]:
    return {one.step: one for one in demands(load_config(PAPERS / f"{name}.yaml"))}


def test_the_arithmetic_of_a_transformer_is_six_operations_for_each_weight_and_token() -> None:
    encoder = 6 * (4 * 512**2 + 2 * 512 * 2048)
    decoder = 6 * (8 * 512**2 + 2 * 512 * 2048) + 32000 * 512
    found = of("wmt14-en-de-interleaved")["train:interleaved"]
    assert found.updates == 300_000
    assert found.flops == 300_000 * 25_000 * 6 * (encoder + decoder)
    assert found.gpu_hours == pytest.approx(found.flops / 30e12 / 3600)


def test_a_graph_counts_its_vertices_and_the_pass_of_glancing() -> None:
    found = of("wmt14-en-de-dag-ablations")
    encoder = 6 * (4 * 512**2 + 2 * 512 * 2048)
    rows = {name: one.flops / (300_000 * 65_536 * 6) - encoder for name, one in found.items()}
    assert rows["train:factor-16"] == pytest.approx(2 * rows["train:factor-8"])
    assert rows["train:factor-8"] == pytest.approx(4 / 3 * rows["train:sum-none"])


def test_slots_count_their_number_for_a_token_and_the_pass_of_glancing() -> None:
    found = of("wmt14-en-de-parallel")
    encoder = 6 * (4 * 512**2 + 2 * 512 * 2048)
    rows = {name: one.flops / (300_000 * 65_536 * 6) - encoder for name, one in found.items()}
    assert rows["train:cmlm"] == rows["train:nat"]
    assert rows["train:glat"] == pytest.approx(4 / 3 * rows["train:nat"])
    assert rows["train:ctc"] == pytest.approx(3 * rows["train:nat"])
    assert rows["train:ctc-glat"] == pytest.approx(2 * 4 / 3 * rows["train:nat"])


def test_the_paper_reports_as_many_gpu_hours_of_its_graphs() -> None:
    """Huang et al. (2022): 32 hours on 16 V100, from which the sustained speed of a GPU is taken."""
    assert of("wmt14-en-de-dag")["train:dag"].gpu_hours == pytest.approx(32 * 16, rel=0.4)


def test_pretraining_is_a_training_of_its_own() -> None:
    found = of("xsum-aggressive")
    first, then = found["train:verifier/pretraining"], found["train:verifier"]
    assert first.flops / first.updates == then.flops / then.updates
    assert list(found).index("train:verifier/pretraining") < list(found).index("train:verifier")


def test_every_network_of_an_ensemble_counts() -> None:
    one, three = of("wmt14-en-de-aggressive"), of("wmt14-en-de-aggressive-ensemble")
    assert three.keys() - one.keys() == {"train:teacher/2", "train:teacher/3"}
    assert "train:autoregressive" not in one  # the teacher under another name


def test_a_vocabulary_that_was_trained_elsewhere_counts_by_its_files(tmp_path: Path) -> None:
    def size(vocabulary: str, teacher: str = "{}") -> int:
        text = f"base: {SMALL}\nreplace: [vocabulary, teacher]\nvocabulary: {vocabulary}\nteacher: {teacher}\n"
        (tmp_path / "mine.yaml").write_text(text)
        return vocabulary_size(load_config(tmp_path / "mine.yaml"))

    (tmp_path / "config.json").write_text('{"model_type": "marian", "vocab_size": 50265}')
    (tmp_path / "vocabulary.json").write_text('{"joint": false, "source_size": 300, "target_size": 400}')
    (tmp_path / "dict.en.txt").write_text("a 3\nb 2\n")
    assert size("{size: 120}") == 120
    assert size("{use: teacher}", f"{{marian: {tmp_path}}}") == 50265
    assert size("{use: teacher}", f"{{bart: {tmp_path / 'none'}}}") == 0
    assert size(f"{{from: {tmp_path}}}") == 400
    assert size(f"{{source_pieces: spm.model, source_dictionary: {tmp_path / 'dict.en.txt'}}}") == 2
    fairseq = f"{{fairseq: a.pt, source_dictionary: {tmp_path / 'dict.en.txt'}, source_pieces: spm.model}}"
    assert size("{use: teacher}", fairseq) == 2


def test_the_summary_counts_and_adds() -> None:
    hour = SUSTAINED_FLOPS * 3600
    found = [Demand("train:a", 1000, 2 * hour), Demand("train:b", 500, hour)]
    assert summary(found, True) == "2 trainings to run, 1,500 updates, about 3 GPU-hours at 30 TFLOP/s"
    assert summary(found[:1], False) == "1 training to run, 1,000 updates"
    assert summary([], True) == ""


def test_plan_prints_the_demand_of_the_steps_that_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(SMALL), "--set", f"store.path={tmp_path}/store"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("; 2 trainings to run, 300 updates")
    gpus = ["--set", "cluster.resources.train.gpus=1"]
    assert main(["plan", str(SMALL), "--set", f"store.path={tmp_path}/store", *gpus, "--until", "train:teacher"]) == 0
    assert "; 1 training to run, 200 updates, about 0 GPU-hours" in capsys.readouterr().out
    assert main(["plan", str(SMALL), "--estimate", "--set", f"store.path={tmp_path}/store", *gpus]) == 0
    assert "2 trainings to run, 300 updates, about 0 GPU-hours at 30 TFLOP/s" in capsys.readouterr().out


class Machines:
    """A cluster of some nodes, without Ray."""

    def __init__(self, *nodes: dict[str, float]) -> None:
        self.nodes = {str(number): node for number, node in enumerate(nodes)}
        self.closed = False

    def close(self) -> None:
        self.closed = True


def write(folder: Path, **resources: dict[str, float]) -> Path:
    path = folder / "toy.yaml"
    values = {**CONFIG, "store": {"path": str(folder / "store")}, "cluster": {"resources": resources}}
    path.write_text(yaml.safe_dump(values))
    return path


def test_steps_are_named_by_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, train={"workers": 8, "gpus": 1, "cpus": 4}, decode={"gpus": 1})
    machines = Machines({"CPU": 16.0, "GPU": 4.0}, {"CPU": 64.0})
    monkeypatch.setattr(connection, "connect_ray", lambda cluster: machines)
    assert main(["plan", str(path), "--address", "head:6379"]) == 2
    shown = capsys.readouterr()
    assert "train:teacher" in shown.out  # the table comes first
    assert (
        "train:teacher, train:both, train:graph, train:student: cluster.resources.train: asks for 8 x 4 CPU + 1 GPU, the machines "
        "have"
    ) in shown.err
    assert "decode" not in shown.err
    assert machines.closed


def test_fewer_workers_are_enough_where_the_config_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, train={"workers": 8, "min_workers": 2, "gpus": 1, "cpus": 4})
    monkeypatch.setattr(connection, "connect_ray", lambda cluster: Machines({"CPU": 16.0, "GPU": 4.0}))
    assert main(["plan", str(path), "--address", "head:6379", "--estimate"]) == 0
    assert "the cluster at head:6379 can hold all of the" in capsys.readouterr().err


@pytest.mark.slow
def test_a_ray_cluster_without_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(write(tmp_path, train={"gpus": 1})), "--address", ""]) == 2
    assert "train:teacher, train:both, train:graph, train:student: cluster.resources.train: asks for 1 x" in capsys.readouterr().err
