"""Resume checkpoints are complete or absent."""

import errno
import json
import os
import subprocess
import sys

import pytest
import torch

from models.bundle import weights
from models.bundle.weights import save_weights
from models.training import checkpoint
from models.training.checkpoint import Checkpoint, newest, save


def make(update):
    return Checkpoint(
        {"w": torch.full((3,), float(update))}, {"step": torch.tensor(float(update))}, {"update": update, "more": [1, 2]}
    )


def test_the_newest_of_two_kept_comes_back(tmp_path):
    for update in (9, 10, 100):
        save(tmp_path, make(update), "a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10", "100"]
    found = newest(tmp_path)
    assert found.state == {"update": 100, "more": [1, 2]}
    assert found.model["w"].equal(torch.full((3,), 100.0))
    assert found.optimizer["step"].item() == 100.0


def test_saving_an_update_again_replaces_it(tmp_path):
    save(tmp_path, make(5), "a")
    again = make(5)
    again.model["w"].fill_(7.0)
    save(tmp_path, again, "b")
    assert newest(tmp_path).model["w"].tolist() == [7.0] * 3


def test_no_directory_is_no_checkpoint(tmp_path):
    assert newest(tmp_path / "none") is None


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["gone", "short", "empty"])
def test_a_torn_directory_is_ignored(tmp_path, name, damage):
    save(tmp_path, make(1), "a")
    save(tmp_path, make(2), "a")
    path = tmp_path / "2" / name
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: -len(path.read_bytes()) // 2] if damage == "short" else b"")
    assert newest(tmp_path).state["update"] == 1


def test_what_a_dead_attempt_left_is_ignored(tmp_path):
    save(tmp_path, make(1), "a")
    (tmp_path / "2.dead.tmp").mkdir()
    (tmp_path / "candidates").mkdir()
    assert newest(tmp_path).state["update"] == 1


def test_another_schema_is_ignored(tmp_path):
    save(tmp_path, make(1), "a")
    path = tmp_path / "1" / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    assert newest(tmp_path) is None


def test_a_full_disk_leaves_the_earlier_one_whole(tmp_path, monkeypatch):
    save(tmp_path, make(1), "a")

    def full(tensors, path, metadata=None):
        raise checkpoint.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(weights, "save_file", full)
    with pytest.raises(OSError, match="No space left") as caught:
        save(tmp_path, make(2), "a")
    assert caught.value.errno == errno.ENOSPC
    assert os.listdir(tmp_path) == ["1"]
    assert newest(tmp_path).state["update"] == 1


LIMITED = """
import resource, signal, sys
import torch
from pathlib import Path
from models.bundle.weights import save_weights
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000))
try:
    save_weights(Path(sys.argv[1]), {"w": torch.zeros(100000)})
except OSError as error:
    print(error.errno)
"""


def test_a_file_that_cannot_grow_is_an_os_error(tmp_path):
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path / "w")], capture_output=True, text=True, check=True)
    assert int(done.stdout) == errno.EFBIG


def test_views_of_one_vector_are_saved_each_by_itself(tmp_path):
    flat = torch.arange(12.0)
    save_weights(tmp_path / "w", {"a": flat[:4], "b": flat[4:10].view(2, 3)})
    assert checkpoint.load_file(tmp_path / "w")["b"].tolist() == [[4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]
    assert (tmp_path / "w").stat().st_size < 1000
