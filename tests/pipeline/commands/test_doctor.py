"""`fewstep doctor` finds broken parts, names the remedy and does not print secrets."""

import os
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import yaml

from fewstep.native import fewstep_native
from pipeline.__main__ import main
from pipeline.commands import doctor
from pipeline.commands.doctor import Check, examine


def checks(config: Path | None = None, store: Path | None = None, *, verify: bool = False) -> dict[str, Check]:
    return {check.name: check for check in examine(config, store, verify=verify, in_process=True)}


def test_a_sound_machine_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--in-process", "--store", str(tmp_path / "new/store")]) == 0
    out = capsys.readouterr().out
    missing = f"; not compiled: {', '.join(fewstep_native.MISSING)} (make LEVELS=all)" if fewstep_native.MISSING else ""
    for line in (
        f"ok    torch: {metadata.version('torch')}",
        "ok    kernels: importable here, from ",
        "; extension of ABI ",
        f"; level {fewstep_native.LEVEL} of {', '.join(fewstep_native.LEVELS)}{missing}\n",
        "ok    disk: ",
        "ok    gpu: ",
    ):
        assert line in out
    assert "ray token" not in out
    assert not (tmp_path / "new").exists()


def test_what_is_missing_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = metadata.version

    def version(name: str) -> str:
        if name in ("sacrebleu", "ray"):
            raise metadata.PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setitem(sys.modules, "fewstep_native", None)
    monkeypatch.delitem(sys.modules, "fewstep.native", raising=False)
    found = checks()
    assert found["sacrebleu"] == ("sacrebleu", "FAIL", "not installed: pip install -c constraints.txt sacrebleu")
    assert found["ray"].verdict == "warn"  # not needed in one process
    assert found["kernels"].verdict == "FAIL"
    assert found["kernels"].text.startswith("cannot be imported here: fewstep: expected the compiled extension fewstep_native, got")
    assert "build it with `make`" in found["kernels"].text
    assert main(["doctor", "--in-process"]) == 1


def test_a_config_and_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("a\n")
    config = tmp_path / "c.yaml"
    files = f"{{source: {tmp_path}/a.en, target: {tmp_path}/a.de}}"
    config.write_text(
        f"corpus:\n  train: {files}\n  validation: {{embedded: 1}}\n  test: {{x: {{embedded: 1}}}}\nstore: {{path: {tmp_path}/s}}\n"
    )
    found = checks(config)
    assert found["text train"] == ("text train", "FAIL", f"expected readable files, got none at {tmp_path}/a.de")
    assert "text x" not in found
    assert found["disk"].text.endswith(f"free at {tmp_path}/s")
    config.write_text("corups: {}\nname: 3\ncorpus: {train: {embedded: 9}}\n")
    assert checks(config)["config"].verdict == "FAIL"
    assert checks(config)["config"].text.count("\n") == 1


def test_a_mirror_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.store.streams.PAUSE_SECONDS", 0.0)
    config = tmp_path / "a.yaml"
    config.write_text(f"corpus: {{train: {{embedded: 9}}}}\nstore: {{mirror: 'file://{tmp_path}/mirror'}}\n")
    assert checks(config, tmp_path)["mirror"] == ("mirror", "ok", f"file://{tmp_path}/mirror answers")
    (tmp_path / "mirror").write_text("a file where a folder should be")
    found = checks(config, tmp_path)["mirror"]
    assert found.verdict == "FAIL"
    assert f"file://{tmp_path}/mirror/fewstep: could not be reached" in found.text


def test_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        free: int

    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(3 * 2**29 if path == tmp_path else 0))
    assert checks(store=tmp_path / "a/b")["disk"] == ("disk", "ok", f"1.5 GiB free at {tmp_path}/a/b")
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(2**29))
    assert checks(store=tmp_path)["disk"].verdict == "warn"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert checks(store=tmp_path)["disk"] == ("disk", "FAIL", f"{tmp_path} is not writable; name another directory in store.path")


def test_verify_reports_each_altered_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        (tmp_path / "corpus/1", None),
        (tmp_path / "train/2", f"{tmp_path}/train/2/model: altered"),
        (tmp_path / "train/3", "odd"),
    ]
    monkeypatch.setattr("pipeline.store.artifacts.Store.verify_all", lambda self: iter(found if self.root == tmp_path else []))
    problems = [check for check in examine(None, tmp_path, verify=True, in_process=True) if check.name == "artifact"]
    assert [(c.verdict, c.text) for c in problems] == [
        ("FAIL", f"{tmp_path}/train/2/model: altered"),
        ("FAIL", f"{tmp_path}/train/3: odd"),
    ]
    assert checks(store=tmp_path, verify=True)["artifacts"] == ("artifacts", "ok", f"3 hashed in {tmp_path}")
    assert main(["doctor", "--in-process", "--verify", "--store", str(tmp_path)]) == 1


def test_the_token_is_found_but_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert doctor._token().verdict == "ok"  # a local cluster makes one
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert doctor._token().verdict == "warn"
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("hush")
    assert doctor._token() == ("ray token", "ok", f"found in {tmp_path}/.ray/auth_token; RAY_AUTH_MODE is not set")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "hush")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert doctor._token() == ("ray token", "ok", "found in RAY_AUTH_TOKEN; RAY_AUTH_MODE is token")


@pytest.mark.ray
@pytest.mark.slow
def test_ray_imports_the_kernels() -> None:
    found = {check.name: check for check in doctor._ray("")}
    assert found["ray"].verdict == "ok"
    package = Path(doctor.__file__).resolve().parents[2] / "fewstep"
    here = rf"importable in a Ray task on node \w+, from {re.escape(str(package))}; extension of ABI \d+ in .*; level .* of "
    assert re.match(here, found["kernels on ray"].text)


def test_an_older_extension_is_distinguished_from_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    older = ModuleType("fewstep_native")
    older.ABI = 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fewstep_native", older)
    monkeypatch.delitem(sys.modules, "fewstep.native", raising=False)
    found = doctor._kernels()
    assert found.verdict == "FAIL"
    assert "got ABI 0" in found.text
    assert "build it with `make`" in found.text


def test_the_program_of_a_teacher_is_looked_for(tmp_path: Path) -> None:
    script = tmp_path / "translate.sh"
    script.write_text("#!/bin/sh\ncat\n")
    config = tmp_path / "command.yaml"

    def program(command: str, *files: Path) -> Check:
        teacher = {"command": [command, "-c", "decoder.yml"], "version": "1", "files": [str(file) for file in files]}
        systems = {"student": {"data": "distilled"}}
        config.write_text(yaml.safe_dump({"teacher": teacher, "systems": systems, "corpus": {"train": {"embedded": 50}}}))
        return checks(config, tmp_path / "store")["program"]

    assert program("sh") == ("program", "ok", f"teacher.command: sh is {shutil.which('sh')} here")
    missing = program("marian-decoder-of-nobody")
    assert missing.verdict == "FAIL"
    assert "expected the program marian-decoder-of-nobody here, got none; install it" in missing.text
    assert program("./translate.sh", script).verdict == "FAIL"  # it may not be executed
    script.chmod(0o755)
    assert program("./translate.sh", script).verdict == "ok"
    assert program("./translate.sh").verdict == "FAIL"  # it is not linked into the working directory
