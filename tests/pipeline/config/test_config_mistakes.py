"""Every mistake in a config is reported with its place."""

from pathlib import Path

import pytest

from pipeline.config.load import load_config
from pipeline.errors import ConfigError
from tests.pipeline.config.config_text import PAIR, TEACHER, cases, wrong


def test_an_engine_that_is_not_installed_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setattr("stages.shared.decoding.searches.find_spec", lambda name: None)
    (problem,) = wrong(tmp_path, TEACHER + "distillation: {engine: ctranslate2}")
    assert problem.startswith("c.yaml:2: distillation.engine: expected the package ctranslate2")
    assert "pip install ctranslate2" in problem


MISTAKES = r"""
corups: {} => 1: corups: expected a known key, got 'corups'; did you mean 'corpus'?
\ndefaults:\n  training:\n    batch_token: 3
    => 4: defaults.training.batch_token: expected a known key, got 'batch_token'; did you mean 'batch_tokens'?
languages: {xyz: en} => 1: languages.xyz: expected one of the keys source, target, target_token, got 'xyz'
name: 3 => 1: name: expected text, got 3
name: a b => 1: name: expected letters, digits, _ and - only, got 'a b'
corpus: {shard_rows: 1.5} => 1: corpus.shard_rows: expected a whole number, got 1.5
corpus: {shard_rows: '7'} => 1: corpus.shard_rows: expected a whole number, got '7'
corpus: {shard_rows: true} => 1: corpus.shard_rows: expected a whole number, got true
corpus: {filters: {max_ratio: .nan}} => 1: corpus.filters.max_ratio: expected a finite number, got nan
evaluation: {lowercase: yes} => 1: evaluation.lowercase: expected true or false, got 'yes'
evaluation: {metrics: bleu} => 1: evaluation.metrics: expected a list, got 'bleu'
store: here => 1: store: expected a map of keys, got 'here'
systems:\n  small: => 2: systems.small: expected a map of keys, got nothing
systems: {} => 1: systems: expected at least 1 entry, got a map
defaults: {training: {precision: bfloat61}}
    => 1: defaults.training.precision: expected 'float32', 'bfloat16', 'float16', 'int8' or 'auto', got 'bfloat61'; did you mean 'bf
cluster:\n  resources:\n    trian: {} => got 'trian'; did you mean 'train'?
vocabulary: {size: 8} => 1: vocabulary.size: expected more than 8, got 8
defaults: {dropout: 1} => 1: defaults.dropout: expected less than 1, got 1
defaults: {width: 7, heads: 1} => 1: defaults.width: expected a multiple of 2, got 7
benchmark: {rounds: 1} => 1: benchmark.rounds: expected at least 2, got 1
systems: {a: {order: interleaved, search: {greedy: {engine: ctranslate2}}}}
    => 1: systems.a.search.greedy.engine: expected auto or torch for an order other than one token a step from left to right, got ct
systems: {a: {search: {sample: {engine: ctranslate2}}}}
    => 1: systems.a.search.sample.engine: expected auto or torch for sampling, got ctranslate2
systems: {a: {search: {sample: {precision: int8}}}} => 1: systems.a.search.sample.precision: expected float32 for sampling, got int8
systems: {a: {search: {greedy: {precision: int8, engine: torch}}}}
    => 1: systems.a.search.greedy.precision: expected float32, float16 or bfloat16 with engine torch, got int8
systems: {a: {search: {greedy: {precision: float16, engine: torch}}}}
    => 1: systems.a.search.greedy.precision: expected float32 with engine torch and no GPU for decode, got float16
systems: {a: {family: lattice, search: {viterbi: {precision: float16}}}}
    => 1: systems.a.search.viterbi.precision: expected float32, bfloat16 or int8 unless engine is torch, got float16
systems: {a: {family: lattice, search: {viterbi: {precision: bfloat16, engine: torch}}}}
    => 1: systems.a.search.viterbi.precision: expected float32 with engine torch and no GPU for decode, got bfloat16
evaluation: {length_penalties: [0.8, 1]}\nsystems: {a: {search: {beam: {precision: float16, engine: torch}}}}\ncluster: {resources: {decode: {gpus: 1}, benchmark: {gpus: 1}}}
    => 2: systems.a.search.beam.precision: expected float32 with engine torch and no GPU for tune, got float16
teacher: {data: raw}\ndistillation: {precision: bfloat16, engine: torch}
    => 2: distillation.precision: expected float32 with engine torch and no GPU for distill, got bfloat16
teacher: {data: raw}\ndistillation: {precision: float16}
    => 2: distillation.precision: expected float32, bfloat16 or int8 unless engine is torch or ctranslate2, got float16
teacher: {data: raw}\ndistillation: {engine: ctranslate2, length_penalty_form: gnmt}
    => 2: distillation.length_penalty_form: expected power with engine ctranslate2, got gnmt
teacher: {ensemble: 2}\ndistillation: {engine: ctranslate2}
    => 2: distillation.engine: expected auto or torch for an ensemble, got ctranslate2
benchmark: {batch_sizes: []} => 1: benchmark.batch_sizes: expected at least 1 entry, got a list
distillation: {beam_size: 0} => 1: distillation.beam_size: expected at least 1, got 0
defaults: {training: {num_averaged: 0}} => 1: defaults.training.num_averaged: expected at least 1, got 0
systems: {a: {width: 100, heads: 3}} => 1: systems.a.heads: expected a divisor of width 100, got 3
teacher: {ensemble: 0} => 1: teacher.ensemble: expected at least 1, got 0
teacher: {}\nsystems: {a: {use: ensemble}} => 2: systems.a.use: expected teacher, or teacher.ensemble of at least 2, got 'ensemble'
teacher: {from: t}\nsystems: {a: {use: ensemble}}
    => 2: systems.a.use: expected teacher, or teacher.ensemble of at least 2, got 'ensemble'
teacher: {}\nsystems: {a: {data: mixed, mixture: {raw: 0, distilled: 0}}}
    => 2: systems.a.mixture: expected at least 1 copy of one kind of data, got none
distillation: {choose: reference} => 1: distillation.n_best: expected at least 2, to choose from, with choose: reference, got 1
distillation: {choose: quality, n_best: 4}
    => 1: distillation.comet: expected a COMET model for quality estimation, with choose: quality, got none
distillation: {comet: m.ckpt} => 1: distillation.choose: expected mbr or quality with comet, a model that chooses, got score
distillation: {min_quality: 0.5} => 1: distillation.choose: expected quality with min_quality, got score
distillation: {choose: quality, comet: m.ckpt}
    => 1: distillation.n_best: expected at least 2, to choose from, with choose: quality, or min_quality, got 1
distillation: {n_best: 9} => 1: distillation.n_best: expected at most 5, the size of the beam, got 9
systems: {a: {search: [greedy, {beam: {beam_size: 2, n_best: 3}}]}}
    => 1: systems.a.search[1].beam.n_best: expected at most 2, the size of the beam, got 3
systems: {a: {search: [beam, beam]}} => 1: systems.a.search[1]: expected searches that differ, got 'beam' again
systems: {a: {search: []}} => 1: systems.a.search: expected at least 1 entry, got a map
systems: {a: {search: gredy}} => 1: systems.a.search: expected 'greedy', 'beam' or 'sample', got 'gredy'; did you mean 'greedy'?
systems: {a: {use: teacher}} => 1: systems.a.use: expected a teacher in the config, got none
systems: {a: {data: mixed}} => 1: systems.a.data: expected a teacher (or distillation: {from: DIRECTORY}) for 'mixed', got none
teacher: {data: raw}\nsystems: {a: {use: teacher, width: 3}} => systems.a.width: expected one of the keys search, use, got 'width'
teacher: {use: x} => 1: teacher.use: expected one of the keys activation, attention_dropout,
vocabulary: {use: x} => 1: vocabulary.use: expected 'teacher', got 'x'
systems:\n  a: {from: x} => 2: systems.a.from: expected the directory of a system (with system.json), got 'x'
systems:\n  a: {from: x, family: dag, width: 8} => 2: systems.a.width: expected one of the keys family, from, search, got 'width'
systems: {a: {<other>: 1}} => 1: systems.a.<other>: expected one of the keys activation, attention_dropout,
<x: 1 => 1: <x: expected one of the keys alignment, base, benchmark,
<other>: 1 => 1: <other>: expected one of the keys alignment, base, benchmark,
'[key]': 1 => 1: [key]: expected one of the keys alignment, base, benchmark,
systems: {'<x': {}} => 1: systems.<x: expected letters, digits, _ and - only, got '<x'
name: a\n<<: {task: x} => 2: <<: expected a key, got YAML's merge key, which is not supported; use base: or defaults:
systems:\n  a: &a {width: 64}\n  b:\n    <<: *a\n    dropout: 0
    => 4: systems.b.<<: expected a key, got YAML's merge key, which is not supported
teacher: {data: distilled} => 1: teacher.data: expected 'raw', got 'distilled'
systems: {teacher: {}} => 1: systems.teacher: expected a name other than 'teacher', whose steps are those of
systems: {teacher: {use: teacher}} => 1: systems.teacher: expected a name other than 'teacher', whose steps are
systems: {a.b: {}} => 1: systems.a.b: expected letters, digits, _ and - only, got 'a.b'
evaluation: {baseline: b}\nsystems: {a: {}} => 1: evaluation.baseline: expected one of a, got 'b'
benchmark: {test: tset} => 1: benchmark.test: expected one of test, got 'tset'; did you mean 'test'?
corpus: {test: {train: {embedded: 1}}} => corpus.test.train: expected a name other than 'train' and 'validation', got 'train'
corpus: {train: {}, validation: {embedded: 1}} => mtdata, opus, got none of them
corpus: {filters: {}}
    => corpus: expected texts: train, validation and test, or train: {embedded: 20000} for the built-in corpus, got none
corpus: {train: {embedded: 1, tsv: a}} => mtdata, opus, got embedded, tsv
corpus: {train: {source: a}} => 1: corpus.train.target: expected files of both sides, got no target
corpus: {train: {source: a, target: b, references: [c]}}
    => corpus.train.references: expected further references only for a test set with
vocabulary: {source_pieces: a}\ncorpus: {train: {embedded: 1}, placeholders: [url]}
    => 2: corpus.placeholders: expected none with a vocabulary that is not trained, whose pieces are fixed, got some here
corpus: {train: {embedded: 1}, placeholders: [url]}\nevaluation: {glossary: terms.tsv}
    => 2: evaluation.glossary: expected term among corpus.placeholders, got url
corpus: {filters: {min_length: 9, max_length: 8}} => 1: corpus.filters.max_length: expected at least min_length, got 8 < 9
languages: {target: fr} => corpus.train.embedded: expected languages en and de with the embedded corpus, got en-fr
defaults: {training: {schedule: cosine, updates: 9}}
    => defaults.training.warmup_updates: expected less than updates (9) with the cosine schedule, got 1000
defaults: {training: {validation_sentences: 0}} => expected at least 1 with validation_metric bleu, got 0
evaluation: {metrics: [ter], min_bleu: 3} => evaluation.metrics: expected bleu among them for min_bleu
evaluation: {min_rouge: 3} => 1: evaluation.metrics: expected rougeL among them for min_rouge
task: summarisation => 1: task: expected 'translation' or 'summarization', got 'summarisation'; did you mean
task: [summarization] => 1: task: expected 'translation' or 'summarization', got a list
task: summarization\nlanguages: {source: de}
    => corpus.train.embedded: expected languages en and en with the embedded corpus, got de-de
task: summarization\ndefaults: {training: {validation_metric: bleu}}
    => 2: defaults.training.validation_metric: expected loss or rougeL with task summarization, got 'bleu'
systems: {a: {training: {validation_metric: rougeL}}} => expected loss or bleu with task translation, got 'rougeL'
corpus: {max_source_tokens: 400} => training.max_tokens: expected at least 400, for sources cut to max_source_tokens (400), got 256
corpus: {max_source_tokens: 200}\ndefaults: {training: {batch_tokens: 200}}
    => 2: defaults.training.batch_tokens: expected at least 201, for sources cut to max_source_tokens (200), got 200
task: summarization\ncorpus: {max_source_tokens: 1000}\nsystems: {a: {max_positions: 1000}}
    => 3: systems.a.max_positions: expected more than max_source_tokens (1000), got 1000
evaluation: {contrastive: 9}\nlanguages: {target: fr}
    => 1: evaluation.contrastive: expected languages en and de with minimal pairs, got en-fr
evaluation: {parallel_analysis: true}
    => 1: evaluation.parallel_analysis: expected false without a system of the family that is analysed, got true
evaluation: {dag_analysis: 2} => 1: evaluation.dag_analysis: expected 0 without a system of the family that is analysed, got 2
evaluation: {length_bins: [10, 30, 20]} => 1: evaluation.length_bins: expected ascending lengths, got [10, 30, 20]
evaluation: {contrastive: 9, contrastive_pairs: a.json} => 1: evaluation.contrastive: expected 0 with a file of pairs, got 9
evaluation: {contrastive_pairs: {path: a.zip, member: a.json}}
    => 1: evaluation.contrastive_pairs.member: expected a file that is in no archive, got 'a.json'
evaluation: {contrastive_pairs: 'ftp://host/a.json'} => 1: evaluation.contrastive_pairs: expected a URL of the form https://
evaluation: {contrastive: -1} => 1: evaluation.contrastive: expected at least 0, got -1
evaluation: {mutual_information: {x: {parallel: fold, sequential: ones}}}
    => 1: evaluation.likelihood: expected true with mutual_information, got false
<PAIR>systems: {fold: {order: interleaved}, one: {}}
    => evaluation.mutual_information.x.sequential: expected one of fold, one, got 'ones'; did you mean 'one'?
<PAIR>systems: {fold: {}, ones: {}}
    => evaluation.mutual_information.x.parallel: expected a system of this config that writes several tokens a step, got 'fold', whi
<PAIR>systems: {fold: {order: interleaved}, ones: {order: double-token}}
    => mutual_information.x.sequential: expected a system that writes one token a step, got 'ones', which writes 2
<PAIR>systems: {fold: {order: interleaved}, ones: {}}
    => evaluation.mutual_information.x.sequential: expected a system that writes in the arrangement of 'fold' (fold), got 'ones' (l2
<PAIR>systems: {fold: {use: teacher}, ones: {}}\nteacher: {from: d}
    => x.parallel: expected a system of this config that writes several tokens a step, got one that is pinned, or of another family
evaluation: {likelihood: true, mutual_information: {x: {parallel: a}}}
    => 1: evaluation.mutual_information.x.sequential: expected a value, got nothing
teacher: {}\ndistillation: {shortlist: {tokens: 100}}
    => 2: distillation.shortlist: expected none for a system without candidate tables, got
systems: {one: {search: {greedy: {shortlist: {tokens: 4}}}}}
    => systems.one.search.greedy.shortlist.tokens: expected at least 8, got 4
base: {a: b.yaml} => 1: base: expected the path of one file, or a list of paths, got a map
base: [1] => 1: base: expected the path of one file, or a list of paths, got 1
name: a\nreplace: [name] => 2: replace: expected a key of its base, got name
name: a\nreplace: [systems] => 2: replace: expected a key that this file states, got systems
name: a\nreplace: [3] => 2: replace: expected a list of keys, such as systems or corpus.test, got 3
name: a\nbase: none.yaml => 2: base: expected a file, got
name: a\nname: b => 2: name: expected each key once, got it again (first on line 1)
corpus:\n  test:\n    2016: {embedded: 1} => 3: corpus.test.2016: expected text as a key, got '2016'; put it in quotes
name: [a\nb: c => 2: expected YAML, got:
- a => 1: expected a map of keys, got a list
name: !!python/name:os.system x => 1: name: expected a plain YAML value
corpus: &a\n  test: *a => 2: corpus.test: expected an alias of something else, got one that holds itself
"""  # noqa: E501


