"""Stores that are mirrored to object storage."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.run.run_directory import Run
from pipeline.store import garbage
from pipeline.store.artifacts import Store
from pipeline.store.attempts import partial_directory
from pipeline.store.marker import open_store
from pipeline.store.mirror import Mirror
from tests.end_to_end.object_storage import S3, SECRET
from tests.end_to_end.runs import ALONE, ROOT, Watched, end
from tests.pipeline.run_specs import manifest, plan_entry, run_spec
from tests.processes import descendants, wait_for_end
from tests.shared import rest_exhaustive

pytestmark = [pytest.mark.slow]


ON_RAY = ("--set", "defaults.training.updates=400")
"""Options for a short run of whose first training there is time to see a checkpoint."""
FAST = (*ALONE, *ON_RAY)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    run = Watched(tmp_path_factory.mktemp("undisturbed") / "store", *FAST)
    run.finish()
    return run


def here(run: Watched) -> dict[str, Any]:
    """Return `files` of the steps of a run whose artifacts are in its store."""
    spec = json.loads((run.run_directory() / "run.json").read_text())
    paths = {e["step"]: run.store / e["stage"] / e["fingerprint"] / "manifest.json" for e in spec["plan"]}
    return {step: json.loads(path.read_text())["files"] for step, path in paths.items() if path.exists()}


def killed_after_its_first_upload(run: Watched) -> list[int]:
    """Kill a run on Ray once the mirror has a checkpoint, and return its processes, which end by themselves.

    Until then its training is stopped, which would be over before.
    """

    def has_checkpoint() -> bool:
        directory = run.running("train:teacher")
        return directory is not None and any(path.name.isdigit() for path in directory.glob("checkpoints/*"))

    with run.background() as process:
        run.wait(has_checkpoint, process)
        (training,) = run.processes("train:teacher")
        os.kill(training, signal.SIGSTOP)
        run.wait(lambda: run.events("checkpoint_mirrored") != [], process)
        started = [training, *descendants(process.pid)]
        process.kill()
        os.kill(training, signal.SIGCONT)
        process.wait()
    return started


@pytest.mark.ray
def test_two_machines_share_a_mirror(s3: S3, undisturbed: Watched, tmp_path: Path) -> None:
    """The first machine is killed during a training; the second continues it, and a third finds all artifacts."""
    mirror = ("--set", "store.mirror=s3://fewstep/shared")
    one = Watched(tmp_path / "one", *ON_RAY, *mirror)
    two, three = (Watched(tmp_path / name, *FAST, *mirror) for name in ("two", "three"))
    left = killed_after_its_first_upload(one)
    s3.check()
    assert one.events("mirror_failed") == []
    two.finish()
    assert [e["step"] for e in two.events("checkpoint_fetched")] == ["train:teacher"]
    assert "training from update 0 " not in two.log("train:teacher")
    files = two.files() if not two.events("step_fetched") else here(two)
    assert files == {step: undisturbed.files()[step] for step in files}
    assert s3.check() == len(undisturbed.files())
    assert not [name for name in s3.objects() if ".partial/index.json" in name]
    three.finish()
    assert three.events("step_started") == []
    assert "report:run" in here(three)
    for place in (one.store, two.store, three.store):
        for path in place.rglob("*"):
            if path.is_file():
                assert SECRET.encode() not in path.read_bytes()
                assert b"AKIANOTTOBEFOUND" not in path.read_bytes()
    assert not [name for name, data in s3.objects().items() if SECRET.encode() in data or b"AKIANOTTOBEFOUND" in data]
    wait_for_end(left)


def large(store: Store, megabytes: int = 96) -> Path:
    """An artifact that takes a while to transfer."""
    directory = store.directory("system", "a" * 32)
    partial = partial_directory(directory, "b-1")
    partial.mkdir(parents=True)
    for number in range(3):
        (partial / f"{number}.safetensors").write_bytes(os.urandom(2**20) * (megabytes // 3))
    store.commit(directory, manifest("system:a", "a" * 32, attempt="b-1"))
    return directory


def killed_when(ready: Callable[[], bool], method: str, store: Store, url: str) -> None:
    """Push or pull in a process that is killed once `ready` returns True."""
    code = (
        "from pathlib import Path; from pipeline.store.mirror import Mirror; from pipeline.store.artifacts import Store\n"
        f"store = Store(Path({str(store.root)!r})); Mirror({url!r}, store).{method}(store.directory('system', 'a' * 32))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, start_new_session=True)
    try:
        while not ready():
            assert process.poll() is None, "it was over before it could be killed"
            time.sleep(0.005)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    finally:
        end(process)


@pytest.mark.exhaustive
def test_killed_in_the_midst_of_an_upload_and_of_a_download(s3: S3, tmp_path: Path) -> None:
    url = "s3://fewstep/large"
    one, two = open_store(tmp_path / "one"), open_store(tmp_path / "two")
    directory, copy = large(one), two.directory("system", "a" * 32)

    def some_uploaded() -> bool:
        sent = s3.client.list_multipart_uploads(Bucket="fewstep").get("Uploads", [])
        return any(item["Key"].startswith("large/") for item in sent)

    killed_when(some_uploaded, "push", one, url)
    assert not Mirror(url, one).holds(directory)
    assert not Mirror(url, two).pull(copy)
    s3.check()
    assert Mirror(url, one).push(directory)
    s3.check()

    killed_when(lambda: any(p.stat().st_size for p in copy.parent.glob("*.fetching/*")), "pull", two, url)
    assert two.manifest(copy) is None
    (left,) = copy.parent.glob("*.fetching")
    assert Mirror(url, two).pull(copy)
    assert two.manifest(copy) == one.manifest(directory)
    two.verify(copy)
    os.utime(left, (0, 0))
    for path in left.iterdir():
        os.utime(path, (0, 0))
    Run(two.runs / "r").create(run_spec(plan_entry("system:a", fingerprint="a" * 32)))
    assert [item.path for item in garbage.remove(two)] == [left]
    assert two.manifest(copy) is not None


def test_text_from_object_storage(s3: S3, tmp_path: Path) -> None:
    from pipeline.store.downloads import RemoteFile, download
    from stages.errors import DataError

    s3.client.put_object(Bucket="fewstep", Key="text/a.en", Body=b"A man reads.\n" * 1000)
    file = download(RemoteFile(url="s3://fewstep/text/a.en"), Store(tmp_path))
    assert (file.path.name, file.path.stat().st_size) == ("a.en", 13000)
    with pytest.raises(DataError, match="expected a file, got none"):
        download(RemoteFile(url="s3://fewstep/text/b.en"), Store(tmp_path))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Return a function that mounts a file system of a given size; called again, it enlarges it."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def sized(size: str) -> Path:
        options = f"remount,size={size}" if os.path.ismount(disk) else f"size={size}"
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], capture_output=True, text=True)
        if mounted.returncode != 0:
            pytest.skip(f"this user may not mount a small disk: {mounted.stderr.strip()}")
        return disk

    yield sized
    if os.path.ismount(disk):
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("size", rest_exhaustive(["16k", "32k", "48k", "64k", "128k", "256k", "400k", "480k"], ["64k"]))
def test_wherever_the_disk_is_full_it_is_said_and_nothing_is_lost(
    size: str, undisturbed: Watched, small_disk: Callable[[str], Path]
) -> None:
    """The disk is full at several sizes: from the first file of a run to the last of its data steps."""
    store = small_disk(size) / "store"
    command = [*Watched(store, *FAST).command(), "--until", "encode:raw"]
    failed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert failed.returncode == 1, failed.stderr
    assert "could not be written" in failed.stderr
    assert "free some space" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert [problem for _, problem in Store(store).verify_all() if problem] == []
    small_disk("50m")
    run = Watched(store, *FAST, "--until", "encode:raw")
    assert subprocess.run(run.command(), cwd=ROOT).returncode == 0
    files = here(run)
    assert files == {step: undisturbed.files()[step] for step in files}
    assert "encode:raw" in files


@pytest.mark.exhaustive
def test_a_file_that_may_grow_no_further_is_a_full_disk(undisturbed: Watched, tmp_path: Path) -> None:
    """For machines on which mounting is not permitted: the largest file allowed is smaller than a shard of the text."""
    run = Watched(tmp_path / "store", *FAST, "--until", "encode:raw")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))

    failed = subprocess.run(run.command(), cwd=ROOT, capture_output=True, text=True, preexec_fn=limit)
    assert failed.returncode == 1, failed.stderr
    assert "could not be written" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert subprocess.run(run.command(), cwd=ROOT).returncode == 0
    files = here(run)
    assert files == {step: undisturbed.files()[step] for step in files}


def test_a_full_disk_while_fetching_leaves_nothing_half(
    undisturbed: Watched, tmp_path: Path, small_disk: Callable[[str], Path]
) -> None:
    mirror = Mirror(f"file://{tmp_path}/mirror", Store(undisturbed.store))
    (model,) = (
        path.parent for path in (undisturbed.store / "system").glob("*/manifest.json") if b'"distilled"' in path.read_bytes()
    )
    assert mirror.push(model)
    store = Store(small_disk("300k") / "store")
    from stages.errors import StageError

    with pytest.raises(StageError, match="could not be written: No space left"):
        Mirror(mirror.url, store).pull(store.directory("system", model.name))
    assert not list(store.root.rglob("*.safetensors"))
    small_disk("50m")
    assert Mirror(mirror.url, store).pull(store.directory("system", model.name))
    store.verify(store.directory("system", model.name))
    shutil.rmtree(store.root)
