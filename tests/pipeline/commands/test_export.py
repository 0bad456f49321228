"""A finished system exported for CTranslate2."""

import random
import shutil
import sys
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor

from fewstep.config.options import OutputLimits
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.vocabulary import EOS, RESERVED
from models.bundle.directory import load_system
from models.stepwise.ctranslate2_model import ctranslate2
from pipeline.__main__ import main
from pipeline.commands.export import export_system
from pipeline.errors import ArtifactError, DataError, StageError
from pipeline.run.run_directory import Run
from stages.benchmark.peak_memory import peak_memory
from tests.pipeline.run.test_origins import artifact
from tests.pipeline.run_specs import plan_entry, run_spec
from tests.stages.test_dag_analysis import WORDS, make_system


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_system(tmp_path_factory.mktemp("stepwise"), "stepwise").path


def lines() -> list[str]:
    draw = random.Random(3)
    return [" ".join(draw.choices(WORDS, k=draw.randrange(1, 7))) for _ in range(20)]


@pytest.mark.parametrize(("precision", "least"), [("float32", 19), ("int8", 1)])
def test_the_export_translates_as_the_system_does(system: Path, tmp_path: Path, precision: str, least: int) -> None:
    output = tmp_path / "out"
    export_system(system, output, precision)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    source, target = (SentencePieceProcessor(model_file=str(output / name)) for name in ("source.spm", "target.spm"))
    translator = ctranslate2().Translator(str(output), inter_threads=1, intra_threads=1)
    found = translator.translate_batch(
        source.encode(lines(), out_type=str),
        beam_size=1,
        max_decoding_length=9,
        suppress_sequences=[[piece] for id_, piece in enumerate(RESERVED) if id_ != EOS],  # which untrained networks may write
    )
    expected = load_system(system).translate(lines(), StepwiseSearch(output_limits=OutputLimits(max_tokens=9)))
    same = [target.decode(one.hypotheses[0]) == text for one, text in zip(found, expected, strict=True)]
    assert sum(same) >= least


def test_a_warning_names_the_files_whose_licence_is_unknown(
    system: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    made = artifact(store, "system", "b", inputs="a")
    shutil.copytree(system, made, dirs_exist_ok=True)
    for licence, warning in (("CC-BY-4.0", ""), ("unknown", "warning: it was made from files whose licence is unknown: europarl")):
        shutil.rmtree(store / "corpus", ignore_errors=True)
        artifact(store, "corpus", "a", europarl=licence)
        assert main(["export", str(made), "--output", str(tmp_path / licence)]) == 0
        shown = capsys.readouterr().err
        assert shown.startswith(warning)
        assert bool(shown) == bool(warning)
    shutil.rmtree(store / "corpus")
    assert main(["export", str(made), "--output", str(tmp_path / "again")]) == 0
    assert capsys.readouterr().err.startswith("warning: the store does not have the manifests of all steps that made it")


def test_publication_warns_of_the_finished_systems_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.commands.publish.publish_run", lambda path, settings: "a server")
    artifact(tmp_path, "corpus", "a", **dict.fromkeys("bcdefgh", "unknown"))
    artifact(tmp_path, "system", "b", inputs="a")
    run = Run(tmp_path / "runs/demo-1")
    plan = [plan_entry(f"system:{one}", fingerprint=32 * one) for one in "bc"]
    run.create(run_spec(*plan, config={"tracking": {}}, store=str(tmp_path)))
    assert main(["publish", "demo-1", "--store", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert shown.out == "published to a server\n"
    assert "licence is unknown: b, c, d, e, f and 2 more; find out the terms" in shown.err


def test_what_cannot_be_exported(system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(DataError, match="which exists"):
        export_system(system, tmp_path / "there", "float32")
    with pytest.raises(DataError, match="expected a single autoregressive network"):
        export_system(make_system(tmp_path, "dag").path, tmp_path / "out", "float32")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in system.iterdir():
        (damaged / path.name).write_bytes(path.read_bytes()[:-9] if path.name == "model.safetensors" else path.read_bytes())
    with pytest.raises(ArtifactError, match="damaged"):
        export_system(damaged, tmp_path / "out", "float32")
    weights = bytearray((system / "model.safetensors").read_bytes())
    weights[-4] ^= 1
    (damaged / "model.safetensors").write_bytes(weights)
    with pytest.raises(ArtifactError, match=r"model.safetensors: expected crc32"):
        export_system(damaged, tmp_path / "out", "float32")
    export_system(damaged, tmp_path / "anyway", "float32", verify=False)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(StageError, match=r"pip install ctranslate2"):
        export_system(system, tmp_path / "out", "float32")
    assert not list(tmp_path.glob("out*"))


def test_the_memory_of_a_system_is_measured_in_another_process(
    system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = peak_memory(system, {"strategy": "greedy"}, lines(), "cpu", 1)
    assert 0 < found["loaded"] <= found["peak"] < 500
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(StageError, match="expected a measurement of the memory of"):
        peak_memory(tmp_path, {}, [], "cpu", 1)
