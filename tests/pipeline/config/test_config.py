"""Every short form of a config has the meaning of the long form, and the resolved config states every value."""

import dataclasses
import json
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fewstep.config.network import SIZES
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from models.stepwise.system import StepwiseSystem
from models.training.config import TrainingConfig
from pipeline.config.load import load_config, parse_search, resolved
from pipeline.config.schema import Benchmark, Evaluation, Pinned, RunConfig
from pipeline.config.seeds import replicas
from pipeline.config.systems import UsedSystem
from pipeline.errors import ConfigError
from stages.benchmark import BenchmarkConfig
from stages.decode import DecodeConfig
from stages.report import ReportConfig
from stages.score import ScoreConfig
from tests.pipeline.config.config_text import PAIR, TEACHER, load, wrong


def trained(config: RunConfig, name: str) -> StepwiseSystem:
    system = config.systems[name]
    assert isinstance(system, StepwiseSystem)
    return system


def test_an_empty_file_is_a_whole_config(tmp_path: Path) -> None:
    config = load(tmp_path, "")
    assert config == load(tmp_path, "name: run\nsystems: {autoregressive: {}}\ncluster:\n")
    assert config.teacher is None
    assert (config.evaluation.baseline, config.benchmark.test, config.tracking.experiment) == ("autoregressive", "test", "run")
    assert load(tmp_path, TEACHER).systems == {"autoregressive": UsedSystem(use="teacher")}


def test_base_is_merged_map_by_map_and_lists_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "base.yaml").write_text(
        "name: base\nevaluation: {metrics: [bleu, ter], samples: 7}\n"
        "corpus: {train: {embedded: 9}, test: {one: {embedded: 1}}}\nbenchmark: {rouns: 3}\n"
    )
    text = "base: sub/base.yaml\nname: top\nevaluation: {metrics: [chrf]}\ncorpus: {test: {two: {embedded: 2}}}\n"
    assert wrong(tmp_path, text) == ["sub/base.yaml:4: benchmark.rouns: expected a known key, got 'rouns'; did you mean 'rounds'?"]
    (tmp_path / "sub" / "base.yaml").write_text((tmp_path / "sub" / "base.yaml").read_text().replace("rouns", "rounds"))
    config = load(tmp_path, text, "evaluation.samples=9")
    assert (config.name, config.benchmark.rounds, config.evaluation.samples) == ("top", 3, 9)
    assert config.evaluation.metrics == ("chrf",)
    assert {name: text.embedded for name, text in config.corpus.test.items()} == {"one": 1, "two": 2}


