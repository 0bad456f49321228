"""Origins of inputs that were made elsewhere."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pipeline.plan.fingerprint import canonical
from pipeline.plan.step import Step
from pipeline.run.origins import origins, provenance
from pipeline.store.artifacts import Store
from pipeline.store.manifest import Manifest
from stages.artifacts import ExternalFile


@dataclass(frozen=True)
class Inputs:
    text: tuple[ExternalFile, ...]


def step(*files: ExternalFile) -> Step:
    return cast(Step, SimpleNamespace(inputs=Inputs(files)))


def test_downloaded_files_and_those_of_imported_networks_are_listed(tmp_path: Path) -> None:
    local, remote = ExternalFile(Path("a"), "1"), ExternalFile(Path("b"), "2", origin="sacrebleu:wmt14/full")
    assert origins(step(local), tmp_path) == []
    listed = {"name": "text.1", "from": "sacrebleu:wmt14/full", "sha256": "2", "licence": "unknown"}
    assert origins(step(local, remote), tmp_path) == [listed]
    origin: dict[str, Any] = {"kind": "marian", "name": "opus-mt-en-de", "files": {"vocab.json": "3"}, "licence": "apache-2.0"}
    (tmp_path / "system.json").write_text(json.dumps({"origin": origin}))
    found = origins(step(local), tmp_path)
    assert found == [{"name": "vocab.json", "from": "marian:opus-mt-en-de", "sha256": "3", "licence": "apache-2.0"}]


def test_licences_that_are_stated_are_listed_with_the_files_of_this_machine(tmp_path: Path) -> None:
    own, remote = ExternalFile(Path("d/a.en"), "1", licence="CC0"), ExternalFile(Path("b"), "2", origin="hf:x", licence="MIT")
    assert [(file["from"], file["licence"]) for file in origins(step(own, remote), tmp_path)] == [("a.en", "CC0"), ("hf:x", "MIT")]
    assert canonical(Inputs((own,))) == canonical(Inputs((ExternalFile(Path("a"), "1"),)))


def artifact(store: Path, stage: str, digit: str, inputs: str = "", **origin: str) -> Path:
    """Write the manifest of an artifact that was made from those of other digits, and from files with these licences."""
    directory = store / stage / (32 * digit)
    directory.mkdir(parents=True)
    files = [{"name": "text", "from": name, "sha256": "1", "licence": licence} for name, licence in origin.items()]
    named = {f"input{other}": 32 * other for other in inputs} | {"text.digest": 64 * "1", "text.member": "a.en"}
    (directory / "manifest.json").write_text(json.dumps({"inputs": named, "origin": files}))
    return directory


def test_unknown_licences_are_found_in_all_steps_before_a_system(tmp_path: Path) -> None:
    artifact(tmp_path, "corpus", "a", europarl="unknown", news="CC0")
    artifact(tmp_path, "corpus", "b", wmt14="unknown")  # of a test set, from which no system is made
    artifact(tmp_path, "encode", "c", inputs="a")
    artifact(tmp_path, "train", "d", inputs="c")
    system = artifact(tmp_path, "system", "e", inputs="dc")
    assert provenance(system) == (["europarl"], True)
    origin = {"kind": "fairseq", "name": "model.pt", "files": {"model.pt": "3", "dict": "4"}, "licence": "unknown"}
    (system / "system.json").write_text(json.dumps({"origin": origin}))
    assert provenance(system) == (["europarl", "fairseq:model.pt"], True)
    licensed = artifact(tmp_path, "system", "f", inputs="a0")
    assert provenance(licensed) == (["europarl"], False), "a step that the store has deleted"
    copied = tmp_path / "elsewhere/deep/copy"
    copied.mkdir(parents=True)
    (copied / "system.json").write_text(json.dumps({"origin": origin}))
    assert provenance(copied) == (["fairseq:model.pt"], False)


def test_an_origin_is_no_part_of_fingerprints() -> None:
    named, plain = (Inputs((ExternalFile(Path("a"), "1", origin=origin),)) for origin in ("https://example.org/a", ""))
    assert canonical(named) == canonical(plain)
    assert named == plain


def test_manifests_of_earlier_versions_state_no_origin(tmp_path: Path) -> None:
    store = Store(tmp_path)
    artifact = tmp_path / "corpus/0"
    artifact.mkdir(parents=True)
    manifest = asdict(
        Manifest(
            stage="corpus",
            version=1,
            step="corpus:train",
            fingerprint="0",
            config={},
            inputs={},
            environment={},
            code_digest="",
            git_revision="",
            run_id="",
            attempt="",
            seconds=1.0,
            finished=1.0,
        )
    )
    del manifest["origin"]
    (artifact / "manifest.json").write_text(json.dumps(manifest))
    found = store.manifest(artifact)
    assert found is not None
    assert found.origin == []
