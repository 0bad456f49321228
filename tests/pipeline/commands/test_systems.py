"""Commands on finished systems: a damaged one is refused for any file and family, and one is exported for CTranslate2."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
import yaml
from sentencepiece import SentencePieceProcessor

import fewstep
import stages.system
from fewstep.config.options import OutputLimits
from fewstep.families.dag.config import DagSearch
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.system.format import BundleError
from fewstep.system.integrity import seal
from fewstep.vocabulary import EOS, RESERVED
from models.bundle.directory import load_model, load_system
from models.stepwise.ctranslate2_model import ctranslate2
from pipeline.__main__ import main
from pipeline.commands.export import export_system
from pipeline.errors import ArtifactError, DataError, StageError
from pipeline.run.origins import provenance
from pipeline.run.run_directory import Run
from pipeline.store.marker import open_store
from stages.benchmark.peak_memory import peak_memory
from tests.pipeline.run.test_run_directory import artifact
from tests.pipeline.run_specs import plan_entry, run_spec
from tests.stages import test_dag_analysis, test_lattice_analysis, test_system
from tests.stages.steps import context_in
from tests.stages.test_dag_analysis import WORDS, make_system

FLIPS = 200
LINES = "ein haus am see\nder hund sieht die katze\n"


def stepwise(root: Path) -> Path:
    """Return an ensemble of two networks."""
    vocabulary = test_system.make_vocabulary(root / "vocabulary", test_system.WORDS)
    first, second = (
        test_system.make_trained(root / f"trained{seed}", "stepwise", test_system.NETWORK, vocabulary, seed) for seed in (3, 4)
    )
    inputs = stages.system.SystemInputs(first, vocabulary, members=(second,))
    stages.system.STAGE.run(inputs, test_system.CONFIG, context_in(root / "system"))
    return root / "system"


def dag(root: Path) -> Path:
    """Return a system with an n-gram model."""
    vocabulary = test_system.make_vocabulary(root / "vocabulary", test_system.WORDS)
    config = replace(test_system.CONFIG, family="dag", searches={"lookahead": DagSearch()})
    stages.system.STAGE.run(test_system.graph_parts(root, vocabulary), config, context_in(root / "system"))
    return root / "system"


def lattice(root: Path) -> Path:
    """Return a system with candidate tables."""
    return test_lattice_analysis.make_system(test_lattice_analysis.make_parts(root), root / "system").path


def aggressive(root: Path) -> Path:
    """Return a system with a verifier and another system that drafts."""
    _, inputs = test_system.make_drafting(root)
    config = test_system.config_of("aggressive", test_system.GAD)
    given = replace(inputs, companions={**inputs.companions, "drafter": inputs.companions["verifier"]})
    stages.system.STAGE.run(given, config, context_in(root / "both"))
    return root / "both"


FAMILIES: dict[str, tuple[Callable[[Path], Path], set[str]]] = {
    "stepwise": (stepwise, {"members/2/model.safetensors"}),
    "dag": (dag, {"ngram/model.ngram"}),
    "lattice": (lattice, {"tables/tables.bin"}),
    "aggressive": (aggressive, {"verifier/system.json", "drafter/system.json", "drafter/model.safetensors"}),
}


@pytest.fixture(scope="module", params=FAMILIES)
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    make, further = FAMILIES[request.param]
    directory = tmp_path_factory.mktemp("intact") / "system"
    shutil.copytree(make(tmp_path_factory.mktemp("made")), directory)
    assert further | {"system.json", "model.safetensors", "source.spm", "target.spm"} <= set(files(directory))
    return directory


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def flipped(content: bytes, seed: int = 0) -> bytes:
    changed = bytearray(content)
    for bit in random.Random(seed).sample(range(8 * len(content)), FLIPS):
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@contextmanager
def holding(path: Path, content: bytes | None) -> Iterator[None]:
    """Replace or remove the file, and restore it at the end."""
    kept = path.read_bytes()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(kept)


def translate(directory: Path, *options: str) -> int:
    source, output = directory.parent / "in", directory.parent / "out"
    source.write_text(LINES)
    output.unlink(missing_ok=True)
    command = ["translate", str(directory), "--input", str(source), "--output", str(output), "--device", "cpu", *options]
    code = main(command)
    assert output.exists() == (code == 0)
    return code


def test_flipped_bits_end_the_command(system: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert translate(system) == 0
    for name in files(system):
        with holding(system / name, flipped((system / name).read_bytes())):
            assert translate(system) == 1, name
            reported = capsys.readouterr().err
            assert str(system / name) in reported
            assert "damaged" in reported
            with pytest.raises(BundleError, match=name):
                load_system(system)
    assert translate(system) == 0


def test_what_is_cut_longer_or_missing_is_named(system: Path) -> None:
    for name in files(system):
        content = (system / name).read_bytes()
        for other in (content[:-2], b"", content + b"\0", None):
            with holding(system / name, other), pytest.raises(BundleError, match=f"{name.rpartition('/')[2]}"):
                load_system(system)


def test_swapped_files_are_refused(system: Path) -> None:
    contents = {name: (system / name).read_bytes() for name in files(system)}
    for one, other in combinations(contents, 2):
        if contents[one] != contents[other]:
            with holding(system / one, contents[other]), holding(system / other, contents[one]), pytest.raises(BundleError):
                load_system(system)


def test_no_verify_loads_anyway(system: Path) -> None:
    """One flipped bit of a weight, which only the checksum shows."""
    weights = next(name for name in ("drafter/model.safetensors", "model.safetensors") if (system / name).is_file())
    content = bytearray((system / weights).read_bytes())
    content[-4] ^= 1
    with holding(system / weights, bytes(content)):
        with pytest.raises(
            BundleError, match=rf"{weights}: expected crc32 [0-9a-f]{{8}}, got crc32 [0-9a-f]{{8}}; .*copy the directory"
        ):
            load_system(system)
        assert translate(system) == 1
        assert translate(system, "--no-verify") == 0
        assert len(load_system(system, verify=False).translate(LINES.splitlines())) == 2


def test_a_damaged_training_is_refused(tmp_path: Path) -> None:
    test_dag_analysis.make_system(tmp_path)
    trained = tmp_path / "trained"
    for name in ("model.json", "model.safetensors"):
        with holding(trained / name, flipped((trained / name).read_bytes())), pytest.raises(BundleError, match=name):
            load_model(trained)
    kept = "kept/50.safetensors"
    whole = (trained / kept).read_bytes()
    with holding(trained / kept, whole[:-4] + bytes([whole[-4] ^ 1]) + whole[-3:]):  # the last bit of a weight
        load_model(trained)
        load_model(trained, weights=kept, verify=False)
        with pytest.raises(BundleError, match=f"{kept}: expected crc32"):
            load_model(trained, weights=kept)
    shutil.copyfile(trained / kept, trained / "kept" / "60.safetensors")
    with pytest.raises(BundleError, match=r"60.safetensors: expected one of the described files \(kept/50.safetensors, model"):
        load_model(trained, weights="kept/60.safetensors")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_system(tmp_path_factory.mktemp("stepwise"), "stepwise").path


def lines() -> list[str]:
    draw = random.Random(3)
    return [" ".join(draw.choices(WORDS, k=draw.randrange(1, 7))) for _ in range(20)]


@pytest.mark.parametrize(("precision", "least"), [("float32", 19), ("int8", 1)])
def test_the_export_translates_as_the_system_does(exported: Path, tmp_path: Path, precision: str, least: int) -> None:
    output = tmp_path / "out"
    export_system(exported, output, "ctranslate2", precision)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    source, target = (SentencePieceProcessor(model_file=str(output / name)) for name in ("source.spm", "target.spm"))
    translator = ctranslate2().Translator(str(output), inter_threads=1, intra_threads=1)
    found = translator.translate_batch(
        source.encode(lines(), out_type=str),
        beam_size=1,
        max_decoding_length=9,
        suppress_sequences=[[piece] for id_, piece in enumerate(RESERVED) if id_ != EOS],  # which untrained networks may write
    )
    expected = load_system(exported).translate(lines(), StepwiseSearch(output_limits=OutputLimits(max_tokens=9)))
    same = [target.decode(one.hypotheses[0]) == text for one, text in zip(found, expected, strict=True)]
    assert sum(same) >= least


def test_a_warning_names_the_files_whose_licence_is_unknown(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    made = artifact(store, "system", "b", inputs="a")
    shutil.copytree(exported, made, dirs_exist_ok=True)
    for licence, warning in (("CC-BY-4.0", ""), ("unknown", "warning: it was made from files whose licence is unknown: europarl")):
        shutil.rmtree(store / "corpus", ignore_errors=True)
        artifact(store, "corpus", "a", europarl=licence)
        assert main(["export", str(made), "--to", str(tmp_path / licence), "--format", "ctranslate2"]) == 0
        shown = capsys.readouterr().err
        assert shown.startswith(warning)
        assert bool(shown) == bool(warning)
    shutil.rmtree(store / "corpus")
    assert main(["export", str(made), "--to", str(tmp_path / "again"), "--format", "ctranslate2"]) == 0
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


def test_what_cannot_be_exported(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(DataError, match="which exists"):
        export_system(exported, tmp_path / "there", "ctranslate2")
    with pytest.raises(DataError, match="expected a single autoregressive network"):
        export_system(make_system(tmp_path, "dag").path, tmp_path / "out", "ctranslate2")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in exported.iterdir():
        (damaged / path.name).write_bytes(path.read_bytes()[:-9] if path.name == "model.safetensors" else path.read_bytes())
    with pytest.raises(ArtifactError, match="damaged"):
        export_system(damaged, tmp_path / "out", "ctranslate2")
    weights = bytearray((exported / "model.safetensors").read_bytes())
    weights[-4] ^= 1
    (damaged / "model.safetensors").write_bytes(weights)
    with pytest.raises(ArtifactError, match=r"model.safetensors: expected crc32"):
        export_system(damaged, tmp_path / "out", "ctranslate2")
    export_system(damaged, tmp_path / "anyway", "ctranslate2", verify=False)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(StageError, match=r"pip install ctranslate2"):
        export_system(exported, tmp_path / "out", "ctranslate2")
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("dangling", "which exists"),
        ("loop", "which exists"),
        ("file", "which exists"),
        ("new/..", "which is no name of a directory"),
        ("https://host/x", "which is no name of a directory"),
        ("a\udcff", "expected a path in UTF-8, got the byte 0xff"),
        ("store/x", r"which is in the store .*store, whose files `fewstep gc` removes"),
        ("store/train/" + 32 * "a", r"which is in the store .*store, whose files `fewstep gc` removes"),
    ],
)
def test_a_system_is_exported_into_a_new_directory_alone(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dangling").symlink_to("nowhere")
    Path("loop").symlink_to("loop")
    Path("file").touch()
    open_store(Path("store"))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match=problem):
        export_system(exported, Path(name), "ctranslate2")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_foreign_directory_with_other_records_is_exported(exported: Path, tmp_path: Path) -> None:
    """The origins in `system.json`, and a manifest beside it, may have any values."""
    foreign = tmp_path / "foreign/system/x"
    shutil.copytree(exported, foreign)
    description = json.loads((foreign / "system.json").read_text())
    (foreign / "manifest.json").write_text('{"inputs": {"a": 5}, "origin": [{"name": "x"}, 5]}')
    for origin in ({}, {"kind": [], "name": None, "files": [], "licence": []}, {"files": {"f": 1}, "licence": {}}):
        (foreign / "system.json").write_text(json.dumps(seal({**description, "origin": origin})))
        found = provenance(foreign)
        assert all(isinstance(value, str) for file in found.files for value in file.values())
        assert not found.complete
    (foreign / "manifest.json").write_text('{"inputs": {}, "origin": [{"name": "x"}]}')
    assert provenance(foreign).unlicensed == ["unknown"]


@pytest.fixture(scope="module")
def shared(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that was exported from a store with a run that scored and timed the system."""
    store, output = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("shared") / "out"
    made = artifact(store, "system", "b", inputs="a")
    shutil.copytree(exported, made, dirs_exist_ok=True)
    artifact(store, "corpus", "a", **{"https://example.org/a|b": "CC-BY-4.0"})
    scores = artifact(store, "score", "c")
    (scores / "scores.json").write_text('{"bleu": {"score": 31.416, "signature": "nrefs:1|tok:13a"}}')
    timed = artifact(store, "benchmark", "d") / "records"
    timed.mkdir()
    figures = {"latency_ms": {"median": 2.5, "p95": 7.0}, "sentences_per_second": {"median": 99.0}, "memory_mib": {"peak": 42.0}}
    machine = {"threads": 1, "device": "cpu", "cpu": "Some CPU"}
    record = {"environment": machine, "entries": {"mine/greedy": figures, "other/greedy": figures}}
    (timed / "benchmark.json").write_text(json.dumps(record))
    steps = {"system:mine": "b", "score:mine/greedy:news": "c", "benchmark:news": "d"}
    plan = [plan_entry(step, fingerprint=32 * digit) for step, digit in steps.items()]
    Run(store / "runs/demo-1").create(run_spec(*plan, config={"tracking": {}}, store=str(store)))
    export_system(made, output)
    return output