def test_a_base_may_have_a_base(tmp_path: Path) -> None:
    """A base is relative to the file that names it, and overridden by it."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "middle.yaml").write_text("base: ../low.yaml\nname: middle\nsystems: {a: {width: 32}, b: null}\n")
    (tmp_path / "low.yaml").write_text("name: low\nsystems: {a: {width: 64, heads: 2}, b: {}, c: {}}\nevaluation: {samples: 7}\n")
    config = load(tmp_path, "base: sub/middle.yaml\nsystems: {c: {width: 16}}\n")
    assert (config.name, config.evaluation.samples, list(config.systems)) == ("middle", 7, ["a", "c"])
    assert [(trained(config, name).width, trained(config, name).heads) for name in "ac"] == [(32, 2), (16, 4)]
    assert config == load(tmp_path, "name: middle\nsystems: {a: {width: 32, heads: 2}, c: {width: 16}}\nevaluation: {samples: 7}\n")
    (tmp_path / "sub" / "middle.yaml").write_text("base: ../c.yaml\n")
    laid_over = "expected a file that is not itself laid over this one"
    assert wrong(tmp_path, "base: sub/middle.yaml\n") == [f"sub/middle.yaml:1: base: {laid_over}, got '{tmp_path}/sub/../c.yaml'"]
    assert wrong(tmp_path, "name: a\nbase: c.yaml\n") == [f"c.yaml:2: base: {laid_over}, got '{tmp_path}/c.yaml'"]


def test_of_several_bases_the_later_one_wins(tmp_path: Path) -> None:
    (tmp_path / "text.yaml").write_text("name: text\nevaluation: {samples: 9}\nbenchmark: {rounds: 4}\n")
    (tmp_path / "machines.yaml").write_text("base: text.yaml\nname: machines\ncluster: {retries: 1}\n")
    config = load(tmp_path, "base: [text.yaml, machines.yaml]\nbenchmark: {sentences: 3}\n")
    assert (config.name, config.evaluation.samples, config.cluster.retries) == ("machines", 9, 1)
    assert (config.benchmark.rounds, config.benchmark.sentences) == (4, 3)
    assert load(tmp_path, "base: [machines.yaml, text.yaml]").name == "text"
    assert wrong(tmp_path, "base: [text.yaml, none.yaml]")[0].startswith("c.yaml:1: base: expected a file")


def test_a_map_of_the_base_is_replaced_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "systems: {a: {}, b: {width: 64}}\ncorpus: {train: {embedded: 9}, test: {one: {embedded: 1}}}\n"
    )
    config = load(
        tmp_path, "base: base.yaml\nreplace: [systems, corpus.test]\nsystems: {b: {}}\ncorpus: {test: {two: {embedded: 2}}}"
    )
    assert list(config.systems) == ["b"]
    assert sizes(trained(config, "b")) == SIZES["tiny"]
    assert (list(config.corpus.test), config.corpus.train.embedded) == (["two"], 9)
    assert list(load(tmp_path, "base: base.yaml\nsystems: {c: {}}").systems) == ["a", "b", "c"]
    assert wrong(tmp_path, "base: base.yaml\nreplace: ngram\nngram: {}") == [
        "c.yaml:2: replace: expected a key of its base, got ngram"
    ]
    assert wrong(tmp_path, "base: base.yaml", "replace=[systems]")[0].startswith("--set replace: replace: expected it in")


def test_a_test_set_that_is_set_to_nothing_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("corpus: {train: {embedded: 9}, test: {one: {embedded: 1}, two: {embedded: 2}}}")
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
    assert wrong(tmp_path, "base: base.yaml", "systems.aa=null") == [f"--set systems.aa: systems.aa: {nothing}"]
    assert wrong(tmp_path, "base: base.yaml\nsystems: {a: {training: null}}") == [f"c.yaml:2: systems.a.training: {nothing}"]
    assert wrong(tmp_path, "systems: {a: {}}", "systems.a=null") == [
        "--set systems.a: systems: expected at least 1 entry, got a map"
    ]


def test_overrides_take_yaml_and_the_last_wins(tmp_path: Path) -> None:
    config = load(
        tmp_path, "corpus: {}\nsystems: {a: {}}", "systems.b={width: 64, training: {updates: 3}}", "systems.b.training.seed=5",
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
    assert [list(config.systems[n].search) for n in "tab"] == [["greedy"], ["greedy"], ["beam", "greedy"]]


def test_a_task_lies_under_everything(tmp_path: Path) -> None:
    """A preset has the place of a base: any stated value wins."""
    config = load(
        tmp_path,
        "task: summarization\nteacher: {}\nsystems: {t: {use: teacher}, a: {}, b: {training: {max_tokens: 9}}}",
        "corpus.train.embedded=9",
    )
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
    own = "defaults: {training: {validation_metric: loss}}\n"
    own += "corpus: {train: {embedded: 9}, filters: {max_ratio: 2}}\nevaluation: {metrics: [rougeLsum]}\n"
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
        "greedy": [StepwiseSearch()], "[beam, greedy]": [StepwiseSearch(strategy="beam"), StepwiseSearch()],
        "{beam: {}}": [StepwiseSearch(strategy="beam")], "{beam:}": [StepwiseSearch(strategy="beam")],
        "{beam: {beam_size: 4, length_penalty: 0}}": [StepwiseSearch(strategy="beam", beam_size=4, length_penalty=0.0)],
        "[{strategy: beam, beam_size: 2}]": [StepwiseSearch(strategy="beam", beam_size=2)],
        "{beam_size: 2}": [StepwiseSearch(beam_size=2)],
    }  # fmt: skip
    for text, expected in forms.items():
        assert list(load(tmp_path, f"systems: {{a: {{search: {text}}}}}").systems["a"].search.values()) == expected
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
    assert problem.startswith("c.yaml:2: systems.fold.order: expected a valid combination of order settings")


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
        "name: 2024-01-31\ndefaults: {training: {adam_epsilon: 1e-8, updates: 1_000, learning_rate: 1}}\nevaluation: {min_bleu: 3}",
    )
    training = trained(config, "autoregressive").training
    assert (config.name, training.adam_epsilon, training.updates) == ("2024-01-31", 1e-8, 1000)
    assert type(training.learning_rate) is float
    assert type(config.evaluation.min_bleu) is float


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


TRAINING = st.fixed_dictionaries(
    {},
    optional={
        "updates": st.integers(1, 10**6),
        "learning_rate": st.floats(1e-9, 1e3) | st.integers(1, 5),
        "schedule": st.sampled_from(["inverse_sqrt", "constant"]),
        "precision": st.sampled_from(["float32", "bfloat16", "float16"]),
        "label_smoothing": st.floats(0, 0.99),
    },
)
BEAM = st.fixed_dictionaries(
    {}, optional={"length_penalty": st.floats(0, 9), "output_limits": st.fixed_dictionaries({"allow_unknown": st.booleans()})}
)
SEARCH = st.sampled_from(["greedy", "beam"]) | BEAM.map(lambda options: {"beam": {"beam_size": 3, **options}})
NETWORK = {
    "size": st.sampled_from(["tiny", "base", "big"]), "width": st.integers(1, 9).map(lambda n: 144 * n),
    "heads": st.sampled_from([1, 2, 3, 4, 6, 8, 16]).filter(lambda h: 144 % h == 0 and 128 % h == 0),
    "decoder_layers": st.integers(1, 9), "dropout": st.floats(0, 0.99), "training": TRAINING,
}  # fmt: skip

SEARCHES = SEARCH | st.lists(SEARCH, min_size=1, unique_by=lambda s: str(s) if isinstance(s, str) else "beam3", max_size=3)
SYSTEM = st.fixed_dictionaries({}, optional={**NETWORK, "data": st.sampled_from(["raw", "distilled", "mixed"]), "search": SEARCHES})
PATHS = st.text("abc/. ", min_size=1, max_size=5)
FILES = PATHS | st.lists(PATHS, min_size=1, max_size=2)
TEXT = (
    st.integers(1, 99).map(lambda n: {"embedded": n})
    | FILES.map(lambda f: {"tsv": f})
    | st.fixed_dictionaries({"source": FILES, "target": FILES})
)

SYSTEM_NAMES = st.text("abz09_-", min_size=1, max_size=6)

WRITTEN = st.fixed_dictionaries(
    {"teacher": st.fixed_dictionaries({}, optional=NETWORK) | PATHS.map(lambda p: {"from": p})},
    optional={
        "name": SYSTEM_NAMES,
        "defaults": SYSTEM,
        "systems": st.dictionaries(SYSTEM_NAMES, SYSTEM | st.just({"use": "teacher"}), min_size=1, max_size=3),
        "corpus": st.fixed_dictionaries(
            {"train": TEXT, "validation": TEXT, "test": st.dictionaries(SYSTEM_NAMES, TEXT, min_size=1, max_size=2)}
        ),
        "vocabulary": PATHS.map(lambda p: {"from": p}) | st.fixed_dictionaries({}, optional={"size": st.integers(9, 10**6)}),
        "distillation": PATHS.map(lambda p: {"from": p}) | BEAM,
        "cluster": st.fixed_dictionaries(
            {}, optional={"resources": st.just({"train": {"cpus": 1, "custom": {"big": 1}}}), "cpus": st.none()}
        ),
        "evaluation": st.fixed_dictionaries({}, optional={"min_bleu": st.floats(0, 99), "metrics": st.just(["bleu"])}),
    },
)


@given(written=WRITTEN)
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


SEEDS = """\
corpus: {train: {embedded: 50}}
seeds: [7, 8, 9]
defaults: {width: 16, search: [greedy]}
teacher: {heads: 2, ensemble: 2}
systems:
  auto: {use: teacher}
  both: {use: ensemble}
  student: {data: distilled}
  drafts: {family: aggressive, verifier: auto, heads: 2}
