"""Every way a config can be wrong is named with its place; every way it can be short means what the long form says."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from models.common.network import SIZES
from models.stepwise.config import StepwiseConfig, StepwiseSearch
from models.training.config import TrainingConfig
from pipeline import config_docs
from pipeline.config import (
    Benchmark,
    Evaluation,
    Pinned,
    RunConfig,
    StepwiseSystem,
    UsedSystem,
    load_config,
    parse_search,
    resolved,
)
from pipeline.errors import ConfigError
from stages.benchmark import BenchmarkConfig
from stages.decode import DecodeConfig
from stages.report import ReportConfig
from stages.score import ScoreConfig

ROOT = Path(__file__).resolve().parents[2]
TEACHER = "teacher: {data: raw}\n"
PAIR = "evaluation: {likelihood: true, mutual_information: {x: {parallel: fold, sequential: ones}}}\n"


def load(tmp_path: Path, text: str, *overrides: str) -> RunConfig:
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    return load_config(tmp_path / "c.yaml", overrides)


def wrong(tmp_path: Path, text: str, *overrides: str) -> list[str]:
    """All problems, with the folder cut off."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, *overrides)
    return [problem.removeprefix(f"{tmp_path}/") for problem in caught.value.problems]


def trained(config: RunConfig, name: str) -> StepwiseSystem:
    system = config.systems[name]
    assert isinstance(system, StepwiseSystem)
    return system


# ---- what is wrong


