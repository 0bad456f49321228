"""Tests of the trainings, updates and GPU-hours that a config asks for."""

from pathlib import Path

import pytest

from pipeline.__main__ import main
from pipeline.config.load import load_config
from pipeline.plan.demand import SUSTAINED_FLOPS, Demand, demands, summary, vocabulary_size

SMALL = Path(__file__).resolve().parents[2] / "end_to_end/small.yaml"
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