def test_a_shared_system_has_a_card_with_data_scores_and_speed(shared: Path, exported: Path) -> None:
    text = (shared / "README.md").read_text()
    _, front, card = text.split("---\n", 2)
    assert yaml.safe_load(front) == {
        "language": ["en", "de"], "library_name": "fewstep", "pipeline_tag": "translation", "tags": ["fewstep", "stepwise"],
    }  # fmt: skip
    assert "| https://example.org/a&#124;b | CC-BY-4.0 |" in card
    assert "| news | greedy | 31.42 |" in card
    assert "- bleu: `nrefs:1&#124;tok:13a`" in card
    assert "| greedy | 2.50 | 7.00 | 99.0 | 42 |" in card
    assert "other" not in card
    assert "1 threads of Some CPU" in card
    (wheel,) = (shared / "wheels").iterdir()
    assert f"pip install ./wheels/{wheel.name}" in card
    assert fewstep.load(shared).translate(lines()) == fewstep.load(exported).translate(lines())


def test_mlflow_loads_a_shared_system_from_wherever_it_lies(shared: Path, exported: Path, tmp_path: Path) -> None:
    import mlflow
    from pandas import DataFrame

    copied = Path(shutil.copytree(shared, tmp_path / "elsewhere"))
    written = (copied / "MLmodel").read_text()
    assert str(shared) not in written
    assert str(Path.cwd()) not in written, "it names no folder of the author"
    assert not [name for name in files(copied) if name.startswith("artifacts")], "weights are there once"
    model = mlflow.pyfunc.load_model(str(copied))
    assert model.predict(DataFrame({"source": lines()})) == fewstep.load(exported).translate(lines())
    (copied / "model.safetensors").unlink()
    with pytest.raises(BundleError, match=r"elsewhere/\.?/?model\.safetensors"):
        mlflow.pyfunc.load_model(str(copied))


def test_a_shared_system_is_shared_again_without_its_run(shared: Path, tmp_path: Path) -> None:
    export_system(shared, tmp_path / "again")
    assert sorted(files(tmp_path / "again")) == sorted(files(shared))
    card = (tmp_path / "again/README.md").read_text()
    assert "None are on record here" in card
    assert "lacked the manifests" in card


def test_the_memory_of_a_system_is_measured_in_another_process(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = peak_memory(exported, {"strategy": "greedy"}, lines(), "cpu", 1)
    assert 0 < found["loaded"] <= found["peak"] < 500
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(StageError, match="expected a measurement of the memory of"):
        peak_memory(tmp_path, {}, [], "cpu", 1)
