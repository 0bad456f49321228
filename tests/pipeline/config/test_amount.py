"""Values `auto` follow from the number of training pairs."""

import gzip
import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.stepwise.system import StepwiseTeacher
from pipeline.__main__ import main
from pipeline.config import amount
from pipeline.config.load import automatic_values, load_config
from pipeline.config.schema import RunConfig
from pipeline.errors import ConfigError
from stages.vocabulary import VocabularyOptions

QUICKSTART = Path(__file__).resolve().parents[3] / "configs/quickstart.yaml"


def values(config: RunConfig) -> tuple[Any, ...]:
    teacher, vocabulary = config.teacher, config.vocabulary
    assert isinstance(teacher, StepwiseTeacher)
    assert isinstance(vocabulary, VocabularyOptions)
    recipe = teacher.training
    return (
        vocabulary.size,
        teacher.width,
        teacher.dropout,
        (recipe.updates, recipe.batch_tokens, recipe.learning_rate, recipe.warmup_updates, recipe.validate_every),
    )


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (8000, (2000, 128, 0.3, (3700, 4096, 0.002, 528, 264))),
        (29_000, (8000, 128, 0.1, (7000, 4096, 0.002, 1000, 500))),
        (200_000, (16_000, 128, 0.1, (18_000, 4096, 0.002, 2571, 1285))),
        (4_500_000, (32_000, 512, 0.1, (87_000, 25_000, 0.0007, 4000, 6214))),
    ],
)
def test_the_quickstart_recipe_follows_the_table_of_its_page(pairs: int, expected: tuple[Any, ...]) -> None:
    assert values(load_config(QUICKSTART, [f"corpus.pairs={pairs}"])) == expected


@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("de", "en"), ("en", "fr"), ("en", "cs"), ("en", "ja")])
def test_the_recipe_is_the_same_for_all_languages(source: str, target: str) -> None:
    languages = [f"languages={{source: {source}, target: {target}}}", "corpus.pairs=29000"]
    assert values(load_config(QUICKSTART, languages)) == values(load_config(QUICKSTART, languages[1:]))


def test_updates_grow_with_the_text() -> None:
    counts = [amount.updates(2**power) for power in range(30)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (2000, 300_000)


def test_pairs_are_counted_in_files_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.en").write_text("x\n" * 3 + "last")
    Path("b.en.gz").write_bytes(gzip.compress(b"y\n" * 5))
    Path("c.tsv").write_text("a\tb\n" * 7)
    pq.write_table(pa.table({"source": ["a"] * 11, "target": ["b"] * 11}), "d.parquet")
    with ZipFile("e.zip", "w") as archive:
        archive.write("a.en", "deep/a.en")
    for train, count in (
        ({"embedded": 2000}, 2000),
        ({"source": ["a.en", "b.en.gz"], "target": "t"}, 9),
        ({"tsv": "c.tsv"}, 7),
        ({"parquet": "d.parquet"}, 11),
        ({"source": {"path": "a.en"}, "target": {"path": "t"}}, 4),
        ({"source": ["*.en", "b.en.*"], "target": "t"}, 9),
        ({"source": {"path": "e.zip", "member": "deep/a.en"}, "target": "t"}, 4),
        ({"tsv": "c.tsv", "parquet": {"path": "?.parquet", "columns": ["source", "target"]}, "embedded": 2}, 20),
    ):
        Path("c.yaml").write_text(json.dumps({"corpus": {"train": train}, "defaults": {"dropout": "auto"}}))
        assert automatic_values(Path("c.yaml")) == f"from {count:,} training pairs: defaults.dropout 0.3"


def test_systems_may_have_automatic_values_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "corpus: {pairs: 9000, train: {embedded: 5}}\nsystems: {a: {dropout: auto, training: {updates: auto}}, b: {family: dag}}\n"
    )
    config: Any = load_config(path)
    assert (config.systems["a"].dropout, config.systems["a"].training.updates) == (0.3, 3900)
    assert (config.systems["b"].dropout, config.systems["b"].training.updates) == (0.1, 10_000)
    assert "auto" not in automatic_values(path)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (["defaults.training.updates=200"], (128, (200, 4096, 0.002, 28, 14))),
        (["defaults.training.updates=200", "defaults.training.schedule=cosine"], (128, (200, 4096, 0.002, 28, 14))),
        (["defaults.training.updates=5"], (128, (5, 4096, 0.002, 0, 1))),
        (["defaults.training.updates=100000"], (128, (100_000, 4096, 0.002, 4000, 7142))),
        (["defaults.size=base"], (512, (7000, 25_000, 0.0007, 1000, 500))),
        (["defaults.size=big", "defaults.training.batch_tokens=9"], (1024, (7000, 9, 0.0007, 1000, 500))),
        (["corpus.pairs=4500000", "defaults.size=tiny"], (128, (87_000, 4096, 0.002, 4000, 6214))),
        (["teacher.training.updates=200"], (128, (200, 4096, 0.002, 28, 14))),
        (["teacher.size=base"], (512, (7000, 25_000, 0.0007, 1000, 500))),
    ],
)
def test_values_follow_from_the_stated_size_and_updates(stated: list[str], expected: tuple[Any, ...]) -> None:
    _, width, _, recipe = values(load_config(QUICKSTART, ["corpus.pairs=29000", *stated]))
    assert (width, recipe) == expected


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (["defaults.size=base"], 0.3),
        (["defaults.size=base", "corpus.pairs=200000"], 0.2),
        (["defaults.size=big", "corpus.pairs=500000"], 0.1),
        (["teacher.size=base"], 0.3),
        (["defaults.size=tiny", "corpus.pairs=19999"], 0.3),
        (["defaults.size=tiny", "corpus.pairs=4500000"], 0.1),
        (["teacher.size=base", "teacher.dropout=0.2"], 0.2),
    ],
)
def test_large_networks_have_more_dropout_on_the_same_text(stated: list[str], expected: float) -> None:
    teacher: Any = load_config(QUICKSTART, ["corpus.pairs=29000", *stated]).teacher
    assert teacher.dropout == expected