def test_an_engine_that_is_not_installed_is_told_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setattr("stages.engines.find_spec", lambda name: None)
    (problem,) = wrong(tmp_path, TEACHER + "distillation: {engine: ctranslate2}")
    assert problem.startswith("c.yaml:2: distillation.engine: expected the package ctranslate2")
    assert "pip install 'fewstep[ctranslate2]'" in problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("corups: {}", "c.yaml:1: corups: expected a known key, got 'corups'; did you mean 'corpus'?"),
        (
            "\ndefaults:\n  training:\n    batch_token: 3",
            "c.yaml:4: defaults.training.batch_token: expected a known key, got 'batch_token'; did you mean 'batch_tokens'?",
        ),
        ("languages: {xyz: en}", "c.yaml:1: languages.xyz: expected one of the keys source, target, got 'xyz'"),
        ("name: 3", "c.yaml:1: name: expected text, got 3"),
        ("name: a b", "c.yaml:1: name: expected letters, digits, _ and - only, got 'a b'"),
        ("corpus: {shard_rows: 1.5}", "c.yaml:1: corpus.shard_rows: expected a whole number, got 1.5"),
        ("corpus: {shard_rows: '7'}", "c.yaml:1: corpus.shard_rows: expected a whole number, got '7'"),
        ("corpus: {shard_rows: true}", "c.yaml:1: corpus.shard_rows: expected a whole number, got true"),
        ("corpus: {filters: {max_ratio: .nan}}", "c.yaml:1: corpus.filters.max_ratio: expected a finite number, got nan"),
        ("evaluation: {lowercase: yes}", "c.yaml:1: evaluation.lowercase: expected true or false, got 'yes'"),
        ("evaluation: {metrics: bleu}", "c.yaml:1: evaluation.metrics: expected a list, got 'bleu'"),
        ("store: here", "c.yaml:1: store: expected a map of keys, got 'here'"),
        ("systems:\n  small:", "c.yaml:2: systems.small: expected a map of keys, got nothing"),
        ("systems: {}", "c.yaml:1: systems: expected at least 1 entry, got a map"),
        (
            "defaults: {training: {precision: bf61}}",
            "c.yaml:1: defaults.training.precision: expected 'fp32', 'bf16' or 'fp16', got 'bf61'; did you mean 'bf16'?",
        ),
        ("cluster:\n  resources:\n    trian: {}", "got 'trian'; did you mean 'train'?"),
        ("vocabulary: {size: 8}", "c.yaml:1: vocabulary.size: expected more than 8, got 8"),
        ("defaults: {dropout: 1}", "c.yaml:1: defaults.dropout: expected less than 1, got 1"),
        ("defaults: {width: 7, heads: 1}", "c.yaml:1: defaults.width: expected a multiple of 2, got 7"),
        ("benchmark: {rounds: 1}", "c.yaml:1: benchmark.rounds: expected at least 2, got 1"),
        (
            "systems: {a: {order: interleaved, search: {greedy: {engine: ctranslate2}}}}",
            "c.yaml:1: systems.a.search.greedy.engine: expected auto or torch for order interleaved, got 'ctranslate2'",
        ),
        (
            "systems: {a: {search: {sample: {engine: ctranslate2}}}}",
            "c.yaml:1: systems.a.search.sample.engine: expected auto or torch for sampling, got 'ctranslate2'",
        ),
        (
            TEACHER + "distillation: {engine: ctranslate2, length_penalty_form: gnmt}",
            "c.yaml:2: distillation.length_penalty_form: expected power with engine ctranslate2, got 'gnmt'",
        ),
        (
            "teacher: {ensemble: 2}\ndistillation: {engine: ctranslate2}",
            "c.yaml:2: distillation.engine: expected auto or torch for an ensemble, got 'ctranslate2'",
        ),
        ("benchmark: {batch_sizes: []}", "c.yaml:1: benchmark.batch_sizes: expected at least 1 entry, got a list"),
        ("distillation: {beam_size: 0}", "c.yaml:1: distillation.beam_size: expected at least 1, got 0"),
        ("defaults: {training: {average_count: 0}}", "c.yaml:1: defaults.training.average_count: expected at least 1, got 0"),
        ("systems: {a: {width: 100, heads: 3}}", "c.yaml:1: systems.a.heads: expected a divisor of width 100, got 3"),
        ("teacher: {ensemble: 0}", "c.yaml:1: teacher.ensemble: expected at least 1, got 0"),
        (
            "teacher: {}\nsystems: {a: {use: ensemble}}",
            "c.yaml:2: systems.a.use: expected teacher, or teacher.ensemble of at least 2, got 'ensemble'",
        ),
        (
            "teacher: {from: t}\nsystems: {a: {use: ensemble}}",
            "c.yaml:2: systems.a.use: expected teacher, or teacher.ensemble of at least 2, got 'ensemble'",
        ),
        (
            "teacher: {}\nsystems: {a: {data: mixed, mixture: {raw: 0, distilled: 0}}}",
            "c.yaml:2: systems.a.mixture: expected at least 1 of either data, got none",
        ),
        (
            "distillation: {choose: reference}",
            "c.yaml:1: distillation.n_best: expected at least 2, to choose from, with choose: reference, got 1",
        ),
        ("distillation: {n_best: 9}", "c.yaml:1: distillation.n_best: expected at most 5, the size of the beam, got 9"),
        (
            "systems: {a: {search: [greedy, {beam: {beam_size: 2, n_best: 3}}]}}",
            "c.yaml:1: systems.a.search[1].beam.n_best: expected at most 2, the size of the beam, got 3",
        ),
        (
            "systems: {a: {search: [beam, beam]}}",
            "c.yaml:1: systems.a.search[1]: expected searches of different names, got 'beam5' again",
        ),
        ("systems: {a: {search: []}}", "c.yaml:1: systems.a.search: expected at least 1 entry, got a list"),
        (
            "systems: {a: {search: gredy}}",
            "c.yaml:1: systems.a.search: expected 'greedy', 'beam' or 'sample', got 'gredy'; did you mean 'greedy'?",
        ),
        ("systems: {a: {use: teacher}}", "c.yaml:1: systems.a.use: expected a teacher in the config, got none"),
        (
            "systems: {a: {data: mixed}}",
            "c.yaml:1: systems.a.data: expected a teacher (or distillation: {from: DIRECTORY}) for 'mixed', got none",
        ),
        (TEACHER + "systems: {a: {use: teacher, width: 3}}", "systems.a.width: expected one of the keys search, use, got 'width'"),
        ("teacher: {use: x}", "c.yaml:1: teacher.use: expected one of the keys attention_dropout, "),
        ("vocabulary: {use: x}", "c.yaml:1: vocabulary.use: expected one of the keys character_coverage, "),
        ("systems:\n  a: {from: x}", "c.yaml:2: systems.a.from: expected one of the keys attention_dropout, "),
        ("systems: {a: {<other>: 1}}", "c.yaml:1: systems.a.<other>: expected one of the keys attention_dropout, "),
        ("<x: 1", "c.yaml:1: <x: expected one of the keys alignment, base, benchmark, "),
        ("<other>: 1", "c.yaml:1: <other>: expected one of the keys alignment, base, benchmark, "),
        ("'[key]': 1", "c.yaml:1: [key]: expected one of the keys alignment, base, benchmark, "),
        ("systems: {'<x': {}}", "c.yaml:1: systems.<x: expected letters, digits, _ and - only, got '<x'"),
        (
            "name: a\n<<: {task: x}",
            "c.yaml:2: <<: expected a key, got YAML's merge key, which is not supported; use base: or defaults:",
        ),
        (
            "systems:\n  a: &a {width: 64}\n  b:\n    <<: *a\n    dropout: 0",
            "c.yaml:4: systems.b.<<: expected a key, got YAML's merge key, which is not supported",
        ),
        ("teacher: {data: distilled}", "c.yaml:1: teacher.data: expected 'raw', got 'distilled'"),
        ("systems: {teacher: {}}", "c.yaml:1: systems.teacher: expected a name other than 'teacher', whose steps are those of"),
        ("systems: {teacher: {use: teacher}}", "c.yaml:1: systems.teacher: expected a name other than 'teacher', whose steps are"),
        ("systems: {a.b: {}}", "c.yaml:1: systems.a.b: expected letters, digits, _ and - only, got 'a.b'"),
        ("evaluation: {baseline: b}\nsystems: {a: {}}", "c.yaml:1: evaluation.baseline: expected one of a, got 'b'"),
        ("benchmark: {test: tset}", "c.yaml:1: benchmark.test: expected one of test, got 'tset'; did you mean 'test'?"),
        (
            "corpus: {test: {train: {embedded: 1}}}",
            "corpus.test.train: expected a name other than 'train' and 'validation', got 'train'",
        ),
        (
            "corpus: {train: {}}",
            "c.yaml:1: corpus.train: expected exactly one of embedded, source and target, tsv, parquet, got none of them",
        ),
        ("corpus: {train: {embedded: 1, tsv: a}}", "tsv, parquet, got embedded, tsv"),
        ("corpus: {train: {source: a}}", "c.yaml:1: corpus.train.target: expected files of both sides, got no target"),
        (
            "corpus: {train: {source: a, target: b, references: [c]}}",
            "corpus.train.references: expected further references only beside",
        ),
        (
            "corpus: {filters: {min_length: 9, max_length: 8}}",
            "c.yaml:1: corpus.filters.max_length: expected at least min_length, got 8 < 9",
        ),
        ("languages: {target: fr}", "corpus.train.embedded: expected languages en and de with the embedded corpus, got en-fr"),
        (
            "defaults: {training: {schedule: cosine, updates: 9}}",
            "defaults.training.warmup_updates: expected less than updates (9) with the cosine schedule, got 1000",
        ),
        ("defaults: {training: {validation_sentences: 0}}", "expected at least 1 with validation_metric bleu, got 0"),
        ("evaluation: {metrics: [ter], minimum_bleu: 3}", "evaluation.metrics: expected bleu among them for minimum_bleu"),
        ("evaluation: {minimum_rouge: 3}", "c.yaml:1: evaluation.metrics: expected rougeL among them for minimum_rouge"),
        ("task: summarisation", "c.yaml:1: task: expected 'translation' or 'summarization', got 'summarisation'; did you mean"),
        ("task: [summarization]", "c.yaml:1: task: expected 'translation' or 'summarization', got a list"),
        (
            "task: summarization\nlanguages: {source: de}",
            "corpus.train.embedded: expected languages en and en with the embedded corpus, got de-de",
        ),
        (
            "task: summarization\ndefaults: {training: {validation_metric: bleu}}",
            "c.yaml:2: defaults.training.validation_metric: expected loss or rougeL with task summarization, got 'bleu'",
        ),
        ("systems: {a: {training: {validation_metric: rougeL}}}", "expected loss or bleu with task translation, got 'rougeL'"),
        (
            "corpus: {max_source_tokens: 400}",
            "training.max_tokens: expected at least 400, for sources cut to max_source_tokens (400), got 256",
        ),
        (
            "corpus: {max_source_tokens: 200}\ndefaults: {training: {batch_tokens: 200}}",
            "c.yaml:2: defaults.training.batch_tokens: expected at least 201, for sources cut to max_source_tokens (200), got 200",
        ),
        (
            "task: summarization\ncorpus: {max_source_tokens: 1000}\nsystems: {a: {max_positions: 1000}}",
            "c.yaml:3: systems.a.max_positions: expected more than max_source_tokens (1000), got 1000",
        ),
        (
            "evaluation: {contrastive: 9}\nlanguages: {target: fr}",
            "c.yaml:1: evaluation.contrastive: expected languages en and de with minimal pairs, got en-fr",
        ),
        (
            "evaluation: {graphs: 2}",
            "c.yaml:1: evaluation.graphs: expected 0 without a system of family dag, got 2",
        ),
        (
            "evaluation: {length_bins: [10, 30, 20]}",
            "c.yaml:1: evaluation.length_bins: expected ascending lengths, got [10, 30, 20]",
        ),
        ("evaluation: {contrastive: -1}", "c.yaml:1: evaluation.contrastive: expected at least 0, got -1"),
        (
            PAIR.replace("likelihood: true, ", ""),
            "c.yaml:1: evaluation.likelihood: expected true with mutual_information, got false",
        ),
        (
            PAIR + "systems: {fold: {order: interleaved}, one: {}}",
            "evaluation.mutual_information.x.sequential: expected one of fold, one, got 'ones'; did you mean 'one'?",
        ),
        (
            PAIR + "systems: {fold: {}, ones: {}}",
            "evaluation.mutual_information.x.parallel: expected a system of this config that writes several tokens a step, "
            "got 'fold', which writes 1",
        ),
        (
            PAIR + "systems: {fold: {order: interleaved}, ones: {order: double-token}}",
            "mutual_information.x.sequential: expected a system that writes one token a step, got 'ones', which writes 2",
        ),
        (
            PAIR + "systems: {fold: {order: interleaved}, ones: {}}",
            "evaluation.mutual_information.x.sequential: expected a system that writes in the arrangement of 'fold' (fold), "
            "got 'ones' (l2r)",
        ),
        (
            PAIR + "systems: {fold: {use: teacher}, ones: {}}\nteacher: {from: d}",
            "x.parallel: expected a system of this config that writes several tokens a step, got one that is pinned",
        ),
        (
            "evaluation: {likelihood: true, mutual_information: {x: {parallel: a}}}",
            "c.yaml:1: evaluation.mutual_information.x.sequential: expected a value, got nothing",
        ),
        ("base: [a]", "c.yaml:1: base: expected the path of one file, got a list"),
        ("name: a\nbase: none.yaml", "c.yaml:2: base: expected a file, got"),
        ("name: a\nname: b", "c.yaml:2: name: expected each key once, got it again (first on line 1)"),
        (
            "corpus:\n  test:\n    2016: {embedded: 1}",
            "c.yaml:3: corpus.test.2016: expected text as a key, got '2016'; put it in quotes",
        ),
        ("name: [a\nb: c", "c.yaml:2: expected YAML, got: "),
        ("- a", "c.yaml:1: expected a map of keys, got a list"),
        ("name: !!python/name:os.system x", "c.yaml:1: name: expected a plain YAML value"),
        ("corpus: &a\n  test: *a", "c.yaml:2: corpus.test: expected an alias of something else, got one that holds itself"),
    ],
)
def test_each_mistake_is_named_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    problems = wrong(tmp_path, text)
    assert any(problem in p for p in problems), problems
    assert all(p.startswith("c.yaml:") for p in problems)