@pytest.mark.parametrize(("text", "problem"), cases(MISTAKES, PAIR=PAIR))
def test_each_mistake_is_named_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    problems = wrong(tmp_path, text)
    assert any(problem in p for p in problems), problems
    assert all(p.startswith("c.yaml:") for p in problems)


def test_a_single_mistake_gives_a_single_problem(tmp_path: Path) -> None:
    """A mistake in the defaults is reported once, although it reaches the teacher and every system."""
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


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "name: 1\nbenchmark: {rounds: 1}\nsystems:\n  a: {use: teacher}\n  b: {familly: x}\n  b: {}\nbase: 3\ncorpus: 3\n"
    problems = wrong(tmp_path, text, "cluster.retries=-1", "tracking")
    assert [p.split(": expected")[0] for p in problems] == [
        "c.yaml:6: systems.b", "c.yaml:7: base", "--set tracking", "--set cluster.retries: cluster.retries", "c.yaml:1: name",
        "c.yaml:2: benchmark.rounds", "c.yaml:4: systems.a.use", "c.yaml:5: systems.b.familly", "c.yaml:8: corpus",
    ]  # fmt: skip


def test_a_rule_is_silent_about_a_value_that_is_wrong_by_itself(tmp_path: Path) -> None:
    assert wrong(tmp_path, "systems: {a: {width: x, heads: 3}}") == ["c.yaml:1: systems.a.width: expected a whole number, got 'x'"]
    assert wrong(tmp_path, "systems: {a: 3, b: {}}\nevaluation: {baseline: a}") == [
        "c.yaml:1: systems.a: expected a map of keys, got 3"
    ]


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("name", "--set name: expected KEY=VALUE with a dotted key, such as training.updates=100"),
        ("a..b=1", "--set a..b: expected KEY=VALUE"),
        (
            "corpus.shard_row=1",
            "--set corpus.shard_row: corpus.shard_row: expected a known key, got 'shard_row'; did you mean 'shard_rows'?",
        ),
        ("name.x=1", "--set name.x: name: expected text, got a map"),
        ("name=[", "--set name: expected YAML, got: "),
        ("systems={a: {<<: {}}}", "--set systems: systems.a.<<: expected a key, got YAML's merge key"),
        ("base=x.yaml", "--set base: base: expected"),
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