def test_a_system_with_a_size_and_updates_of_its_own_has_its_own_automatic_values() -> None:
    stated = ["corpus.pairs=29000", "systems.shallow.size=base", "systems.interleaved.training={updates: 200, warmup_updates: 3}"]
    systems: Any = load_config(QUICKSTART, stated).systems
    shallow, interleaved = systems["shallow"].training, systems["interleaved"].training
    assert (systems["shallow"].dropout, systems["interleaved"].dropout) == (0.3, 0.1)
    assert (shallow.learning_rate, shallow.batch_tokens, shallow.warmup_updates) == (0.0007, 25_000, 1000)
    assert (interleaved.warmup_updates, interleaved.validate_every, interleaved.batch_tokens) == (3, 14, 4096)
    assert "systems.interleaved.training.validate_every 14" in automatic_values(QUICKSTART, stated)


def test_values_follow_from_the_default_size_and_updates_where_none_are_stated(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "corpus: {pairs: 5000000, train: {embedded: 5}}\n"
        "defaults: {training: {learning_rate: auto, warmup_updates: auto}}\nsystems: {a: {}}\n"
    )
    systems: Any = load_config(path).systems
    training = systems["a"].training
    assert (training.learning_rate, training.warmup_updates) == (0.002, 10_000 // 7)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("teacher.training=5", "teacher.training: expected"),
        ("teacher.training.updates=many", "teacher.training.updates: expected"),
        ("defaults.size=huge", "defaults.size: expected"),
    ],
)
def test_wrong_values_that_others_follow_from_are_reported(stated: str, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(QUICKSTART, ["corpus.pairs=29000", "teacher.size=base", stated])
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ("{source: missing.en, target: missing.de}", "missing.en: No such file"),
        ("{source: 'https://example.org/a.en', target: b}", "counted; https://example.org/a.en is not on this machine; state"),
        ("{embedded: 5, source: ['hf:a/b@main/c.en'], target: b}", "hf:a/b@main/c.en is not on this machine; state"),
        ("{embedded: 5, opus: Books/v1}", "text by name (opus) is not on this machine; state their number as corpus.pairs"),
        ("{source: 'missing.*.en', target: 'missing.*.de'}", "missing.*.en: expected files that match the pattern, got none"),
        ("{}", "expected training text whose pairs can be counted; got no pairs; state their number as corpus.pairs"),
    ],
)
def test_text_that_cannot_be_counted_is_named_with_the_value(tmp_path: Path, train: str, expected: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"corpus: {{train: {train}}}\n\ndefaults: {{dropout: auto, width: 3}}\n")
    with pytest.raises(ConfigError) as error:
        load_config(path)
    assert f"{path}:3: defaults.dropout: expected" in str(error.value)
    assert expected in str(error.value)
    assert "defaults.width" in str(error.value)  # the other values are checked as well


def test_auto_is_refused_for_other_values(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("corpus: {pairs: 9, train: {embedded: 5}}\ndefaults: {width: auto}\n")
    with pytest.raises(ConfigError, match=r"defaults\.width: expected"):
        load_config(path)


def test_plan_prints_the_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"corpus: {{train: {{embedded: 600}}}}\nvocabulary: {{size: auto}}\nstore: {{path: {tmp_path / 's'}}}\n")
    assert main(["plan", str(path)]) == 0
    assert "from 600 training pairs: vocabulary.size 2000\n" in capsys.readouterr().out