def test_a_single_mistake_gives_a_single_problem(tmp_path: Path) -> None:
    """One in the defaults too, though it reaches the teacher and every system."""
    systems = TEACHER + "systems: {a: {use: teacher}, b: {}, c: {data: distilled}}\n"
    for text in (
        "defaults: {widht: 3}",
        "defaults: {training: {updates: x}}",
        "defaults: {heads: 3}",
        "defaults: {search: [{beam: {n_best: 7}}]}",
        "<<: {widht: 3}",
        "defaults: {<<: {}}",
        "distillation: {use: teacher}",
    ):
        assert len(wrong(tmp_path, systems + text)) == 1
    assert len(wrong(tmp_path, "systems: {a: {search: {beam: {beam_size: 0}}}}")) == 1


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "name: 1\nbenchmark: {rounds: 1}\nsystems:\n  a: {use: teacher}\n  b: {familly: x}\n  b: {}\nbase: 3\ncorpus: 3\n"
    problems = wrong(tmp_path, text, "cluster.retries=-1", "tracking")
    assert [p.split(": expected")[0] for p in problems] == [
        "c.yaml:6: systems.b",
        "c.yaml:7: base",
        "--set tracking",
        "--set cluster.retries=-1: cluster.retries",
        "c.yaml:1: name",
        "c.yaml:2: benchmark.rounds",
        "c.yaml:4: systems.a.use",
        "c.yaml:5: systems.b.familly",
        "c.yaml:8: corpus",
    ]


