"""Values of configs from files: types, bounds and keys are those of the annotations, as pydantic would have them."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from fewstep.config.values import config_of, value_problems
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.families.table import FAMILIES
from tests.fewstep.systems import SYSTEMS

KINDS: list[Any] = [kind for family in FAMILIES.values() for kind in (family.network, family.search)]
ODD: list[Any] = [None, -1, 0, 3, 0.5, 1e308, float("nan"), float("inf"), "x", "int8", [], {}, [1, 2], [2.0, 1.0]]


@dataclass(frozen=True)
class Required:
    size: int


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_defaults_are_valid_and_come_back(kind: Any) -> None:
    config = kind()
    assert not [*value_problems(config)]
    assert config_of(kind, asdict(config)) == config
    assert config_of(kind, {}) == config


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_systems_use_comes_back(name: str) -> None:
    family, network, searches = SYSTEMS[name]
    assert config_of(FAMILIES[family].network, asdict(network)) == network
    for search in searches.values():
        assert FAMILIES[family].search.from_values(asdict(search)) == search


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_value_is_refused_where_pydantic_refuses_it(kind: Any) -> None:
    """The exception: numbers that are not finite, which no option needs."""
    adapter = TypeAdapter(kind)
    for key in asdict(kind()):
        for value in ODD:
            try:
                adapter.validate_json(json.dumps({key: value}), strict=True)
                expected = not (isinstance(value, float) and not math.isfinite(value))
            except ValidationError:
                expected = False
            try:
                config_of(kind, {key: value})
                got = True
            except ValueError:
                got = False
            assert got == expected, (key, value)


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (StepwiseConfig, {"width": 16.0}, "width: expected an integer, got 16.0"),
        (StepwiseConfig, {"width": True}, "width: expected an integer, got True"),
        (StepwiseConfig, {"width": 15}, "width: expected a number that is a multiple of 2, got 15"),
        (StepwiseConfig, {"encoder_layers": 0}, "encoder_layers: expected a number of at least 1, got 0"),
        (StepwiseConfig, {"width": 10**30}, "width: expected an integer, got 1000000000"),
        (StepwiseConfig, {"dropout": 1}, "dropout: expected a number below 1, got 1"),
        (StepwiseConfig, {"order": "upwards"}, "order: expected one of autoregressive, .*, got upwards"),
        (StepwiseConfig, ["width"], r"StepwiseConfig: expected a mapping of keys to values, got \['width'\]"),
        (StepwiseConfig, {"wdith": 3}, "wdith: expected a known key, got 3"),
        (DagConfig, {"graph_factor_range": [1.0]}, r"graph_factor_range: expected 2 values, got \[1.0\]"),
        (DagConfig, {"graph_factor_range": [1.0, "x"]}, "graph_factor_range.1: expected a finite number, got x"),
        (StepwiseSearch, {"shortlist": {"tokens": 3}}, "shortlist.tokens: expected a number of at least 8, got 3"),
        (Required, {}, "size: expected a value, got none"),
        (StepwiseSearch, {"output_limits": {"min": 3}}, "min: expected a known key, got 3"),
        (StepwiseSearch, {"output_limits": 3}, "output_limits: expected the options of OutputLimits, got 3"),
        (StepwiseSearch, {"deduplicate": 1}, "deduplicate: expected true or false, got 1"),
        (DagSearch, {"strategy": 3, "n_best": 0}, "strategy: expected one of .*; n_best: expected a number of at least 1"),
        (LatticeModelConfig, {"segment_length": 3}, "segment_length: expected one of 1, 2, got 3"),
        (LatticeSearch, {"candidates": {"a": 1}}, "candidates: expected an integer"),
        (AggressiveSearch, {"draft_width": float("nan")}, "draft_width: expected an integer, got nan"),
        (AggressiveConfig, {"prefixes": None}, "prefixes: expected an integer, got None"),
    ],
)
def test_the_message_names_the_value(kind: Any, values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config_of(kind, values)


def test_pairs_that_json_holds_as_lists_become_tuples() -> None:
    """Searches are checked with the network's config as a key."""
    for config in (AggressiveConfig(draft_width_range=(2, 16)), DagConfig(graph_factor_range=(4.0, 8.0))):
        read = config_of(type(config), json.loads(json.dumps(asdict(config))))
        assert read == config
        assert hash(read) == hash(config)
