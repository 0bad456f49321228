"""Tests of `gc`, which deletes unused artifacts and keeps everything else."""

import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from pipeline.__main__ import main
from pipeline.run.run_directory import Run
from pipeline.store import garbage
from pipeline.store.artifacts import Store
from pipeline.store.attempts import partial_directory
from pipeline.store.downloads import downloads_folder
from pipeline.store.files import text_digest
from pipeline.store.lease import Lease, step_lease
from pipeline.store.marker import open_store
from tests.pipeline.run_specs import plan_entry, run_spec
from tests.processes import until

A, B, C = (letter * 32 for letter in "abc")
ZERO, ONE = "0" * 64, "1" * 64


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")


def write(path: Path, text: str = "0123456789") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def artifact(store: Store, fingerprint: str, **inputs: str) -> Path:
    directory = store.directory("train", fingerprint)
    write(directory / "model")
    write(directory / "manifest.json", json.dumps({"stage": "train", "fingerprint": fingerprint, "inputs": inputs}))
    return directory


def run(store: Store, name: str, *fingerprints: str, config: object = None) -> Run:
    record = Run(store.runs / name)
    plan = [plan_entry(f"train:{f[:1]}", fingerprint=f) for f in fingerprints]
    record.create(run_spec(*plan, run_id=name, config=config or {}))
    return record


