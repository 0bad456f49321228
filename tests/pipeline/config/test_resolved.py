"""The resolved config, which a run records: it states every value and loads back to the config that it came from."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fewstep.families.stepwise.config import StepwiseConfig
from pipeline.config.load import resolved
from pipeline.config.schema import RunConfig
from pipeline.errors import ConfigError
from tests.pipeline.config.config_text import TEACHER, load

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
        "corpus": st.fixed_dictionaries(
            {"train": TEXT, "validation": TEXT, "test": st.dictionaries(NAMES, TEXT, min_size=1, max_size=2)}
        ),
        "vocabulary": PATHS.map(lambda p: {"from": p}) | st.fixed_dictionaries({}, optional={"size": st.integers(9, 10**6)}),
        "distillation": PATHS.map(lambda p: {"from": p}) | BEAM,
        "cluster": st.fixed_dictionaries(
            {}, optional={"resources": st.just({"train": {"cpus": 1, "custom": {"big": 1}}}), "cpus": st.none()}
        ),
        "evaluation": st.fixed_dictionaries({}, optional={"min_bleu": st.floats(0, 99), "metrics": st.just(["bleu"])}),
    },
)


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
