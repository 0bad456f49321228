"""Commands with names that are not UTF-8, and with files that this user may not read: one line with the place and the remedy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ray
import yaml

from pipeline.__main__ import main
from pipeline.config.texts import Walk, matching
from pipeline.run.ray_cluster.machines import start_local
from pipeline.run.run_directory import Run
from pipeline.store.artifacts import Store
from pipeline.store.marker import MARKER, open_store
from stages.errors import DataError, StageError
from tests.pipeline.plan.toy_plans import CONFIG
from tests.pipeline.run_specs import plan_entry, run_spec
from tests.unprivileged import unprivileged

ODD = os.fsdecode(b"b\xff")
ROOT = Path(__file__).parents[2]


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1, shown
    return shown.strip()


def text(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("".join(f"{number} is a number\n" for number in range(1000)))
    return path


def config(folder: Path, **values: object) -> Path:
    path = folder / "toy.yaml"
    path.write_text(yaml.safe_dump({**CONFIG, "store": {"path": str(folder / "store")}, **values}))
    return path


# ---- names that are not UTF-8


def test_a_config_with_an_odd_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ODD).mkdir()
    assert main(["plan", str(config(tmp_path / ODD))]) == 2
    assert "toy.yaml': expected a path in UTF-8, got the byte 0xff at byte" in one_line(capsys)


def test_values_with_odd_bytes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(config(tmp_path)), "--set", f"store.path={ODD}/store"]) == 2
    assert one_line(capsys) == (
        "--set store.path: expected YAML, got: 'b\\udcff/store', whose bytes are not UTF-8; rename the file or folder if it is one"
    )


def test_a_store_below_an_odd_folder_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / ODD).mkdir()
    with pytest.raises(DataError, match=r"^store\.path: expected a path in UTF-8, got the byte 0xff .*; rename"):
        open_store(tmp_path / ODD / "store")
    assert not (tmp_path / ODD / "store").exists()


def test_a_pattern_that_leads_to_an_odd_name_is_refused(tmp_path: Path) -> None:
    text(tmp_path, f"{ODD}.en")
    with pytest.raises(DataError, match=r"\*\.en: .*'.*b\\udcff\.en': expected a path in UTF-8"):
        matching(tmp_path / "*.en", Walk())


def test_init_refuses_odd_names_before_it_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd, plain = text(tmp_path, f"{ODD}.en"), text(tmp_path, "a.de")
    assert main(["init", str(odd), str(plain), "--languages", "en", "de", "--output", str(tmp_path / "mine")]) == 2
    assert "expected a path in UTF-8" in one_line(capsys)
    assert not (tmp_path / "mine").exists()


def test_ray_is_not_started_again_for_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message would blame load and memory."""
    calls: list[int] = []

    def init(**options: object) -> None:
        calls.append(1)
        ODD.encode()

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(StageError, match=r"Ray takes names and arguments in UTF-8 alone, got 'b\\udcff'; rename .*--in-process"):
        start_local(1)
    assert len(calls) == 1


@pytest.mark.parametrize("locale", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_names_in_a_config_are_utf_8_in_every_locale(tmp_path: Path, locale: dict[str, str]) -> None:
    folder = tmp_path / "данные"
    folder.mkdir()
    sides = {side: str(text(folder, f"ä.{side}")) for side in ("source", "target")}
    path = config(folder, corpus={**CONFIG["corpus"], "train": sides})
    environment = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(tmp_path), **locale}
    command = [sys.executable, "-m", "pipeline", "plan", os.fsencode(path)]
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert found.returncode == 0, found.stderr
    assert str(folder) in found.stdout.decode()
    assert (folder / "store" / MARKER).is_file()


# ---- modes


def test_a_config_that_may_not_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config(tmp_path)
    path.chmod(0)
    with unprivileged():
        assert main(["plan", str(path)]) == 2
    assert one_line(capsys).startswith(f"{path}: expected a path that this user may read, but {path} has mode 0000 and belongs to")