def dead(lease: Lease) -> Path:
    """Write a lease of a process of this host that has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert lease.acquire()
    return rewritten(lease, pid=ended.pid, started=1)


def rewritten(lease: Lease, **process: object) -> Path:
    """Change the process in a lease file."""
    path = lease.path.with_name(f"{lease.path.name}-1")
    path.write_text(json.dumps({**json.loads(path.read_text()), **process}))
    return path


def old(path: Path) -> Path:
    moment = time.time() - 2 * garbage.QUIET_SECONDS
    for found in (path, *path.rglob("*")):
        os.utime(found, (moment, moment), follow_symlinks=False)
    return path


def taken(store: Store, **options: bool) -> dict[str, str]:
    found = {store.relative(item.path): item.reason for item in garbage.collect(store, **options)}
    before = {store.relative(path) for path in store.root.rglob("*")} - {".gc"}
    removed = {store.relative(item.path) for item in garbage.remove(store, **options)}
    after = {store.relative(path) for path in store.root.rglob("*")} - {".gc"}
    assert removed == set(found)
    gone = {path for path in before if any(path == item or path.startswith(f"{item}/") for item in found)}
    assert before - after == gone
    return found


def test_artifacts_without_a_run_are_removed(store: Store) -> None:
    kept, _ = artifact(store, A), artifact(store, B)
    run(store, "one", A)
    assert taken(store) == {f"train/{B}": "no run refers to it"}
    assert (kept / "model").exists()
    shutil.rmtree(store.runs / "one")
    assert taken(store) == {f"train/{A}": "no run refers to it"}


def test_inputs_of_referenced_artifacts_are_kept(store: Store) -> None:
    for fingerprint in (A, B, C):
        artifact(store, fingerprint, data=B if fingerprint == A else "")
    run(store, "one", A, config={"teacher": {"from": f"elsewhere/train/{C}"}})
    assert taken(store) == {}


def test_a_pinned_artifact_behind_a_link_is_kept(store: Store, tmp_path: Path) -> None:
    (tmp_path / "best").symlink_to(artifact(store, A))
    run(store, "one", config={"teacher": {"from": str(tmp_path / "best")}})
    assert taken(store) == {}


def test_unfinished_work_of_a_run_is_kept(store: Store) -> None:
    for fingerprint in (A, B):
        write(partial_directory(store.directory("train", fingerprint), "dead-1") / "checkpoints/100/model.safetensors")
    write(partial_directory(store.directory("train", A), "dead-1") / "checkpoints/200.dead-1.tmp/model.safetensors")
    write(partial_directory(store.directory("train", A), "dead-1") / "checkpoints/ray-dead-1/x")
    write(partial_directory(store.directory("train", A), "dead-1") / "model.dead-1.tmp")
    run(store, "one", A)
    assert taken(store) == {
        f"train/{A}.partial-dead-1/checkpoints/200.dead-1.tmp": "its attempt has ended",
        f"train/{A}.partial-dead-1/checkpoints/ray-dead-1": "its attempt has ended",
        f"train/{A}.partial-dead-1/model.dead-1.tmp": "its attempt has ended",
        f"train/{B}.partial-dead-1": "no run refers to it",
    }


def test_leftovers_of_a_finished_step_are_removed(store: Store) -> None:
    directory = artifact(store, A)
    write(directory / "checkpoints/100/model.safetensors")
    artifact(store, B)
    write(partial_directory(store.directory("train", B), "dead-1") / "shards/0")
    run(store, "one", A, B)
    assert taken(store) == {
        f"train/{A}/checkpoints": "its artifact is finished",
        f"train/{B}.partial-dead-1": "its artifact is finished",
    }
    assert (directory / "model").exists()


def test_files_of_a_live_process_are_kept(store: Store) -> None:
    """Files that no run refers to and temporary files are kept, too."""
    directory = store.directory("train", A)
    write(partial_directory(directory, "dead-1") / "model.living-1.tmp")
    write(store.shard_cache / f"{ZERO}.arrow.living-1.tmp")
    write(store.shard_cache / f"{ZERO}.arrow")
    lease = step_lease(directory, "living", 30)
    lease.acquire()
    assert taken(store, shards=True) == {}
    lease.release()
    assert set(taken(store, shards=True)) == {
        f"train/{A}.partial-dead-1",
        f"shards/{ZERO}.arrow.living-1.tmp",
        f"shards/{ZERO}.arrow",
    }


def test_a_process_of_another_host_is_alive_while_it_renews_its_lease(store: Store) -> None:
    directory = store.directory("train", A)
    write(partial_directory(directory, "dead-1") / "model")
    lease = step_lease(directory, "far", 1.0)
    assert lease.acquire()
    path, over = rewritten(lease, boot="another"), threading.Event()

    def renew() -> None:
        while not over.wait(0.1):
            lease.renew()

    thread = threading.Thread(target=renew)
    thread.start()
    rewritten(lease, boot="another")
    assert taken(store) == {}
    over.set()
    thread.join()
    old(path)  # the time of a file says nothing about its holder
    rewritten(lease, boot="another")
    assert set(taken(store)) == {f"train/{A}.partial-dead-1", f"train/{A}.lease-1"}


def test_leases_of_ended_processes_are_removed(store: Store) -> None:
    artifact(store, A)
    record = run(store, "one", A)
    paths = [dead(step_lease(store.directory("train", A), "x", 30)), dead(Lease(record.path / "driver.lease", "x", 30))]
    assert taken(store) == dict.fromkeys(map(store.relative, paths), "its holder has ended")


def test_decoded_shards_are_removed_only_on_request(store: Store) -> None:
    write(store.shard_cache / f"{ZERO}.arrow")
    write(store.shard_cache / f"{ONE}.arrow.dead-1.tmp")
    assert taken(store) == {f"shards/{ONE}.arrow.dead-1.tmp": "its attempt has ended"}
    assert taken(store, shards=True) == {f"shards/{ZERO}.arrow": "finished artifacts hold copies"}


def test_downloads_without_a_run_are_removed(store: Store) -> None:
    from pipeline.store import downloads

    for name, sha in (("named", A * 2), ("other", B * 2)):
        path = write(downloads_folder(store) / sha / "text.gz")
        downloads._write_record(downloads.RemoteFile(url=f"https://host/{name}"), store, sha, path)
    write(downloads_folder(store) / (C * 2) / "pinned.gz")
    for suffix in (".part", ".part.json", ".lock"):
        write(downloads_folder(store) / f"{ZERO[:32]}{suffix}")
    pinned = {"url": "https://host/pinned", "sha256": f"sha256:{C * 2}"}
    run(store, "one", config={"corpus": {"train": {"source": [{"url": "https://host/named", "sha256": ""}], "target": [pinned]}}})
    assert taken(store) == {}  # all files are recent and may belong to a run that is starting
    old(downloads_folder(store))
    note = downloads.record_file(store, "https://host/other").relative_to(store.root)
    partial = {f"downloads/{ZERO[:32]}{suffix}" for suffix in (".part", ".part.json", ".lock")}
    assert set(taken(store)) == {f"downloads/{B * 2}", *partial, str(note)}


def test_downloads_that_artifacts_were_made_from_are_kept(store: Store) -> None:
    """A data set by name stands in a config without its address."""
    used, other = (write(downloads_folder(store) / digest / "de-en.zip").parent for digest in (B * 2, C * 2))
    artifact(store, A, **{"files.source.0.digest": B * 2, "files.source.0.member": "a.en"})
    run(store, "one", A, config={"corpus": {"train": {"opus": ["News/v1"]}}})
    old(downloads_folder(store))
    assert set(taken(store)) == {f"downloads/{other.name}"}
    assert used.exists()


def test_an_active_fetch_is_kept(store: Store) -> None:
    young = write(store.directory("train", A).with_name(f"{A}.01234567.fetching") / "model").parent
    run(store, "one", A)
    assert taken(store) == {}
    old(young)
    assert taken(store) == {f"train/{A}.01234567.fetching": "its download was interrupted"}


def test_caches_about_missing_files_are_removed(store: Store, tmp_path: Path) -> None:
    here, gone = write(tmp_path / "here"), write(tmp_path / "gone")
    for path in (here, gone):
        store.digest(path)
    gone.unlink()
    write(store.root / "verified" / f"train-{A}.json", "{}")
    artifact(store, B)
    write(store.root / "verified" / f"train-{B}.json", "{}")
    run(store, "one", B)
    found = taken(store)
    assert sorted(found.values()) == ["its artifact does not exist", "its file does not exist"]
    assert f"verified/train-{A}.json" in found


def test_unknown_files_in_the_store_are_kept(store: Store) -> None:
    for name in ("mlflow.db", "mlruns/0/file", "notes/mine.txt", f"notes/{A[:31]}", "runs/latest.notes/x"):
        write(store.root / name)
    assert taken(store) == {}


def test_an_interrupted_removal_leaves_no_incomplete_artifact(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact(store, A)

    def killed(path: Path, ignore_errors: bool) -> None:
        (path / "model").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        garbage.remove(store)
    monkeypatch.undo()
    assert not store.directory("train", A).exists()
    assert list(store.verify_all()) == []
    assert set(taken(store).values()) == {"its removal was interrupted"}


def test_removal_waits_while_a_run_searches_the_store(store: Store) -> None:
    """The run refers to the artifacts that it finds before any can be removed."""
    artifact(store, A)
    removed: list[garbage.Garbage] = []
    with garbage.in_use(store):
        thread = threading.Thread(target=lambda: removed.extend(garbage.remove(store)))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        run(store, "one", A)
    thread.join()
    assert removed == []


def test_whoever_waits_for_a_lock_says_for_whom(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def search() -> None:
        with garbage.in_use(store):
            pass

    with garbage._locked(store):  # as a suspended `gc` does
        thread = threading.Thread(target=search)
        thread.start()
        until(lambda: caplog.text != "")
        assert thread.is_alive()
    thread.join()
    assert f"{store.root / '.gc'}: waits for process {os.getpid()} of " in caplog.text
    assert f"has held this lock since {time.strftime('%Y-')}" in caplog.text
    assert f"`kill -CONT {os.getpid()}`" in caplog.text


def test_a_lock_that_is_shared_holds_the_name_of_its_holder_while_it_is_held(store: Store) -> None:
    lock = store.root / ".gc"
    with garbage.in_use(store):
        with garbage.in_use(store):
            assert json.loads(lock.read_text())["pid"] == os.getpid()
        assert json.loads(lock.read_text())["pid"] == os.getpid()
    assert lock.read_text() == ""


def test_the_command_removes_files_only_with_delete(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    artifact(store, A)
    assert main(["gc", "--store", str(store.root)]) == 0
    listed = capsys.readouterr().out
    assert f"train/{A}  no run refers to it" in listed
    assert "can be deleted; give --delete" in listed
    assert store.directory("train", A).exists()
    assert main(["gc", "--store", str(store.root), "--delete"]) == 0
    assert " in 1 places removed" in capsys.readouterr().out
    assert not store.directory("train", A).exists()
    assert main(["gc", "--store", str(store.root / "none")]) == 2
    assert "expected the directory of a store" in capsys.readouterr().err


@pytest.mark.parametrize("path", [5, None, ["a"], "x" * 5000, "\0", "a\ud800"])
def test_a_digest_of_no_path_is_of_a_file_that_does_not_exist(store: Store, path: object) -> None:
    file = write(store.root / "digests" / text_digest(str(path)), json.dumps({"stamp": [path]}))
    assert [(item.path, item.reason) for item in garbage.collect(store)] == [(file, "its file does not exist")]
