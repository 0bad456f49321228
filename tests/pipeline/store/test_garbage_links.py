"""Tests that `gc` deletes nothing behind links and mount points, at any level of a store."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from durable import DISK, RealDisk
from pipeline.run.run_directory import Run
from pipeline.store import garbage
from pipeline.store.artifacts import Store
from pipeline.store.attempts import begin_attempt
from pipeline.store.downloads import record_file
from pipeline.store.files import text_digest
from pipeline.store.host import RealHost
from pipeline.store.lease import step_lease
from pipeline.store.marker import open_store
from tests.pipeline.run_specs import plan_entry, run_spec

A, B, C, D = (letter * 32 for letter in "abcd")
KEPT = {".gc", "fewstep-store.json", "runs/latest"}


def littered(root: Path) -> Store:
    """Return a store with garbage of each kind, and a run."""
    store = open_store(root)
    finished, unfinished = store.directory("train", A), store.directory("train", D)
    files = {
        **{store.directory(stage, digest) / "model": "m" for stage, digest in (("train", A), ("train", B), ("ngram", C))},
        finished / "checkpoints/100/state": "s",
        finished.with_name(f"{B}.partial-x") / "model": "m",
        finished.with_name(f"{B}.01234567.removed") / "model": "m",
        finished.with_name(f"{B}.01234567.fetching") / "model": "m",
        unfinished.with_name(f"{D}.partial-x") / "model.x.tmp": "m",
        unfinished.with_name(f"{D}.partial-x") / "checkpoints/ray-x/state": "s",
        finished.with_name(f"{A}.lease-1"): json.dumps({"owner": "x", "seconds": 0, "renewals": 0, "released": 1}),
        store.shard_cache / f"{A * 2}.arrow": "s",
        store.shard_cache / f"{B * 2}.arrow.x.tmp": "s",
        store.root / "downloads" / (A * 2) / "text.gz": "t",
        store.root / "downloads" / f"{A}.part": "t",
        record_file(store, "https://host/a"): json.dumps({"url": "https://host/a", "sha256": A * 2}),
        store.root / "verified" / f"train-{C}.json": "{}",
        store.root / "digests" / text_digest("/nowhere/text"): json.dumps({"stamp": ["/nowhere/text"]}),
        store.runs / "one/run.json.x.tmp": "{}",
    }
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