@pytest.mark.parametrize("closed", ["file", "folder", "pattern"])
def test_text_that_may_not_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str], closed: str) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    source, target = text(folder, "a.en"), text(folder, "a.de")
    place, mode = (source, 0o200) if closed == "file" else (folder, 0o600)
    sides = {"source": str(folder / "*.en") if closed == "pattern" else str(source), "target": str(target)}
    path = config(tmp_path, corpus={**CONFIG["corpus"], "train": sides})
    place.chmod(mode)
    with unprivileged():
        code = main(["plan", str(path)])
    place.chmod(0o700)
    assert code == 2
    assert (
        f"but {place} has mode {mode:04o} and belongs to the user {os.geteuid()}; let its owner give permission (chmod a+"
        in one_line(capsys)
    )


def test_a_pattern_does_not_leave_out_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        text(tmp_path / name, "a.en")
    (tmp_path / "two").chmod(0)
    with unprivileged(), pytest.raises(DataError, match=rf"\*\.en: .*but {tmp_path}/two has mode 0000.*chmod a\+rx"):
        matching(tmp_path / "*" / "*.en", Walk())
    (tmp_path / "two").chmod(0o700)
    assert len(matching(tmp_path / "*" / "*.en", Walk())) == 2


def test_a_store_that_may_not_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config(tmp_path)
    store = open_store(tmp_path / "store")
    store.root.chmod(0o500)
    with unprivileged():
        code = main(["run", str(path), "--in-process"])
    store.root.chmod(0o700)
    assert code == 2
    assert f"expected a directory that can be created and written to, got {store.root}: Permission denied" in one_line(capsys)


def test_an_artifact_that_may_not_be_read_is_not_called_altered(tmp_path: Path) -> None:
    """Its reader would remove it."""
    directory = tmp_path / "corpus" / ("0" * 32)
    directory.mkdir(parents=True)
    (directory / "manifest.json").write_text("{}")
    (directory / "manifest.json").chmod(0)
    with unprivileged(), pytest.raises(Exception, match=r"manifest\.json has mode 0000 and belongs to") as found:
        Store(tmp_path).manifest(directory)
    assert "remove" not in str(found.value)


@pytest.mark.parametrize("command", ["translate", "export", "status"])
def test_a_directory_that_may_not_be_entered_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    folder = tmp_path / "system"
    folder.mkdir()
    (folder / "system.json").touch()
    (folder / "run.json").touch()
    folder.chmod(0o600)
    with unprivileged():
        code = main([command, str(folder), *(["--to", str(tmp_path / "out")] if command == "export" else [])])
    folder.chmod(0o700)
    assert code == 2
    assert f"but {folder} has mode 0600 and belongs to the user {os.geteuid()}; let its owner give permission" in one_line(capsys)


def test_an_output_folder_that_may_not_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = [str(tmp_path / name) for name in ("a.en", "a.de")]
    for path, words in zip(pair, ("is a number of the text", "ist eine Zahl des Textes"), strict=True):
        Path(path).write_text("".join(f"{number} {words}\n" for number in range(3000)))
    (folder := tmp_path / "closed").mkdir(mode=0o500)
    with unprivileged():
        code = main(["init", *pair, "--output", str(folder / "mine")])
    assert code in (1, 2)
    assert str(folder) in (shown := one_line(capsys))
    assert "Permission denied" in shown or "may not" in shown


@pytest.mark.parametrize("closed", ["runs", "runs/mine"])
def test_gc_and_runs_do_not_take_runs_that_may_not_be_read_for_absent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], closed: str
) -> None:
    """Their artifacts would be deleted."""
    store = open_store(tmp_path / "store")
    run = Run(store.runs / "mine")
    run.create(run_spec(plan_entry("corpus:a")))
    place = store.root / closed
    place.chmod(0)
    with unprivileged():
        codes = [main([*command, "--store", str(store.root)]) for command in (["gc", "--delete"], ["gc"], ["runs"])]
    place.chmod(0o700)
    assert codes == [1, 1, 1]
    assert capsys.readouterr().err.count(f"but {place} has mode 0000 and belongs to the user {os.geteuid()}") == 3
    assert run.path.is_dir()
