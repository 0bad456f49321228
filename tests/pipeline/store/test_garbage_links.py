"""Nothing outside a store is deleted: links, mounts and directories that are no store."""

import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable import DISK, RealDisk
from pipeline.__main__ import main
from pipeline.run.run_directory import Run
from pipeline.store import garbage
from pipeline.store.artifacts import Store
from pipeline.store.attempts import begin_attempt
from pipeline.store.downloads import record_file
from pipeline.store.files import text_digest
from pipeline.store.host import RealHost
from pipeline.store.lease import step_lease
from pipeline.store.marker import FOLDERS, MARKER, open_store
from stages.errors import ArtifactError, DataError
from tests.pipeline.run_specs import plan_entry, run_spec

A, B, C, D = (letter * 32 for letter in "abcd")
KEPT = {".gc", "fewstep-store.json", "runs/latest"}


def littered(root: Path) -> Store:
    """Return a store with garbage of each kind, and a run."""
    store = open_store(root)
    finished, unfinished = store.directory("train", A), store.directory("train", D)
    files = {
        **{store.directory(stage, digest) / "model": "m" for stage, digest in (("train", A), ("train", B), ("ngram", C))},
        finished / "checkpoints/100/state": "s", finished.with_name(f"{B}.partial-x") / "model": "m",
        finished.with_name(f"{B}.01234567.removed") / "model": "m", finished.with_name(f"{B}.01234567.fetching") / "model": "m",
        unfinished.with_name(f"{D}.partial-x") / "model.x.tmp": "m",
        unfinished.with_name(f"{D}.partial-x") / "checkpoints/ray-x/state": "s",
        finished.with_name(f"{A}.lease-1"): json.dumps({"owner": "x", "seconds": 0, "renewals": 0, "released": 1}),
        store.shard_cache / f"{A * 2}.arrow": "s", store.shard_cache / f"{B * 2}.arrow.x.tmp": "s",
        store.root / "downloads" / (A * 2) / "text.gz": "t", store.root / "downloads" / f"{A}.part": "t",
        record_file(store, "https://host/a"): json.dumps({"url": "https://host/a", "sha256": A * 2}),
        store.root / "verified" / f"train-{C}.json": "{}",
        store.root / "digests" / text_digest("/nowhere/text"): json.dumps({"stamp": ["/nowhere/text"]}),
        store.runs / "one/run.json.x.tmp": "{}",
    }  # fmt: skip
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for stage, digest in (("train", A), ("train", B), ("ngram", C)):
        manifest = {"stage": stage, "fingerprint": digest, "inputs": {}}
        (store.directory(stage, digest) / "manifest.json").write_text(json.dumps(manifest))
    Run(store.runs / "one").create(run_spec(plan_entry("train:a", fingerprint=A), plan_entry("train:d", fingerprint=D)))
    step_lease(finished, "x", 0.0).path.with_name(f"{A}.lease-1").write_text(
        '{"owner": "x", "seconds": 0, "renewals": 0, "released": 1}'
    )
    age(store)
    return store


def age(store: Store) -> None:
    moment = time.time() - 2 * garbage.QUIET_SECONDS
    for path in store.root.rglob("*"):
        os.utime(path, (moment, moment), follow_symlinks=False)


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    """Return all paths of the store, and those that are garbage."""
    store = littered(tmp_path_factory.mktemp("plain") / "store")
    paths = sorted(store.relative(path) for path in store.root.rglob("*"))
    found = [store.relative(item.path) for item in garbage.collect(store, shards=True)]
    assert len(found) == 17
    return paths, found


def is_related(path: str, other: str) -> bool:
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")


def test_nothing_behind_a_link_is_deleted(
    plain: tuple[list[str], list[str]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each path of the store in turn lies elsewhere, and the store has a link to it."""
    paths, garbage_paths = plain
    for number, name in enumerate(set(paths) - KEPT):
        store, elsewhere = littered(tmp_path / f"{number}/store"), tmp_path / f"{number}/elsewhere"
        (store.root / name).rename(elsewhere)
        (store.root / name).symlink_to(elsewhere)
        age(store)
        before = contents(elsewhere) if elsewhere.is_dir() else elsewhere.read_bytes()
        caplog.clear()
        garbage.remove(store, shards=True)
        assert (contents(elsewhere) if elsewhere.is_dir() else elsewhere.read_bytes()) == before, name
        assert (store.root / name).is_symlink(), name
        if any(is_related(name, other) for other in garbage_paths):
            assert f"{store.root / name} is a link to {elsewhere}; it is left" in caplog.text
        left = {store.relative(item.path) for item in garbage.collect(store, shards=True)}
        assert left == set(), name


def test_nothing_in_a_mount_is_deleted(
    plain: tuple[list[str], list[str]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths, garbage_paths = plain
    for number, name in enumerate(sorted(set(paths) - KEPT)):
        store = littered(tmp_path / f"{number}/store")
        host = RealHost()
        host.disk = MountedDisk(f"{store.root}/{name}")
        before = contents(store.root / name)
        caplog.clear()
        garbage.remove(Store(store.root, host), shards=True)
        assert (store.root / name).exists(), name
        assert contents(store.root / name) == before, name
        if any(is_related(name, other) for other in garbage_paths):
            assert f"{store.root / name} is a mount point; it is left" in caplog.text
    assert "/proc" in DISK.mounts()


class MountedDisk(RealDisk):
    """A disk on which something is mounted."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self._place = place

    def mounts(self) -> frozenset[str]:
        return frozenset({"/", self._place})


def test_a_store_behind_a_link_is_the_store_that_was_named(plain: tuple[list[str], list[str]], tmp_path: Path) -> None:
    store = littered(tmp_path / "disk/store")
    (tmp_path / "link").symlink_to(store.root)
    removed = garbage.remove(Store(tmp_path / "link"), shards=True)
    assert {str(item.path.relative_to(tmp_path / "link")) for item in removed} == set(plain[1])


def test_a_run_elsewhere_keeps_its_artifacts(tmp_path: Path) -> None:
    store = littered(tmp_path / "store")
    shutil.move(store.runs / "one", tmp_path / "one")
    (store.runs / "one").symlink_to(tmp_path / "one")
    garbage.remove(store)
    assert (store.directory("train", A) / "model").exists()
    assert not store.directory("train", B).exists()


def test_an_attempt_does_not_take_over_a_link(tmp_path: Path) -> None:
    store, elsewhere = open_store(tmp_path / "store"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "model.tmp").write_text("m")
    directory = store.directory("train", A)
    directory.parent.mkdir()
    directory.with_name(f"{A}.partial-x").symlink_to(elsewhere)
    lease = step_lease(directory, "y", 30.0)
    assert lease.acquire()
    assert list(begin_attempt(directory, lease).iterdir()) == []
    assert (elsewhere / "model.tmp").exists()


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


@pytest.mark.parametrize("place", [f"train/{A}", f"train/{A}/inner", "train"])
def test_a_store_in_a_store_is_left(tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(tmp_path / "store")
    manifest = {"stage": "train", "fingerprint": A, "inputs": {}}
    (store.root / "train" / A).mkdir(parents=True)
    (store.root / "train" / A / "manifest.json").write_text(json.dumps(manifest))
    assert [item.path for item in garbage.collect(store)] == [store.root / "train" / A]
    inner = store.root / place / MARKER
    inner.parent.mkdir(exist_ok=True)
    inner.write_text('{"format": 1}')
    assert garbage.remove(store) == []
    assert f"{inner.parent} is a store of its own; it is left" in caplog.text
    assert inner.exists()