"""


def load_seeds(tmp_path: Path, text: str = SEEDS) -> Any:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return load_config(path)


def test_every_system_is_trained_with_each_seed_and_works_with_systems_of_its_seed(tmp_path: Path) -> None:
    config = load_seeds(tmp_path, SEEDS)
    systems = config.systems
    assert list(systems) == [
        *("auto", "both", "student", "drafts"),
        *(f"{name}-seed{seed}" for seed in (8, 9) for name in ("auto", "student", "drafts")),
    ]
    assert config.teacher.training.seed == 7
    assert [systems[name].training.seed for name in ("student", "student-seed8", "drafts-seed9")] == [7, 8, 9]
    assert (systems["auto-seed8"].heads, systems["auto-seed8"].data, systems["auto-seed8"].training.seed) == (2, "raw", 8)
    assert list(systems["auto-seed8"].search) == ["greedy"]
    assert [systems[name].verifier for name in ("drafts", "drafts-seed8")] == ["auto", "auto-seed8"]
    assert replicas(config.seeds, systems)["drafts"] == ["drafts", "drafts-seed8", "drafts-seed9"]
    assert "both" not in replicas(config.seeds, systems)


def test_a_resolved_config_loads_back_to_itself(tmp_path: Path) -> None:
    config = load_seeds(tmp_path, SEEDS)
    assert load_seeds(tmp_path, yaml.safe_dump(resolved(config))) == config


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("  student-seed8: {width: 32, data: distilled}\n", "systems.student-seed8.width: expected 16 as 'student' has"),
        ("  student-seed8: {search: [beam]}\n", "systems.student-seed8.search: expected the searches of 'student'"),
    ],
)
def test_seeds_that_disagree_in_shape_are_refused(tmp_path: Path, change: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_seeds(tmp_path, SEEDS + change)
    assert problem in str(error.value)


@pytest.mark.parametrize("seeds", ["[3, 3]", "[-1]", "[one]", "5"])
def test_wrong_seeds_are_refused(tmp_path: Path, seeds: str) -> None:
    with pytest.raises(ConfigError, match="seeds"):
        load_seeds(tmp_path, SEEDS.replace("[7, 8, 9]", seeds))


def test_one_seed_is_the_seed_of_all(tmp_path: Path) -> None:
    config = load_seeds(tmp_path, SEEDS.replace("[7, 8, 9]", "[7]"))
    assert (len(config.systems), config.systems["student"].training.seed) == (4, 7)
