"""Tests of power cuts at any moment on a simulated disk. `test_power_loss.py` uses a real one."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import torch

import durable
from models.training import checkpoint
from models.training.checkpoint import Checkpoint
from pipeline.store import downloads, mirror
from pipeline.store.artifacts import Store
from pipeline.store.attempts import partial_directory
from pipeline.store.downloads import RemoteFile, download
from pipeline.store.manifest import Manifest
from pipeline.store.mirror import Mirror
from stages.align import AlignConfig
from stages.align.text import Job
from stages.artifacts import MANIFEST
from stages.context import WorkerContext
from stages.errors import ArtifactError
from stages.shared.shards import write_shard
from stages.workers import Resources
from tests.simulated_disk import SimulatedDisk, Survivors

FINGERPRINT = "f" * 32
PLACE = f"store/toy/{FINGERPRINT}"
SimulateDisk = Callable[[Callable[[Survivors], None]], SimulatedDisk]


@pytest.fixture
def simulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulateDisk:
    """Return a function that simulates the disk below `tmp_path`."""
    monkeypatch.setattr(mirror, "CONNECTIONS", 1)
    return lambda check: SimulatedDisk(tmp_path, monkeypatch, check)


def make_context(directory: Path, store: Path) -> WorkerContext:
    return WorkerContext(directory=directory, attempt="a", resources=Resources(workers=1, cpus=1), shard_cache=store / "shards")


def begin(root: Path) -> tuple[Store, Path]:
    """Return a store with an unfinished step."""
    store = Store(root)
    directory = store.directory("toy", FINGERPRINT)
    partial = partial_directory(directory, "1")
    durable.make_directory(partial)
    (partial / "deep").mkdir()
    (partial / "records").mkdir()
    (partial / "deep" / "result").write_text("result")
    (partial / "other").write_text("other")
    (partial / "records" / "log").write_text("log")
    return store, directory


def commit(store: Store, directory: Path) -> None:
    store.commit(
        directory,
        Manifest(
            stage="toy", version=1, step="toy:a", fingerprint=FINGERPRINT, config={}, inputs={}, environment={},
            code_digest="c", git_revision="g", run_id="r", attempt="1", seconds=0.0, finished=0.0,
        ),
    )  # fmt: skip


def believed(survivors: Survivors) -> None:
    """Fail if a manifest names an incomplete file, or if files count as verified that differ from their digests."""
    for path in survivors:
        parts = path.split("/")
        if path.startswith("store/toy/") and parts[-1] == MANIFEST and "." not in parts[2]:
            check_files(survivors, path.removesuffix(f"/{MANIFEST}"))
        if path.startswith("store/verified/") and path.endswith(".json"):
            check_files(survivors, PLACE)


def check_files(survivors: Survivors, place: str) -> None:
    manifest = json.loads(survivors[f"{place}/{MANIFEST}"])
    assert manifest["files"]
    for name, entry in manifest["files"].items():
        assert sha256(survivors.get(f"{place}/{name}")) == entry["sha256"], name
    assert all(survivors.get(f"{place}/{name}") for name in manifest["records"])


def sha256(content: bytes | None) -> str | None:
    return content if content is None else hashlib.sha256(content).hexdigest()


def test_a_finished_artifact_is_complete_after_every_power_cut(simulate: SimulateDisk) -> None:
    disk = simulate(believed)
    commit(*begin(disk.root / "store"))
    files = {f"{PLACE}/{name}" for name in (MANIFEST, "deep/result", "other", "records/log")}
    assert files <= set(disk.survivors())
    assert disk.cuts > 40


def test_an_artifact_that_another_driver_renamed_and_did_not_sync_lasts(tmp_path: Path, simulate: SimulateDisk) -> None:
    other, finished = begin(tmp_path / "other")
    commit(other, finished)
    disk = simulate(lambda survivors: None)
    store, directory = begin(tmp_path / "store")
    durable.sync_tree(finished)
    finished.rename(directory)
    assert f"{PLACE}/{MANIFEST}" not in disk.survivors()
    commit(store, directory)
    assert f"{PLACE}/{MANIFEST}" in disk.survivors()


def test_a_copied_artifact_counts_as_verified_once_it_is_durable(tmp_path: Path, simulate: SimulateDisk) -> None:
    store, directory = begin(tmp_path / "store")
    commit(store, directory)
    for path in directory.rglob("*"):
        if path.is_file():  # another inode, of which nothing was synced
            content = path.read_bytes()
            path.unlink()
            path.write_bytes(content)

    def check(survivors: Survivors) -> None:
        if "store/verified" in {path.rpartition("/")[0] for path in survivors if path.endswith(".json")}:
            for name in ("deep/result", "other"):
                assert disk._files.get((directory / name).stat().st_ino), name

    store._stamp_file(directory).unlink()
    disk = simulate(check)
    store.verify(directory)
    disk.cut()
    assert store._stamp_file(directory).exists()


def test_a_stamp_of_an_earlier_version_is_ignored(tmp_path: Path) -> None:
    store, directory = begin(tmp_path / "store")
    commit(store, directory)
    (directory / "other").write_text("stale")
    status = {name: (directory / name).stat() for name in ("deep/result", "other")}
    old = {name: [found.st_size, found.st_mtime_ns, found.st_ctime_ns] for name, found in status.items()}
    store._stamp_file(directory).write_text(json.dumps(old))
    with pytest.raises(ArtifactError, match="other: expected sha256"):
        store.verify(directory)


def test_mirrored_artifacts_are_complete_after_every_power_cut(tmp_path: Path, simulate: SimulateDisk) -> None:
    store, directory = begin(tmp_path / "elsewhere")
    commit(store, directory)

    def check(survivors: Survivors) -> None:
        believed(survivors)
        if done := survivors.get(f"mirror/toy/{FINGERPRINT}/{MANIFEST}"):
            attempt = json.loads(done)["attempt"]
            index = json.loads(survivors[f"mirror/toy/{FINGERPRINT}/{attempt}.index.json"])
            for name, entry in index.items():
                assert sha256(survivors.get(f"mirror/toy/{FINGERPRINT}/{attempt}/{name}")) == entry["sha256"], name

    disk = simulate(check)
    url = f"file://{tmp_path / 'mirror'}"
    assert Mirror(url, store).push(directory)
    assert f"mirror/toy/{FINGERPRINT}/{MANIFEST}" in disk.survivors()
    other = Store(tmp_path / "store")
    assert Mirror(url, other).pull(other.directory("toy", FINGERPRINT))
    assert f"{PLACE}/deep/result" in disk.survivors()


def test_checkpoints_from_a_mirror_are_complete_after_every_power_cut(tmp_path: Path, simulate: SimulateDisk) -> None:
    store, other = Store(tmp_path / "elsewhere"), Store(tmp_path / "store")
    directory, copy = store.directory("train", FINGERPRINT), other.directory("train", FINGERPRINT)
    partial = partial_directory(directory, "1")
    checkpoint.save(partial / "checkpoints", make_checkpoint(5), "a")
    expected = saved_files(partial / "checkpoints")

    def check(survivors: Survivors) -> None:
        check_checkpoints(survivors, f"store/train/{FINGERPRINT}.partial-1/checkpoints/", expected)

    disk = simulate(check)
    url = f"file://{tmp_path / 'mirror'}"
    assert Mirror(url, store).push_checkpoints(directory, partial)
    assert Mirror(url, other).pull_checkpoints(copy, partial_directory(copy, "1"))
    assert f"store/train/{FINGERPRINT}.partial-1/checkpoints/5/state.json" in disk.survivors()


def make_checkpoint(update: int) -> Checkpoint:
    return Checkpoint({"w": torch.full((9,), float(update))}, {"s": torch.ones(3)}, {"update": update})


def saved_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_checkpoints(survivors: Survivors, folder: str, expected: dict[str, bytes], newest: int = 0) -> set[int]:
    """Return the updates of the checkpoints from `newest` on, after a check that all are complete. Older ones may be incomplete."""
    found = {path.removeprefix(folder).split("/")[0] for path in survivors if path.startswith(folder)}
    updates = {int(name) for name in found if name.isdigit() and int(name) >= newest}
    for path, content in expected.items():
        if int(path.split("/")[0]) in updates:
            assert survivors.get(folder + path) == content, path
    return updates


def test_the_last_checkpoint_survives_every_power_cut(tmp_path: Path, simulate: SimulateDisk) -> None:
    for update in (1, 2, 3):
        checkpoint.save(tmp_path / "reference" / str(update), make_checkpoint(update), "a")
    expected = {name: data for path in (tmp_path / "reference").iterdir() for name, data in saved_files(path).items()}
    newest = 0

    def check(survivors: Survivors) -> None:
        assert check_checkpoints(survivors, "checkpoints/", expected, newest) or not newest

    simulate(check)
    for update in (1, 2, 3):
        checkpoint.save(tmp_path / "checkpoints", make_checkpoint(update), "a")
        newest = update
    assert checkpoint.newest(tmp_path / "checkpoints") is not None


def check_whole(folder: str, *contents: bytes) -> Callable[[Survivors], None]:
    """Check that each file below `folder` with a final name has one of these contents."""

    def check(survivors: Survivors) -> None:
        for path, content in survivors.items():
            assert not path.startswith(folder) or path.endswith(".tmp") or content in contents, path

    return check


def test_a_decoded_shard_is_complete_after_every_power_cut(tmp_path: Path, simulate: SimulateDisk) -> None:
    table, context = pa.table({"id": [1, 2, 3]}), make_context(tmp_path / "step", tmp_path)
    write_shard(tmp_path / "reference.arrow", table, context)
    disk = simulate(check_whole("shards/", (tmp_path / "reference.arrow").read_bytes()))
    write_shard(context.shard_cache / "key.arrow", table, context)
    assert "shards/key.arrow" in disk.survivors()


def test_the_state_of_an_alignment_is_complete_after_every_power_cut(tmp_path: Path, simulate: SimulateDisk) -> None:
    job = Job((), None, AlignConfig(), make_context(tmp_path / "step", tmp_path))
    job.save(tmp_path / "reference.npy", [1, 2, 3])
    disk = simulate(check_whole("step/", (tmp_path / "reference.npy").read_bytes(), b'{\n "a": 1\n}\n'))
    job.save(job.state("forward", "whole.npy"), [1, 2, 3])
    job.save_json(job.state("forward", "whole.json"), {"a": 1})
    assert {f"step/checkpoints/forward/whole.{end}" for end in ("npy", "json")} <= set(disk.survivors())


def test_a_download_is_complete_after_every_power_cut(
    tmp_path: Path, simulate: SimulateDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"Ein Satz.\n" * 1000
    (tmp_path / "a.txt").write_bytes(text)
    place = f"store/downloads/{sha256(text)}/a.txt"

    def check(survivors: Survivors) -> None:
        assert survivors.get(place, text) == text
        if any(path.startswith("store/downloads/urls/") and not path.endswith(".tmp") for path in survivors):
            assert place in survivors

    disk = simulate(check)
    monkeypatch.setattr(downloads, "copy_from_url", lambda url, path: copy_in_blocks(tmp_path / "a.txt", path))
    download(RemoteFile(url="https://example.org/a.txt"), Store(tmp_path / "store"))
    assert place in disk.survivors()
    assert os.listdir(tmp_path / "store" / "downloads" / "urls")


def copy_in_blocks(source: Path, path: Path) -> dict[str, object]:
    from pipeline.store.streams import Digest, write_blocks

    seen = Digest()
    write_blocks(path, seen.over(iter([source.read_bytes()])))
    return seen.entry