def test_a_rule_is_silent_about_a_value_that_is_wrong_by_itself(tmp_path: Path) -> None:
    assert wrong(tmp_path, "systems: {a: {width: x, heads: 3}}") == ["c.yaml:1: systems.a.width: expected a whole number, got 'x'"]
    assert wrong(tmp_path, "systems: {a: 3, b: {}}\nevaluation: {baseline: a}") == [
        "c.yaml:1: systems.a: expected a map of keys, got 3"
    ]


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("name", "--set name: expected KEY=VALUE with a dotted key, such as training.updates=100"),
        ("a..b=1", "--set a..b=1: expected KEY=VALUE"),
        (
            "corpus.shard_row=1",
            "--set corpus.shard_row=1: corpus.shard_row: expected a known key, got 'shard_row'; did you mean 'shard_rows'?",
        ),
        ("name.x=1", "--set name.x=1: name: expected text, got a map"),
        ("name=[", "--set name=[: expected YAML, got: "),
        ("systems={a: {<<: {}}}", "--set systems={a: {<<: {}}}: systems.a.<<: expected a key, got YAML's merge key"),
        ("base=x.yaml", "--set base=x.yaml: base: expected"),
    ],
)
def test_a_wrong_override_is_named_as_such(tmp_path: Path, override: str, problem: str) -> None:
    (found,) = wrong(tmp_path, "name: a", override)
    assert found.startswith(problem)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: expected a readable YAML file, got: No such file"):
        load_config(tmp_path / "none.yaml")
    (tmp_path / "c.yaml").write_bytes(b"name: \xff")
    with pytest.raises(ConfigError, match=r"c\.yaml: expected UTF-8, got the byte 0xff at 6"):
        load_config(tmp_path / "c.yaml")


