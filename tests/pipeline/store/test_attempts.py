"""Attempts of steps, and their resumption."""

import hashlib
import json
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import durable
from pipeline.store import attempts, partial_file, streams, url_copy
from pipeline.store.artifacts import Store
from pipeline.store.attempts import begin_attempt, is_partial, partial_directories, partial_directory
from pipeline.store.downloads import RemoteFile, download
from pipeline.store.lease import Lease, step_lease
from stages.errors import ArtifactError, DataError, LeaseLostError, StageError
from tests.pipeline.data.web import Site, serving
from tests.pipeline.run_specs import manifest
from tests.processes import FAST_SECONDS

FINGERPRINT = "f" * 32


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def directory(store: Store) -> Path:
    return store.directory("toy", FINGERPRINT)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def held(directory: Path, attempt: str) -> Lease:
    """Return the lease of an attempt, which takes it from a holder that sleeps."""
    lease = step_lease(directory, attempt, 30)
    for current in step_lease(directory, "", 30)._files():
        current.write_text(json.dumps({**json.loads(current.read_text()), "pid": 2**22 + 1}))
    assert lease.acquire()
    return lease


def take_over(directory: Path, attempt: str) -> Lease:
    """Begin an attempt while the holder of the lease sleeps."""
    lease = held(directory, attempt)
    begin_attempt(directory, lease)
    return lease


def files(directory: Path) -> dict[str, str]:
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


def test_the_next_attempt_takes_over_the_pieces_and_nothing_else(directory: Path) -> None:
    first = begin_attempt(directory, held(directory, "a-1"))
    kept = {"shards/00000.arrow": "rows", "checkpoints/100/state.json": "{}", "records/metrics.a-1.jsonl": "x", "model.json": "m"}
    for name, text in kept.items():
        write(first / name, text)
    for name in ("manifest.json", "stop", "shards/00001.arrow.a-1.tmp", "checkpoints/200.a-1.tmp/model", "checkpoints/ray-a-1/x"):
        write(first / name, "torn")
    second = begin_attempt(directory, held(directory, "b-1"))
    assert files(second) == kept
    assert partial_directories(directory) == [second]
    assert is_partial(second)
    assert not is_partial(directory)


def test_a_directory_of_an_earlier_version_is_continued(directory: Path) -> None:
    write(directory.with_name(f"{FINGERPRINT}.partial") / "shards/00000.arrow", "rows")
    assert files(begin_attempt(directory, held(directory, "b-1"))) == {"shards/00000.arrow": "rows"}


def test_the_fullest_of_several_directories_is_continued(directory: Path) -> None:
    """An attempt that lost its directory makes a new one when it writes its next piece."""
    first = begin_attempt(directory, held(directory, "a-1"))
    for number in range(3):
        write(first / f"shards/{number:05d}.arrow", "rows")
    begin_attempt(directory, held(directory, "b-1"))
    write(first / "shards/00003.arrow", "rows")
    third = begin_attempt(directory, held(directory, "c-1"))
    assert sorted(files(third)) == [f"shards/{number:05d}.arrow" for number in range(3)]
    assert partial_directories(directory) == [third]


def test_a_writer_that_wakes_up_does_not_change_the_files_of_its_successor(directory: Path) -> None:
    first = begin_attempt(directory, held(directory, "a-1"))
    write(first / "shards/00000.arrow", "rows")
    with (first / "shards/00001.arrow.a-1.tmp").open("w") as shard, (first / "model.bin").open("w") as result:
        for file in (shard, result):
            file.write("before")
            file.flush()
        second = begin_attempt(directory, held(directory, "b-1"))
        (second / "model.bin").write_text("successor")
        for file in (shard, result):
            file.write("after")
    assert files(second) == {"shards/00000.arrow": "rows", "model.bin": "successor"}
    with pytest.raises(FileNotFoundError):
        durable.rename(first / "shards/00001.arrow.a-1.tmp", first / "shards/00001.arrow")


