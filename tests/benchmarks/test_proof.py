"""A proof ends in time, goes on from its files, and leaves out what fails, with the reason."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from benchmarks.proof import session, state
from benchmarks.proof.session import StoppedError, attempt
from benchmarks.proof.state import Item, halved, restored
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


def killed() -> None:
    os.kill(os.getpid(), 9)


def test_a_piece_that_ends_without_an_answer_says_how() -> None:
    with pytest.raises(ChildProcessError, match="code 3"):
        attempt(lambda: os._exit(3), time.monotonic() + LONG)
    with pytest.raises(ChildProcessError, match="code -9"):
        attempt(killed, time.monotonic() + LONG)


def deaf() -> None:
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(LONG)


@pytest.mark.parametrize("hang", [lambda: time.sleep(LONG), deaf], ids=["asked", "killed"])
def test_a_piece_that_hangs_is_stopped(hang: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "STOP_SECONDS", 0.5)
    with pytest.raises(StoppedError):
        attempt(hang, time.monotonic() + 0.5)


PROGRAM = """
import runpy, sys
absent = "ray mlflow kenlm py3langid rouge_score sacremoses fastapi uvicorn prometheus_client".split()
sys.modules.update(dict.fromkeys(absent))
sys.argv[0] = "proof"
runpy.run_module("benchmarks.proof", run_name="__main__")
"""
"""The program in a process that lacks what a machine with a GPU lacks, or may lack."""
SMALLER = {
    r"float16": "float32",
    r"engine: torch, ": "",
    r"(updates|validate_every): \d+": r"\1: 8",
    r"warmup_updates: \d+": "warmup_updates: 4",
    r"batch_tokens: \d+": "batch_tokens: 768",
    r"learning_rate: 0.0015": "learning_rate: 0.005",
    r"dropout: 0.\d": "dropout: 0",
    r"width: 256": "width: 64",
    r"feed_forward: 1024": "feed_forward: 128",
    r"coder_layers: 6": "coder_layers: 2",
    r"validation_sentences: \d+": "validation_sentences: 10",
    r"sentences: 128": "sentences: 6",
    r"batch_sizes: .*?\]": "batch_sizes: [3, 6]",
}
"""Changes that make minutes of a GPU seconds of a CPU."""
TINY = """
base: families.yaml
name: tiny
languages: {source: en, target: de}
corpus: {train: {embedded: 400}, validation: {embedded: 30}, test: {demo: {embedded: 12}}}
vocabulary: {size: 400}
teacher: {training: {updates: 260, warmup_updates: 40, validate_every: 50}}
evaluation: {metrics: [bleu, chrf]}
systems:
  too-large: {width: 512, decoder_layers: 6, search: greedy}
  shallow: null
  glat: null
  mask-predict: null
"""


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *words, "--to", str(folder)]


def run(folder: Path, *words: str) -> str:
    """Return the output of a session that ends by itself, and expect a piece to have failed."""
    found = subprocess.run(command(folder, "run", *words), capture_output=True, text=True, check=False, cwd=ROOT)
    assert found.returncode in (0, 1), found.stdout + found.stderr
    return found.stdout


def interrupted(folder: Path, moment: Callable[[], bool], number: signal.Signals) -> str:
    """Return the output of a session that gets a signal when a moment has come."""
    with subprocess.Popen(
        command(folder, "run", "--seconds", str(LONG)), stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    ) as process:
        while not moment() and process.poll() is None:
            time.sleep(0.05)
        assert process.poll() is None, "the session ended before the moment came"
        os.killpg(process.pid, number) if number == signal.SIGKILL else process.send_signal(number)
        assert process.stdout is not None
        return process.stdout.read()


def moved(folder: Path, to: Path) -> Path:
    """Take the files of a state to another machine."""
    shutil.copytree(folder, to)
    return to


def outcomes(output: str) -> dict[str, tuple[str, str]]:
    """Return the outcome and the reason of each piece of an output."""
    found = re.finditer(r"^(done|stopped|failed|left out) +[\d.]+ s  (\S+)  (.*)$", output, re.MULTILINE)
    return {line[2]: (line[1], line[3]) for line in found}


def validating(folder: Path) -> Callable[[], bool]:
    """Return whether a training has made its first validation."""
    store = folder.with_name(f"{folder.name}-work") / "store/train"
    return lambda: any(store.glob("*.partial-*/checkpoints/candidates/*"))


@pytest.mark.slow
def test_a_comparison_is_made_in_sessions_that_end_anyhow(tmp_path: Path) -> None:
    """Prepared, taken away without a word, taken away with notice, out of time, and gone on elsewhere each time."""
    text = (ROOT / "configs/proof/settings/families.yaml").read_text(encoding="utf-8")
    for pattern, smaller in SMALLER.items():
        text, changes = re.subn(pattern, smaller, text)
        assert changes, pattern
    (tmp_path / "families.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")

    first = tmp_path / "first"
    prepared = subprocess.run(
        command(first, "prepare", str(tmp_path / "tiny.yaml")), capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert prepared.returncode == 0, prepared.stdout + prepared.stderr
    assert not outcomes(interrupted(first, validating(first), signal.SIGKILL))

    second = moved(first, tmp_path / "second")
    stopped = outcomes(interrupted(second, validating(second), signal.SIGTERM))
    assert not stopped

    third = moved(second, tmp_path / "third")
    idle = outcomes(run(third, "--seconds", "1"))
    assert idle
    assert {outcome for outcome, _ in idle.values()} == {"left out"}
    assert idle["train:teacher"][1].startswith("0 s were left")
    assert idle["system:teacher"][1] == "needs train:teacher"

    fourth = moved(third, tmp_path / "fourth")
    output = run(fourth, "--seconds", str(LONG))
    found = outcomes(output)
    logs = [path.read_text() for path in tmp_path.glob("fourth-work/store/runs/tiny-*/logs/train-teacher*")]
    assert [int(update) >= 50 for update in re.findall(r"training from update (\d+) of 260", "".join(logs))] == [True]
    assert found["train:too-large"][0] == "failed"
    assert "expected a text of" in found["train:too-large"][1]
    spoiled = {piece for piece in found if "too-large" in piece}
    assert {piece: found[piece][0] for piece in spoiled} == {**dict.fromkeys(spoiled, "left out"), "train:too-large": "failed"}
    assert {outcome for piece, (outcome, _) in found.items() if piece not in spoiled} == {"done"}, output
    results = json.loads((fourth / "results.json").read_text(encoding="utf-8"))
    systems = {"autoregressive", "interleaved", "graph", "lattice", "aggressive", "ctc", "one-shot"}
    assert {row["system"] for row in results["rows"]} == systems
    assert set(results["timings"]) == {f"benchmark:{name}{rival}:demo" for name in systems for rival in ("", "/ctranslate2")}
    assert set(results["missing"]) == spoiled
    assert len(results["sessions"]) == 3  # the one that was taken away left its state, and no word of its end
    hypotheses = {(row["system"], row["search"]): row["metrics"]["bleu"]["score"] for row in results["rows"]}
    assert hypotheses["aggressive", "gad"] == hypotheses["autoregressive", "greedy"]
    written = [path.stat().st_size for path in fourth.glob("state-*")]
    assert max(written) <= 16 << 20