# ---- what is meant


def test_an_empty_file_is_a_whole_config(tmp_path: Path) -> None:
    config = load(tmp_path, "")
    assert config == load(tmp_path, "name: run\nsystems: {autoregressive: {}}\ncluster:\n")
    assert config.teacher is None
    assert (config.evaluation.baseline, config.benchmark.test, config.tracking.experiment) == ("autoregressive", "test", "run")
    assert load(tmp_path, TEACHER).systems == {"autoregressive": UsedSystem(use="teacher")}


def test_base_is_merged_map_by_map_and_lists_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "base.yaml").write_text(
        "name: base\nevaluation: {metrics: [bleu, ter], samples: 7}\ncorpus: {test: {one: {embedded: 1}}}\nbenchmark: {rouns: 3}\n"
    )
    text = "base: sub/base.yaml\nname: top\nevaluation: {metrics: [chrf]}\ncorpus: {test: {two: {embedded: 2}}}\n"
    assert wrong(tmp_path, text) == ["sub/base.yaml:4: benchmark.rouns: expected a known key, got 'rouns'; did you mean 'rounds'?"]
    (tmp_path / "sub" / "base.yaml").write_text((tmp_path / "sub" / "base.yaml").read_text().replace("rouns", "rounds"))
    config = load(tmp_path, text, "evaluation.samples=9")
    assert (config.name, config.benchmark.rounds, config.evaluation.samples) == ("top", 3, 9)
    assert config.evaluation.metrics == ("chrf",)
    assert {name: text.embedded for name, text in config.corpus.test.items()} == {"one": 1, "two": 2}
    (tmp_path / "sub" / "base.yaml").write_text("name: a\nbase: c.yaml\n")
    assert wrong(tmp_path, text) == ["sub/base.yaml:2: base: expected no base in a file that is one itself"]


def test_a_test_set_that_is_set_to_nothing_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("corpus: {test: {one: {embedded: 1}, two: {embedded: 2}}}")
    config = load(tmp_path, "base: base.yaml\ncorpus: {test: {one: null, three: {embedded: 3}}}")
    assert list(config.corpus.test) == ["two", "three"]
    assert config.benchmark.test == "two"
    nothing = "expected a map of keys, got nothing"
    assert wrong(tmp_path, "base: base.yaml\ncorpus: {test: {four: null}}") == [f"c.yaml:2: corpus.test.four: {nothing}"]


def test_a_system_that_is_set_to_nothing_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("systems: {a: {}, b: {width: 64}, c: {}}")
    config = load(tmp_path, "base: base.yaml\nsystems: {a: null, d: {}}", "systems.c=null")
    assert list(config.systems) == ["b", "d"]
    assert config.evaluation.baseline == "b"
    again = load(tmp_path, "base: base.yaml\nsystems: {a: {}, b:}", "systems.b={}")
    assert list(again.systems) == ["a", "c", "b"]
    assert trained(again, "b").width == 128
    nothing = "expected a map of keys, got nothing"
    assert wrong(tmp_path, "base: base.yaml\nsystems: {aa: null}") == [f"c.yaml:2: systems.aa: {nothing}"]
    assert wrong(tmp_path, "base: base.yaml", "systems.aa=null") == [f"--set systems.aa=null: systems.aa: {nothing}"]
    assert wrong(tmp_path, "base: base.yaml\nsystems: {a: {training: null}}") == [f"c.yaml:2: systems.a.training: {nothing}"]
    assert wrong(tmp_path, "systems: {a: {}}", "systems.a=null") == [
        "--set systems.a=null: systems: expected at least 1 entry, got a map"
    ]


def test_overrides_take_yaml_and_the_last_wins(tmp_path: Path) -> None:
    config = load(
        tmp_path, "systems: {a: {}}", "systems.b={width: 64, training: {updates: 3}}", "systems.b.training.seed=5",
        "corpus.test={x: {tsv: f}}", "name=one", "name=two", "languages.target=no",
        "corpus.train={tsv: f}", "corpus.validation={tsv: f}",
    )  # fmt: skip
    assert trained(config, "b").training == TrainingConfig(updates=3, seed=5)
    assert trained(config, "b").width == 64
    assert (config.name, config.languages.target) == ("two", "no")