def test_a_commit_without_the_lease_is_refused(store: Store, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt is paused past its lease while it syncs its files, and wakes up before its rename."""
    lease = held(directory, "a-1")
    write(begin_attempt(directory, lease) / "result", "a")
    real, taken = durable.sync_tree, []

    def paused(*arguments: Any, **options: Any) -> None:
        real(*arguments, **options)
        taken.append(take_over(directory, "b-1"))

    monkeypatch.setattr(durable, "sync_tree", paused)
    with pytest.raises(LeaseLostError, match="expected the lease of a-1, but b-1 holds it"):
        store.commit(directory, manifest(attempt="a-1"), lease)
    monkeypatch.undo()
    assert not directory.exists()
    assert files(partial_directory(directory, "b-1")) == {"result": "a"}
    store.commit(directory, manifest(attempt="b-1"), taken[0])
    assert store.manifest(directory) is not None


def test_an_attempt_that_is_paused_between_the_check_and_the_rename_commits_nothing(
    store: Store, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = held(directory, "a-1")
    write(begin_attempt(directory, lease) / "result", "a")
    real = store._rename

    def paused(*arguments: Any) -> bool:
        take_over(directory, "b-1")
        return real(*arguments)

    monkeypatch.setattr(store, "_rename", paused)
    with pytest.raises(ArtifactError, match="No such file"):
        store.commit(directory, manifest(attempt="a-1"), lease)
    assert not directory.exists()
    assert files(partial_directory(directory, "b-1")) == {"result": "a"}


def test_a_commit_removes_what_a_slow_attempt_left(store: Store, directory: Path) -> None:
    first = begin_attempt(directory, held(directory, "a-1"))
    lease = held(directory, "b-1")
    write(begin_attempt(directory, lease) / "result", "b")
    write(first / "shards/00003.arrow", "rows")
    store.commit(directory, manifest(attempt="b-1"), lease)
    lease.release()
    assert [path.name for path in directory.parent.iterdir()] == [FINGERPRINT]


def test_a_driver_that_slept_before_it_takes_over_leaves_the_directory_to_the_holder(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paused after it had listed the directories, or before."""
    write(begin_attempt(directory, held(directory, "a-1")) / "shards/00000.arrow", "rows")
    sleeper = held(directory, "b-1")
    holder = take_over(directory, "c-1")
    with pytest.raises(LeaseLostError):
        begin_attempt(directory, sleeper)
    real = attempts.partial_directories

    def paused(directory: Path) -> list[Path]:
        found = real(directory)
        take_over(directory, "e-1")
        return found

    sleeper = held(directory, "d-1")
    monkeypatch.setattr(attempts, "partial_directories", lambda _: [monkeypatch.undo(), paused(directory)][1])
    with pytest.raises(LeaseLostError):
        begin_attempt(directory, sleeper)
    assert files(partial_directory(directory, "e-1")) == {"shards/00000.arrow": "rows"}
    assert not holder.held()


DATA = bytes(range(256)) * 4000
HALF = len(DATA) // 2


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(streams, "PAUSE_SECONDS", 0.01)
    with serving() as site:
        yield site


def parts(store: Store) -> list[Path]:
    return sorted(path for path in (store.root / "downloads").glob("*.part*"))


def broken_off(site: Site, store: Store, data: bytes = DATA) -> RemoteFile:
    """Try to download a file whose server breaks off half way and then fails."""
    remote = RemoteFile(url=site.put("/a.gz", data))
    site.faults = ["cut", "503", "503"]
    with pytest.raises(StageError, match=rf"the {len(data) // 2:,} bytes so far were kept: .* repeat the command to continue"):
        download(remote, store)
    return remote


def test_a_try_continues_the_one_before(site: Site, store: Store) -> None:
    remote = RemoteFile(url=site.put("/a.gz", DATA))
    site.faults = ["cut", "cut"]
    assert download(remote, store).path.read_bytes() == DATA
    assert [sent for *_, sent in site.requests] == [HALF, HALF // 2, HALF // 2]


def test_a_rerun_continues_a_download(site: Site, store: Store) -> None:
    remote = broken_off(site, store)
    assert download(remote, store).path.read_bytes() == DATA
    assert site.requests[-1] == ("/a.gz", f"bytes={HALF}-", HALF)
    assert parts(store) == []


def test_a_file_that_changed_meanwhile_is_downloaded_from_its_beginning(site: Site, store: Store) -> None:
    remote = broken_off(site, store)
    site.put("/a.gz", DATA[::-1])
    assert download(remote, store).path.read_bytes() == DATA[::-1]
    assert site.requests[-1] == ("/a.gz", f"bytes={HALF}-", len(DATA))


@pytest.mark.parametrize("damage", ["truncated", "altered", "longer", "record"])
def test_damaged_bytes_are_not_continued(site: Site, store: Store, damage: str) -> None:
    remote = broken_off(site, store)
    part, record = parts(store)
    if damage == "record":
        record.write_text("{")
    elif damage == "longer":  # behind the record: the process was killed
        part.write_bytes(part.read_bytes() + b"junk" * HALF)
    else:
        part.write_bytes(part.read_bytes()[:-1] + (b"" if damage == "truncated" else b"?"))
    assert download(remote, store).path.read_bytes() == DATA
    assert site.requests[-1][2] == (HALF if damage == "longer" else len(DATA))


def test_a_server_without_validators_begins_again(site: Site, store: Store) -> None:
    site.etags = False
    remote = RemoteFile(url=site.put("/a.gz", DATA))
    site.faults = ["cut", "503", "503"]
    with pytest.raises(StageError, match="the incomplete file was discarded"):
        download(remote, store)
    assert parts(store) == []
    assert download(remote, store).path.read_bytes() == DATA


def test_a_file_that_became_shorter_is_downloaded_from_its_beginning(site: Site, store: Store) -> None:
    remote = broken_off(site, store)
    site.faults = ["416"]
    assert download(remote, store).path.read_bytes() == DATA
    assert site.requests[-1][1:] == ("", len(DATA))


def test_a_continued_file_with_another_digest_than_the_pinned_one_is_refused(site: Site, store: Store) -> None:
    remote = broken_off(site, store)
    with pytest.raises(DataError, match=r"expected sha256 0{64}, which is pinned"):
        download(RemoteFile(url=remote.url, sha256="0" * 64), store)
    assert parts(store) == []


def killed_half_way(url: str, root: Path) -> None:
    """Download a file in a process that is killed after the first record."""
    record = partial_file.PartialFile._record

    def die(partial: partial_file.PartialFile, descriptor: int) -> None:
        record(partial, descriptor)
        if partial.offset >= HALF // 2:
            os.kill(os.getpid(), signal.SIGKILL)

    partial_file.PartialFile._record = die  # type: ignore[method-assign]
    partial_file.RECORD_BYTES = 1
    url_copy.BLOCK_BYTES = 1 << 16
    download(RemoteFile(url=url), Store(root))


def test_a_killed_download_is_continued(site: Site, store: Store) -> None:
    url = site.put("/a.gz", DATA)
    process = multiprocessing.get_context("fork").Process(target=killed_half_way, args=(url, store.root))
    process.start()
    process.join(FAST_SECONDS)
    assert process.exitcode == -signal.SIGKILL
    assert download(RemoteFile(url=url), store).digest == hashlib.sha256(DATA).hexdigest()
    assert 0 < site.requests[-1][2] < len(DATA)


def test_two_drivers_download_a_file_once(site: Site, store: Store) -> None:
    remote = RemoteFile(url=site.put("/a.gz", DATA))
    with ThreadPoolExecutor(4) as pool:
        files = list(pool.map(lambda _: download(remote, Store(store.root)), range(4)))
    assert len(set(files)) == len(site.requests) == 1


def test_offline_downloads_nothing(site: Site, store: Store) -> None:
    remote = RemoteFile(url=site.put("/a.gz", DATA))
    with pytest.raises(DataError, match=r"/a\.gz: not in the store and store\.offline: true; run fewstep data fetch CONFIG"):
        download(remote, store, offline=True)
    assert site.requests == []
    kept = download(remote, store)
    assert download(remote, store, offline=True) == kept
    assert len(site.requests) == 1
