"""`fewstep init`: a config for two files that plans as it stands."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from pipeline.__main__ import main
from pipeline.config.load import load_config


def write_pairs(directory: Path, count: int = 200) -> tuple[Path, Path]:
    source, target = directory / "text.en.gz", directory / "text.fr"
    source.write_bytes(gzip.compress("".join(f"sentence {number}\n" for number in range(count)).encode()))
    target.write_text("".join(f"phrase {number}\n" for number in range(count)))
    return source, target


def test_the_config_plans_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    source, target = write_pairs(tmp_path)
    assert main(["init", str(source), str(target)]) == 0
    config = load_config(Path("mine/config.yaml"))
    assert (config.languages.source, config.languages.target) == ("en", "fr")
    assert main(["plan", "mine/config.yaml"]) == 0
    assert "report:run" in capsys.readouterr().out


def test_held_out_pairs_stay_together_and_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source, target = write_pairs(tmp_path)
    assert main(["init", str(source), str(target), "--output", "o"]) == 0
    texts = {
        name: Path(f"o/{name}").read_text().split("\n")[:-1] for name in ("validation.en", "validation.fr", "test.en", "test.fr")
    }
    for name in ("validation", "test"):
        numbers = [line.split()[1] for line in texts[f"{name}.en"]]
        assert len(set(numbers)) == 10
        assert numbers == [line.split()[1] for line in texts[f"{name}.fr"]]
    assert not set(texts["validation.en"]) & set(texts["test.en"])


def test_given_texts_are_named_and_nothing_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pair = tuple(map(str, write_pairs(tmp_path, 3)))
    assert main(["init", *pair, "--languages", "en", "it", "--validation", *pair, "--test", *pair]) == 0
    config = load_config(Path("mine/config.yaml"))
    assert config.languages.target == "it"
    assert config.corpus.test["test"].source == (tmp_path / "text.en.gz",)
    assert [path.name for path in Path("mine").iterdir()] == ["config.yaml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["text.en.gz", "text.fr", "--output", "there"], "expected a new directory, got there"),
        (["text.en.gz", "short.fr"], r"expected as many lines in short.fr as in text.en.gz (200), got 1"),
        (["text.en.gz", "plain"], "expected file names that end with a language"),
        (["short.fr", "short.fr"], "expected at least 20 pairs to take test pairs from, got 1"),
        (["none.en", "text.fr"], "none.en: expected"),
    ],
)
def test_wrong_input_is_explained_and_writes_nothing(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path)
    Path("there").mkdir()
    Path("short.fr").write_text("une\n")
    Path("plain").write_text("x\n")
    assert main(["init", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not Path("mine").exists()