def test_defaults_lie_under_the_teacher_and_all_trained_systems(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "defaults: {dropout: 0.3, training: {updates: 50, seed: 2}, data: distilled, search: greedy}\n"
        "teacher: {training: {seed: 3}}\n"
        "systems: {t: {use: teacher}, a: {}, b: {data: raw, dropout: 0, training: {updates: 60}, search: [beam, greedy]}}\n",
    )
    assert config.teacher is not None
    assert not isinstance(config.teacher, Pinned)
    assert (config.teacher.dropout, config.teacher.data) == (0.3, "raw")
    assert config.teacher.training == TrainingConfig(updates=50, seed=3)
    a, b = trained(config, "a"), trained(config, "b")
    assert (a.data, a.dropout, a.training) == ("distilled", 0.3, TrainingConfig(updates=50, seed=2))
    assert (b.data, b.dropout, b.training) == ("raw", 0.0, TrainingConfig(updates=60, seed=2))
    assert [[s.name for s in config.systems[n].search] for n in "tab"] == [["greedy"], ["greedy"], ["beam5", "greedy"]]


def test_a_task_lies_under_everything(tmp_path: Path) -> None:
    """As a base would: whatever is stated anywhere else wins."""
    config = load(tmp_path, "task: summarization\nteacher: {}\nsystems: {t: {use: teacher}, a: {}, b: {training: {max_tokens: 9}}}")
    assert (config.languages.source, config.languages.target) == ("en", "en")
    assert (config.corpus.filters.max_ratio, config.corpus.filters.ratio, config.corpus.filters.max_length) == (
        1.0,
        "target",
        10000,
    )
    assert config.corpus.filters.min_letters == 0.5
    assert config.evaluation.metrics == ("rouge1", "rouge2", "rougeL")
    assert config.teacher is not None
    assert not isinstance(config.teacher, Pinned)
    assert config.teacher.training == TrainingConfig(max_tokens=1023, validation_metric="rougeL")
    assert trained(config, "a").training == config.teacher.training
    assert trained(config, "b").training == TrainingConfig(max_tokens=9, validation_metric="rougeL")
    own = "defaults: {training: {validation_metric: loss}}\ncorpus: {filters: {max_ratio: 2}}\nevaluation: {metrics: [rougeLsum]}\n"
    config = load(tmp_path, f"task: summarization\n{own}")
    assert trained(config, "autoregressive").training == TrainingConfig(max_tokens=1023, validation_metric="loss")
    assert (config.corpus.filters.max_ratio, config.corpus.filters.ratio) == (2.0, "target")
    assert config.evaluation.metrics == ("rougeLsum",)
    assert load(tmp_path, yaml.safe_dump(resolved(config))) == config
    assert load(tmp_path, f"{own.replace('rougeLsum', 'bleu')}task: translation").corpus.filters.ratio == "either"


def test_both_sides_of_a_summary_are_in_the_language_that_is_stated(tmp_path: Path) -> None:
    files = "corpus: {train: {tsv: a}, validation: {tsv: a}, test: {x: {tsv: a}}}\ntask: summarization\n"
    cases = {
        "{source: de}": ("de", "de"),
        "{target: fr}": ("fr", "fr"),
        "{source: de, target: en}": ("de", "en"),
        "{}": ("en", "en"),
    }
    for stated, expected in cases.items():
        config = load(tmp_path, f"{files}languages: {stated}")
        assert (config.languages.source, config.languages.target) == expected


def sizes(system: StepwiseConfig) -> dict[str, Any]:
    return {key: getattr(system, key) for key in SIZES["tiny"]}


def test_size_fills_in_what_is_not_stated(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "defaults: {size: base, width: 64, heads: 2}\n"
        "systems: {a: {}, b: {heads: 4}, c: {size: big}, d: {size: big, decoder_layers: 1}}",
    )
    assert sizes(trained(config, "a")) == {**SIZES["base"], "width": 64, "heads": 2}
    assert sizes(trained(config, "b")) == {**SIZES["base"], "width": 64, "heads": 4}
    assert sizes(trained(config, "c")) == SIZES["big"]
    assert sizes(trained(config, "d")) == {**SIZES["big"], "decoder_layers": 1}
    assert sizes(trained(load(tmp_path, ""), "autoregressive")) == SIZES["tiny"]


def test_searches_have_short_forms(tmp_path: Path) -> None:
    forms = {
        "greedy": [StepwiseSearch()],
        "[beam, greedy]": [StepwiseSearch(strategy="beam"), StepwiseSearch()],
        "{beam: {}}": [StepwiseSearch(strategy="beam")],
        "{beam:}": [StepwiseSearch(strategy="beam")],
        "{beam: {beam_size: 4, length_penalty: 0}}": [StepwiseSearch(strategy="beam", beam_size=4, length_penalty=0.0)],
        "[{strategy: beam, beam_size: 2}]": [StepwiseSearch(strategy="beam", beam_size=2)],
        "{beam_size: 2}": [StepwiseSearch(beam_size=2)],
    }
    for text, expected in forms.items():
        assert list(load(tmp_path, f"systems: {{a: {{search: {text}}}}}").systems["a"].search) == expected
        if len(expected) == 1:
            assert parse_search(text, "--search") == expected[0]
    with pytest.raises(
        ConfigError, match=r"^--search bem: expected 'greedy', 'beam' or 'sample', got 'bem'; did you mean 'beam'\?$"
    ):
        parse_search("bem", "--search bem")


