"""Tests of the marker that makes a directory a store. Nothing is removed from other directories."""

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.__main__ import main
from pipeline.run.run_directory import Run
from pipeline.store import garbage
from pipeline.store.artifacts import Store
from pipeline.store.marker import FOLDERS, MARKER, open_store
from stages.errors import ArtifactError, DataError
from tests.pipeline.run_specs import run_spec

DIGEST, LONG = "0123456789abcdef" * 2, "0123456789abcdef" * 4
FOLDER = st.sampled_from(
    [*FOLDERS, "runs", "shards", "downloads", "downloads/urls", "digests", "verified", "data", "mlflow-artifacts"]
)
SUFFIX = st.sampled_from(["", ".partial", ".lease", ".removed", ".fetching", ".01234567.removed", ".arrow", ".json", ".tmp"])
PLACES = st.lists(st.tuples(FOLDER, st.sampled_from([DIGEST, LONG, "name", f"train-{DIGEST}"]), SUFFIX), min_size=1, max_size=8)


def write(path: Path, text: str = "not ours") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


@given(PLACES, st.booleans())
def test_files_outside_a_store_are_never_removed(places: list[tuple[str, str, str]], folders: bool) -> None:
    """Files of any name and content are kept, and the directory does not become a store."""
    with tempfile.TemporaryDirectory() as root:
        for folder, name, suffix in places:
            place = Path(root, folder, name + suffix)
            write(place / "file" if folders else place)
        before = tree(Path(root))
        assert main(["gc", "--delete", "--shards", "--store", root]) == 2
        with pytest.raises(DataError, match="expected a store"):
            open_store(Path(root))
        assert tree(Path(root)) == before


@given(st.lists(st.sampled_from([DIGEST, f"{DIGEST}.bin", "name", "manifest.json"]), min_size=1, max_size=3), FOLDER)
def test_directories_with_fingerprints_as_names_are_kept_without_a_manifest(names: list[str], folder: str) -> None:
    """An artifact is recognised by its stage's folder and its own manifest, not by its name alone."""
    with tempfile.TemporaryDirectory() as root:
        store = open_store(Path(root))
        for name in names:
            write(Path(root, folder, DIGEST, name))
            write(Path(root, "data", f"{DIGEST}.partial", name))
        write(Path(root, folder, DIGEST, "manifest.json"), json.dumps({"stage": "another", "fingerprint": DIGEST, "files": {}}))
        before = tree(store.root)
        garbage.remove(store, shards=True)
        assert tree(store.root) - {".gc"} == before


def test_a_new_or_empty_directory_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "empty/lost+found").mkdir(parents=True)
    for name in ("new", "empty"):
        store = open_store(tmp_path / name)
        assert json.loads((store.root / MARKER).read_text()) == {"format": 1}
        write(store.root / "notes.txt")
        assert open_store(store.root).root == store.root
        assert garbage.collect(store) == []


@pytest.mark.parametrize("content", ["run", "artifact", "digest"])
def test_a_store_of_an_earlier_version_is_marked(content: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    write(store.root / "notes.txt")
    if content == "run":
        Run(store.runs / "demo-1").create(run_spec())
    elif content == "artifact":
        write(store.directory("train", DIGEST) / "manifest.json", json.dumps({"stage": "train", "fingerprint": DIGEST}))
    else:
        store.digest(write(tmp_path / "text"))
    with pytest.raises(
        DataError, match=rf"expected a store \(a directory with {MARKER}\), got a directory without that file.*fewstep plan"
    ):
        garbage.remove(store)
    open_store(store.root)
    assert bool(garbage.remove(store)) == (content == "artifact")


def test_a_run_refuses_a_directory_with_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "home/thesis.tex")
    for command in ("plan", "run"):
        assert main([command, "configs/demo.yaml", "--set", f"store.path={tmp_path / 'home'}"]) == 2
        assert f"got {tmp_path / 'home'}, which holds thesis.tex; name another directory" in capsys.readouterr().err
    assert tree(tmp_path) == {"home", "home/thesis.tex"}
    assert main(["plan", "configs/demo.yaml", "--set", f"store.path={tmp_path / 'home/thesis.tex'}"]) == 2
    assert "which is a file" in capsys.readouterr().err


def test_a_store_of_another_format_is_refused(tmp_path: Path) -> None:
    write(tmp_path / MARKER, '{"format": 2}')
    for use in (lambda: open_store(tmp_path), lambda: garbage.collect(Store(tmp_path))):
        with pytest.raises(ArtifactError, match=rf"{MARKER}: expected format 1, got 2"):
            use()


def test_a_store_that_another_process_has_just_created_is_accepted(tmp_path: Path) -> None:
    write(tmp_path / f"{MARKER}.01234567.tmp", "{")
    (tmp_path / ".gc").touch()
    assert (open_store(tmp_path).root / MARKER).is_file()
    shutil.rmtree(tmp_path)
