"""`fewstep init`: a config for two files that plans as it stands."""

from __future__ import annotations

import errno
import gzip
from pathlib import Path
from typing import Any

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
        numbers = [line.split()[-1] for line in texts[f"{name}.en"]]
        assert len(set(numbers)) == 10
        assert numbers == [line.split()[-1] for line in texts[f"{name}.fr"]]
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
        (["short.fr", "shorter.en"], "expected at least 20 pairs to take test pairs from, got 1"),
        (["short.fr", "short.fr"], "expected two files, got short.fr for both sides"),
        (["text.en.gz", "text.fr", "--languages", "en", "en"], "expected two languages, got en for both sides"),
        (
            ["text.en.gz", "text.fr", "--languages", "english", "fr"],
            "expected a language code such as en, de or pt-BR, got 'english'",
        ),
        (["text.en.gz", "text.fr", "--languages", "null", "fr"], "got 'null'"),
        (["text.en.gz", "text.fr", "--languages", "en/us", "fr"], "got 'en/us'"),
        (["text.en.gz", "memory.tmx"], "got memory.tmx, which has both sides; name it alone"),
        (["text.en.gz", "table.tsv"], "expected text files with one sentence a line, got table.tsv (.tsv)"),
        (["memory.tmx"], "memory.tmx: expected a file that states its languages, got none; give --languages en fr"),
        (
            ["languages.tmx"],
            "languages.tmx: expected a file in two languages, got en fr de; give --languages en fr, or another pair",
        ),
        (["text.en.gz"], "expected files of one format (.po, .tmx"),
        (["several"], "got 1 of po, 1 of tmx in several"),
        (["text.en.gz", "noise.fr"], "expected pairs that pass the filters for the validation text, got none"),
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
    Path("shorter.en").write_text("one\n")
    Path("memory.tmx").write_text("<tmx/>\n")
    variant = '<tuv xml:lang="{}"><seg>a</seg></tuv>'.format
    units = "".join(f"<tu>{variant('en-US')}{variant(target)}</tu>" for target in ("fr-FR", "de", "fr"))
    Path("languages.tmx").write_text(f"<tmx><header/><body>{units}</body></tmx>")
    Path("table.tsv").write_text("a\tb\n")
    Path("several").mkdir()
    for name in ("a.po", "b.tmx", "c.txt"):
        Path("several", name).touch()
    Path("noise.fr").write_text("--- ???\n" * 200)
    assert main(["init", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not Path("mine").exists()


@pytest.mark.parametrize("name", ["1", "a,b", "it's", "no", "# x: {y}", "é ü"])
def test_any_names_of_files_are_planned(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    source, target = write_pairs(tmp_path)
    Path(name).mkdir()
    pair = source.rename(Path(name) / "1"), target.rename(Path(name) / "2")
    assert main(["init", *map(str, pair), "--languages", "no", "de", "--output", f"{name}/out"]) == 0
    assert "held out: 10 of 200 pairs for validation" in capsys.readouterr().out
    monkeypatch.chdir("/")  # paths do not depend on the shell's directory
    config = load_config(tmp_path / name / "out" / "config.yaml")
    assert (config.languages.source, config.corpus.train.source) == ("no", (tmp_path / name / "1",))


def test_a_config_that_cannot_be_planned_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pair = write_pairs(tmp_path)
    Path("store").write_text("no directory")
    assert main(["init", *map(str, pair)]) == 2
    assert "store" in capsys.readouterr().err
    assert not Path("mine").exists()


def test_what_a_run_would_drop_is_not_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    good = [(f"sentence {n}", f"phrase {n}") for n in range(300)]
    bad = [("", "vide"), ("the same", "the same"), ("x", "many times as long as the source " * 9), ("42 - 17", "?!")]
    rows = [bad[n // 2 % 4] if n % 2 else good[n] for n in range(300)]
    for side, name in enumerate(("t.en", "t.fr")):
        Path(name).write_text("".join(f"{row[side]}\n" for row in rows))
    assert main(["init", "t.en", "t.fr"]) == 0
    held = [
        pair
        for name in ("validation", "test")
        for pair in zip(*(Path(f"mine/{name}.{code}").read_text().splitlines() for code in ("en", "fr")), strict=True)
    ]
    assert len(set(held)) == len(held) == 30
    assert set(held) <= set(good)
    assert [path.name for path in Path().iterdir() if path.name.startswith(".")] == []


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    pair = write_pairs(tmp_path)
    write_text = Path.write_text

    def full(path: Path, *arguments: Any, **options: Any) -> int:
        if path.name == "test.fr":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_text(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        assert main(["init", *map(str, pair)]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.en.gz", "text.fr"]
    assert main(["init", *map(str, pair)]) == 0


def write_messages(path: Path, count: int, language: str = "fr") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = f'msgid ""\nmsgstr "Language: {language}\\nContent-Type: text/plain; charset=UTF-8\\n"\n'
    pairs = (f'\nmsgid "sentence {path.stem} {number}"\nmsgstr "phrase {path.stem} {number}"\n' for number in range(count))
    path.write_text(header + "".join(pairs))


def test_whole_files_of_messages_are_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(30):
        write_messages(Path(f"locale/fr/{number % 3}/{number}.po"), 10 + number, "fr_FR")
    assert main(["init", "locale/fr"]) == 0
    config = load_config(Path("mine/config.yaml"))
    assert (config.languages.source, config.languages.target) == ("en", "fr")
    assert config.corpus.train.po == (tmp_path / "locale/fr/**/*.po",)
    assert {"directive", "term"} <= set(config.corpus.placeholders)
    held = [config.corpus.validation.po, config.corpus.test["test"].po]
    assert all(held)
    assert not set(held[0]) & set(held[1])
    total = sum(10 + number for number in range(30))
    sizes = [sum(10 + int(path.stem) for path in files if isinstance(path, Path)) for files in held]
    assert all(0 < size <= 0.05 * total for size in sizes)
    assert f"held out: {sizes[0]} of {total} pairs for validation, in whole files" in capsys.readouterr().out
    assert [path.name for path in Path("mine").iterdir()] == ["config.yaml"]


def test_one_memory_is_held_out_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    units = (
        f'<tu><tuv xml:lang="en-US"><seg>sentence {n}</seg></tuv><tuv xml:lang="it"><seg>frase {n}</seg></tuv></tu>\n'
        for n in range(200)
    )
    Path("memory.tmx.gz").write_bytes(gzip.compress(f'<tmx version="1.4"><body>{"".join(units)}</body></tmx>'.encode()))
    assert main(["init", "memory.tmx.gz"]) == 0
    config = load_config(Path("mine/config.yaml"))
    assert (config.languages.source, config.languages.target) == ("en", "it")
    assert config.corpus.train.tmx == (tmp_path / "memory.tmx.gz",)
    assert len(Path("mine/test.it").read_text().splitlines()) == 10


def test_files_of_another_language_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("de", "fr"):
        write_messages(Path(f"locale/{name}/a.po"), 50, name)
    assert main(["init", "locale"]) == 2
    assert "locale/fr/a.po, line 1: expected translations into de, got Language: fr" in capsys.readouterr().err