def test_pairs_of_systems_that_write_in_one_arrangement(tmp_path: Path) -> None:
    one = "systems: {fold: {order: interleaved-sa}, ones: {order: bidirectional-autoregressive}}"
    (pair,) = load(tmp_path, PAIR + one).evaluation.mutual_information.values()
    assert (pair.parallel, pair.sequential) == ("fold", "ones")
    load(tmp_path, PAIR + TEACHER + "systems: {fold: {order: semi-autoregressive}, ones: {use: teacher}}")
    load(tmp_path, PAIR + "teacher: {from: d}\nsystems: {fold: {order: semi-autoregressive}, ones: {use: teacher}}")
    (problem,) = wrong(tmp_path, PAIR + "systems: {fold: {order: interleaved, step_size: 3}, ones: {}}")
    assert problem.startswith("c.yaml:2: systems.fold.order: expected an order that goes together")


def test_texts_take_one_file_or_several(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "corpus:\n  train: {source: a.en, target: [a.de, b.de]}\n  validation: {parquet: v}\n"
        "  test: {x: {source: s, target: t, references: [r1, [r2, r3]]}}\n",
    )
    assert config.corpus.train.source == (Path("a.en"),)
    assert config.corpus.train.target == (Path("a.de"), Path("b.de"))
    assert config.corpus.validation.parquet == (Path("v"),)
    assert config.corpus.test["x"].references == ((Path("r1"),), (Path("r2"), Path("r3")))


def test_pinned_parts(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "vocabulary: {from: v}\nteacher: {from: t}\ndistillation: {from: d}\ndefaults: {width: 64}\n"
        "systems: {a: {use: teacher}, b: {data: distilled}}",
    )
    assert (config.vocabulary, config.teacher, config.distillation) == tuple(Pinned(path=Path(p)) for p in "vtd")
    assert load(tmp_path, "distillation: {from: d}\nsystems: {b: {data: distilled}}").teacher is None


def test_yaml_scalars_mean_what_they_look_like(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "name: 2024-01-31\ndefaults: {training: {adam_epsilon: 1e-8, updates: 1_000, learning_rate: 1}}\n"
        "evaluation: {minimum_bleu: 3}",
    )
    training = trained(config, "autoregressive").training
    assert (config.name, training.adam_epsilon, training.updates) == ("2024-01-31", 1e-8, 1000)
    assert type(training.learning_rate) is float
    assert type(config.evaluation.minimum_bleu) is float


def test_what_is_repeated_of_the_stages_is_the_same_as_there() -> None:
    for mine, theirs in (
        (Evaluation, ScoreConfig),
        (Evaluation, ReportConfig),
        (Evaluation, DecodeConfig),
        (Benchmark, BenchmarkConfig),
    ):
        defaults = {f.name: f.default for f in dataclasses.fields(theirs)}
        for field in dataclasses.fields(mine):
            if field.name in defaults and field.name != "baseline":
                assert field.default == defaults[field.name]
                assert get_type_hints(mine)[field.name] == get_type_hints(theirs)[field.name]


# ---- the resolved config

