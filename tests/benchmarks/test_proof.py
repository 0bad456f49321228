"""A proof ends in time, goes on from its files, and leaves out what fails, with the reason."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from benchmarks.proof import session, state
from benchmarks.proof.half import halved, restored
from benchmarks.proof.session import StoppedError, attempt
from benchmarks.proof.state import Item
from stages.errors import ArtifactError, DataError
from stages.train.state import MOMENTS_SINCE

ROOT = Path(__file__).resolve().parents[2]
LONG = 600.0
"""Seconds that no test takes."""


def test_weights_that_16_bits_can_hold_are_restored_to_the_byte() -> None:
    original = save(
        {"b": np.float32([[1.5, -2.0]]), "a": np.float32([0.1]).astype(np.float16).astype(np.float32)}, {"network": "{}"}
    )
    half = halved(original)
    assert half is not None
    assert len(half) == len(original) - 6
    assert restored(half) == original


@pytest.mark.parametrize("values", [np.float32([1e6]), np.float32([np.nan]), np.int64([1])], ids=["large", "nan", "integers"])
def test_other_values_are_not_halved(values: np.ndarray) -> None:
    assert halved(save({"a": values})) is None


def items(tmp_path: Path) -> list[Item]:
    exact, rough = (save({"a": np.float32([value] * 100)}) for value in (0.5, 0.1))
    (tmp_path / "text").write_text("hello\n" * 100)
    return [
        Item("first", {"store/a/model.safetensors": exact, "text": tmp_path / "text"}),
        Item("second", {"store/b/model.safetensors": exact, "store/b/rough.safetensors": rough}),
    ]


def test_files_come_back_to_the_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "PIECE_BYTES", 700)
    written = state.write(tmp_path / "out", items(tmp_path), 1 << 20)
    assert len(written["files"]) > 1
    assert not written["left_out"]
    assert max((tmp_path / "out" / name).stat().st_size for name in written["files"]) <= 700
    state.read(tmp_path / "out", tmp_path / "place")
    for item in items(tmp_path):
        for name, content in item.files.items():
            expected = content.read_bytes() if isinstance(content, Path) else content
            assert (tmp_path / "place" / name).read_bytes() == expected


def test_what_has_no_room_is_named_and_what_follows_is_kept(tmp_path: Path) -> None:
    large = Item("large", {"noise": np.random.default_rng(1).bytes(40_000)})
    first, second = items(tmp_path)
    written = state.write(tmp_path / "out", [first, large, second], 40_000)
    assert written["left_out"] == ["large"]
    assert sum((tmp_path / "out" / name).stat().st_size for name in written["files"]) <= 40_000
    state.read(tmp_path / "out", tmp_path / "place")
    assert (tmp_path / "place/store/b/rough.safetensors").is_file()
    assert not (tmp_path / "place/noise").exists()


def test_a_new_state_replaces_the_old_one(tmp_path: Path) -> None:
    for number, item in enumerate(items(tmp_path)):
        written = state.write(tmp_path / "out", [item], 1 << 20)
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*written["files"], "state.json"]), number


def test_files_of_another_state_are_refused(tmp_path: Path) -> None:
    written = state.write(tmp_path / "out", items(tmp_path), 1 << 20)
    (tmp_path / "out" / written["files"][0]).write_bytes(b"other")
    with pytest.raises(ArtifactError, match="sha256"):
        state.read(tmp_path / "out", tmp_path / "place")
    (tmp_path / "out" / written["files"][0]).unlink()
    with pytest.raises(ArtifactError, match="found none"):
        state.read(tmp_path / "out", tmp_path / "place")
    with pytest.raises(DataError, match="prepare"):
        state.read(tmp_path / "nothing", tmp_path / "place")


def test_an_interrupted_training_travels_without_moments_and_candidates(tmp_path: Path) -> None:
    for update in (5, 10):
        place = tmp_path / "checkpoints" / str(update)
        place.mkdir(parents=True)
        (place / "model.safetensors").write_bytes(save({"a": np.float32([0.1])}))
        moments = {name: np.float32([3.0]) for name in ("exp_avg", "exp_avg_sq", "step", "scale")}
        (place / "optimizer.safetensors").write_bytes(save(moments))
        (place / "state.json").write_text(json.dumps({"schema": 1, "update": update, "validations": [[5, 1.0, None, 0]]}))
    (tmp_path / "checkpoints/candidates").mkdir()
    (tmp_path / "checkpoints/candidates/5.safetensors").touch()
    (tmp_path / "stop").touch()
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards/00000.arrow").write_bytes(b"rows")
    found = dict(state.interrupted(tmp_path))
    names = {f"checkpoints/10/{name}" for name in ("model.safetensors", "optimizer.safetensors", "state.json")}
    assert set(found) == {*names, "shards/00000.arrow"}
    left = json.loads(found["checkpoints/10/state.json"])
    assert left == {"schema": 1, "update": 10, "validations": [], MOMENTS_SINCE: 10}
    optimizer = {name: float(value[0]) for name, value in load(found["checkpoints/10/optimizer.safetensors"]).items()}
    assert optimizer == {"exp_avg": 0.0, "exp_avg_sq": 0.0, "step": 0.0, "scale": 3.0}
    assert load(found["checkpoints/10/model.safetensors"])["a"][0] == np.float32(np.float16(0.1))


def test_an_answer_of_a_piece_is_returned() -> None:
    end = time.monotonic() + LONG
    assert attempt(lambda: "answer", end) == "answer"
    assert attempt(lambda: None, end) is None


def broken() -> str:
    raise RuntimeError("CUDA error: out of memory")


def test_an_error_of_a_piece_is_its_answer() -> None:
    assert attempt(broken, time.monotonic() + LONG) == "RuntimeError: CUDA error: out of memory"


def test_a_piece_that_ends_without_an_answer_says_how() -> None:
    with pytest.raises(ChildProcessError, match="code 3"):
        attempt(lambda: os._exit(3), time.monotonic() + LONG)
    with pytest.raises(ChildProcessError, match="code -9"):
        attempt(lambda: os.kill(os.getpid(), 9), time.monotonic() + LONG)  # type: ignore[arg-type, func-returns-value]


def deaf() -> None:
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(LONG)


@pytest.mark.parametrize("hang", [lambda: time.sleep(LONG), deaf], ids=["asked", "killed"])
def test_a_piece_that_hangs_is_stopped(hang: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "STOP_SECONDS", 0.5)
    with pytest.raises(StoppedError):
        attempt(hang, time.monotonic() + 0.5)  # type: ignore[arg-type]
