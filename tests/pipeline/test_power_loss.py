"""The power is cut on a real file system: an ext4 in a file, shut down without its journal being flushed."""

import fcntl
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.store.artifacts import Store
from tests.end_to_end.runs import ALONE, ROOT, Watched, end
from tests.waiting import SLOW_SECONDS

pytestmark = [pytest.mark.slow]

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


def test_a_run_continues_after_power_cuts(disk: Disk) -> None:
    run = Watched(disk.root / "store", *ALONE, "--until", "train:teacher")
    for updates in (40, 120):
        process = run.start()
        try:
            run.wait(lambda updates=updates: run.progress("train:teacher") >= updates, process)
            finished = set(run.store.glob("*/*/manifest.json"))
            disk.cut(process)
        finally:
            end(process)
        assert not [problem for _, problem in Store(run.store).verify_all() if problem]
        assert finished
        assert finished <= set(run.store.glob("*/*/manifest.json"))
    run.finish()
    continued = re.search(r"training from update (\d+) of 200", run.log("train:teacher"))
    assert continued is not None
    assert int(continued[1]) > 0
    assert not [problem for _, problem in Store(run.store).verify_all() if problem]