TRAINING = st.fixed_dictionaries(
    {},
    optional={
        "updates": st.integers(1, 10**6),
        "learning_rate": st.floats(1e-9, 1e3) | st.integers(1, 5),
        "schedule": st.sampled_from(["inverse_sqrt", "constant"]),
        "precision": st.sampled_from(["fp32", "bf16", "fp16"]),
        "label_smoothing": st.floats(0, 0.99),
    },
)
BEAM = st.fixed_dictionaries({}, optional={"length_penalty": st.floats(0, 9), "allow_unknown": st.booleans()})
SEARCH = st.sampled_from(["greedy", "beam"]) | BEAM.map(lambda options: {"beam": {"beam_size": 3, **options}})
NETWORK = {
    "size": st.sampled_from(["tiny", "base", "big"]),
    "width": st.integers(1, 9).map(lambda n: 144 * n),
    "heads": st.sampled_from([1, 2, 3, 4, 6, 8, 16]).filter(lambda h: 144 % h == 0 and 128 % h == 0),
    "decoder_layers": st.integers(1, 9),
    "dropout": st.floats(0, 0.99),
    "training": TRAINING,
}
SEARCHES = SEARCH | st.lists(SEARCH, min_size=1, unique_by=lambda s: str(s) if isinstance(s, str) else "beam3", max_size=3)
SYSTEM = st.fixed_dictionaries({}, optional={**NETWORK, "data": st.sampled_from(["raw", "distilled", "mixed"]), "search": SEARCHES})
PATHS = st.text("abc/. ", min_size=1, max_size=5)
FILES = PATHS | st.lists(PATHS, min_size=1, max_size=2)
TEXT = (
    st.integers(1, 99).map(lambda n: {"embedded": n})
    | FILES.map(lambda f: {"tsv": f})
    | st.fixed_dictionaries({"source": FILES, "target": FILES})
)
NAMES = st.text("abz09_-", min_size=1, max_size=6)
CONFIG = st.fixed_dictionaries(
    {"teacher": st.fixed_dictionaries({}, optional=NETWORK) | PATHS.map(lambda p: {"from": p})},
    optional={
        "name": NAMES,
        "defaults": SYSTEM,
        "systems": st.dictionaries(NAMES, SYSTEM | st.just({"use": "teacher"}), min_size=1, max_size=3),
        "corpus": st.fixed_dictionaries({}, optional={"train": TEXT, "test": st.dictionaries(NAMES, TEXT, min_size=1, max_size=2)}),
        "vocabulary": PATHS.map(lambda p: {"from": p}) | st.fixed_dictionaries({}, optional={"size": st.integers(9, 10**6)}),
        "distillation": PATHS.map(lambda p: {"from": p}) | BEAM,
        "cluster": st.fixed_dictionaries(
            {}, optional={"resources": st.just({"train": {"cpus": 1, "custom": {"big": 1}}}), "cpus": st.none()}
        ),
        "evaluation": st.fixed_dictionaries({}, optional={"minimum_bleu": st.floats(0, 99), "metrics": st.just(["bleu"])}),
    },
)


@settings(max_examples=60)
@given(written=CONFIG)
def test_the_resolved_config_loads_back_to_an_equal_one(tmp_path_factory: pytest.TempPathFactory, written: dict[str, Any]) -> None:
    tmp_path = tmp_path_factory.mktemp("config")
    config = load(tmp_path, yaml.safe_dump(written))
    again = json.loads(json.dumps(resolved(config)))
    assert load(tmp_path, yaml.safe_dump(again)) == config
    assert resolved(load(tmp_path, yaml.safe_dump(again))) == again


def test_the_resolved_config_leaves_nothing_open(tmp_path: Path) -> None:
    config = load(tmp_path, TEACHER + "defaults: {size: base}\nsystems: {a: {}, b: {use: teacher}}")
    for model in (resolved(config)["teacher"], resolved(config)["systems"]["a"]):
        assert {f.name for f in dataclasses.fields(StepwiseConfig)} <= set(model)
        assert model["width"] == 512
    assert set(resolved(config)) == {f.name for f in dataclasses.fields(RunConfig)}


def test_a_config_of_another_version_is_refused(tmp_path: Path) -> None:
    older = {**resolved(load(tmp_path, "")), "ensembles": {}}
    with pytest.raises(ConfigError, match=r"ensembles: expected one of the keys "):
        load(tmp_path, yaml.safe_dump(older))


# ---- what ships with the project


@pytest.mark.parametrize("path", sorted(ROOT.glob("configs/*.yaml")), ids=lambda p: p.name)
def test_shipped_configs_load_and_suit_the_schema(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    load_config(path)
    jsonschema.validate(yaml.safe_load(path.read_text()), json.loads((ROOT / "configs/schema.json").read_text()))


def test_the_schema_knows_short_forms_and_refuses_wrong_ones() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(config_docs.schema())
    text = {"corpus": {"train": {"source": "a", "target": ["b"]}, "test": {"x": {"tsv": "a"}}}}
    for search in ("greedy", ["greedy", {"beam": {"beam_size": 4}}], {"strategy": "beam"}):
        jsonschema.validate({**text, "teacher": {"from": "x"}, "systems": {"a": {"search": search}}}, schema)
    jsonschema.validate({"base": "b.yaml", "systems": {"a": None}}, schema)
    for bad in ({"corups": {}}, {"systems": {"a": {"search": "gredy"}}}, {"corpus": {"train": {"source": 3}}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)


def test_generated_pages_are_up_to_date() -> None:
    """`make docs` writes them."""
    assert (ROOT / "docs/configuration.md").read_text(encoding="utf-8") == config_docs.documentation()
    assert (ROOT / "configs/schema.json").read_text(encoding="utf-8") == config_docs.schema()


def test_importing_and_loading_needs_no_heavy_library() -> None:
    code = (
        "import sys; from pathlib import Path; from pipeline.config import load_config; load_config(Path('configs/demo.yaml'));"
        "print([m for m in ('torch', 'ray', 'mlflow', 'numpy', 'pyarrow', 'sentencepiece') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
