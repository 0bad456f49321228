"""COMET with a package that stands in for unbabel-comet: same interface, scores by the words that occur in the reference."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from stages.artifacts import ExternalFile
from stages.errors import DataError
from stages.score.comet import comet
from stages.shared.decoding.sentences import Sentence

PACKAGE = """
import json
from types import SimpleNamespace

class Model:
    def predict(self, data, batch_size, gpus, progress_bar):
        assert gpus == 0 and not progress_bar
        words = [{name: set(text.split()) for name, text in row.items()} for row in data]
        return SimpleNamespace(scores=[len(row["mt"] & row["ref"]) / len(row["src"]) for row in words])

def load_from_checkpoint(path, local_files_only=False):
    assert local_files_only, "a download"
    json.load(open(path))
    return Model()
"""
SENTENCES = [Sentence(0, "a b", ("x y", "other")), Sentence(1, "c", ("z",))]


@pytest.fixture
def checkpoint(tmp_path: Path) -> ExternalFile:
    path = tmp_path / "model.ckpt"
    path.write_text(json.dumps({}))
    return ExternalFile(path, "0123456789abcdef0123")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "comet").mkdir()
    (tmp_path / "comet" / "__init__.py").write_text(PACKAGE)
    (tmp_path / "unbabel_comet-2.2.dist-info").mkdir()
    (tmp_path / "unbabel_comet-2.2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: unbabel-comet\nVersion: 2.2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "comet", raising=False)


@pytest.mark.usefixtures("package")
def test_the_score_is_the_mean_over_sentences_with_the_first_reference(checkpoint: ExternalFile) -> None:
    found = comet(checkpoint, SENTENCES, ["x w", "z"], gpus=False)
    assert found["score"] == pytest.approx(100 * (0.5 + 1) / 2)
    assert found["signature"] == "model:model|digest:0123456789abcdef|ref:first|version:2.2"


@pytest.mark.usefixtures("package")
def test_an_invalid_checkpoint_is_named(checkpoint: ExternalFile) -> None:
    checkpoint.path.write_text("no checkpoint")
    with pytest.raises(DataError, match=r"evaluation\.comet: expected a checkpoint of COMET .*model\.ckpt: "):
        comet(checkpoint, SENTENCES, ["x", "z"], gpus=False)


def test_a_missing_package_is_named(checkpoint: ExternalFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.score.comet.find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"evaluation\.comet: expected the package unbabel-comet .*, found no such package"):
        comet(checkpoint, SENTENCES, ["x", "z"], gpus=False)
