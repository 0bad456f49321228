"""Finished artifacts are complete after every power cut, in any order of what the disk has written."""

import fcntl
import hashlib
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
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
from pipeline.store.mirror import Mirror
from stages.align import AlignConfig
from stages.align.text import Job
from stages.artifacts import MANIFEST
from stages.context import WorkerContext
from stages.errors import ArtifactError
from stages.shared.shards import write_shard
from stages.workers import Resources
from tests.end_to_end.runs import ALONE, ROOT, Watched
from tests.pipeline.run_specs import manifest
from tests.processes import SLOW_SECONDS
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
    store.commit(directory, manifest(fingerprint=FINGERPRINT))


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


CUTS = int(os.environ.get("FEWSTEP_POWER_CUTS", "8"))
EXT4_IOC_SHUTDOWN, WITHOUT_FLUSHING = 0x8004587D, 2
"""`EXT4_IOC_SHUTDOWN` and `EXT4_GOING_FLAGS_NOLOGFLUSH` of linux/fs/ext4/ext4.h."""
IMAGE_BYTES = 256 << 20

COMMITTER = """
import random, sys
from pathlib import Path
from pipeline.store.artifacts import Store
from pipeline.store.manifest import Manifest
from pipeline.store.attempts import partial_directory

store, first = Store(Path(sys.argv[1])), int(sys.argv[2])
for number in range(first, first + 1000):
    directory = store.directory("toy", f"{number:032x}")
    partial, rng = partial_directory(directory, "1"), random.Random(number)
    for name, size in {"small": 100, "deep/er/middle": 50_000, "large": 300_000, "records/log": 1000}.items():
        (partial / name).parent.mkdir(parents=True, exist_ok=True)
        (partial / name).write_bytes(rng.randbytes(size))
    store.commit(directory, Manifest(
        stage="toy", version=1, step="toy", fingerprint=directory.name, config={}, inputs={}, environment={},
        code_digest="", git_revision="", run_id="", attempt="1", seconds=0.0, finished=0.0,
    ))
    store.verify(directory)
    print(directory.name, flush=True)
"""
"""Commits artifacts and says of each, once it is committed, its name."""


class Disk:
    """An ext4 file system of its own that can lose power."""

    def __init__(self, image: Path, root: Path) -> None:
        self.image, self.root = image, root
        root.mkdir()
        with image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        self._run("mkfs.ext4", "-q", str(image))
        self.mount()

    def mount(self) -> None:
        self._run("mount", "-o", "loop", str(self.image), str(self.root))

    def cut(self, process: subprocess.Popen[str]) -> None:
        """Cut the power while `process` runs, and start again. Its standard output stays open."""
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", WITHOUT_FLUSHING))
        finally:
            os.close(descriptor)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.unmount()
        self._replace_image()
        self.mount()

    def _replace_image(self) -> None:
        """Go on with a copy: a mount namespace of another test may hold the old one, which would be mounted again as it is."""
        copy = self.image.with_suffix(".copy")
        self._run("cp", "--sparse=always", str(self.image), str(copy))
        copy.replace(self.image)

    def unmount(self) -> None:
        """Unmount it once the last killed process has let go of it."""
        deadline = time.monotonic() + SLOW_SECONDS
        while True:
            try:
                return self._run("umount", str(self.root))
            except subprocess.CalledProcessError as error:
                if "busy" not in error.stderr or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    @staticmethod
    def _run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, text=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0 or not all(map(shutil.which, ("mkfs.ext4", "mount", "umount"))):
        pytest.skip("a power cut takes root, mkfs.ext4 and mount")
    try:
        made = Disk(tmp_path / "disk.ext4", tmp_path / "disk")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine mounts no file system in a file: {error.stderr.strip()}")
    yield made
    made.unmount()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_committed_artifacts_are_whole_after_a_power_cut(disk: Disk) -> None:
    """Each store had its artifacts reported as committed: they are there, and whatever is there is whole."""
    damaged = {}
    for cut in range(CUTS):
        store = Store(disk.root / f"store{cut}")
        names = commit_until_cut(disk, store, random.Random(cut).uniform(0.1, 0.8))
        if problems := [*lost(store, names), *found_by_a_run(store), *filter(None, (wrong for _, wrong in store.verify_all()))]:
            damaged[cut] = problems[0]
        shutil.rmtree(store.root)
    print(f"damaged stores: {len(damaged)} of {CUTS}")
    assert not damaged


def commit_until_cut(disk: Disk, store: Store, seconds: float) -> list[str]:
    """Commit until `seconds` after the first artifact; the names of those that were reported as committed."""
    command = [sys.executable, "-c", COMMITTER, str(store.root), "0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    with process.stdout:
        first = process.stdout.readline()
        assert first
        time.sleep(seconds)
        disk.cut(process)
        return (first + process.stdout.read()).split()


def lost(store: Store, names: list[str]) -> list[str]:
    return [f"{name} was committed and is lost" for name in names if not store.directory("toy", name).exists()]


def found_by_a_run(store: Store) -> list[str]:
    """Differences between what `verify` believes, stamps included, and the digests."""
    found = []
    for path in sorted(store.root.glob("toy/*/manifest.json")):
        if path.parent.suffix:
            continue
        try:
            store.verify(path.parent)
        except Exception as error:  # every reason is a damaged store
            found.append(str(error))
    return found


@pytest.mark.slow
def test_a_run_continues_after_power_cuts(disk: Disk) -> None:
    run = Watched(disk.root / "store", *ALONE, "--until", "train:teacher")
    for updates in (40, 120):
        with run.background() as process:
            run.wait(lambda updates=updates: run.progress("train:teacher") >= updates, process)
            finished = set(run.store.glob("*/*/manifest.json"))
            disk.cut(process)
        assert not [problem for _, problem in Store(run.store).verify_all() if problem]
        assert finished
        assert finished <= set(run.store.glob("*/*/manifest.json"))
    run.finish()
    continued = re.search(r"training from update (\d+) of 200", run.log("train:teacher"))
    assert continued is not None
    assert int(continued[1]) > 0
    assert not [problem for _, problem in Store(run.store).verify_all() if problem]
