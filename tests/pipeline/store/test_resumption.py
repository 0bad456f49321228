"""Tests of downloads that break off: the bytes so far are kept, and used only if they are intact and of the same file."""

import hashlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.store import partial_file, streams, url_copy
from pipeline.store.artifacts import Store
from pipeline.store.downloads import RemoteFile, download
from stages.errors import DataError, StageError
from tests.pipeline.data.web import Site, serving
from tests.waiting import FAST_SECONDS

DATA = bytes(range(256)) * 4000
HALF = len(DATA) // 2


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(streams, "PAUSE_SECONDS", 0.01)
    with serving() as site:
        yield site


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


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
