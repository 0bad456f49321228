"""A finished system exported for CTranslate2."""

import random
import sys
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor

from fewstep.config.options import OutputLimits
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.vocabulary import EOS, RESERVED
from models.bundle.directory import load_system
from models.stepwise.engines.ctranslate2_model import ctranslate2
from pipeline.commands.export import export_system
from pipeline.errors import ArtifactError, DataError, StageError
from stages.benchmark.peak_memory import peak_memory
from tests.stages.dag_analysis.test_dag_analysis import WORDS, make_system


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
    with pytest.raises(StageError, match=r"pip install 'fewstep\[ctranslate2\]'"):
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
