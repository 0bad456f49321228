"""Labels of searches, and values of configs."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from fewstep.config.bounds import Ge, Gt, Le, Lt
from fewstep.config.labels import label_of, labelled, parse_label
from fewstep.config.options import NucleusSampling, OutputLimits, Shortlist
from fewstep.config.search import SearchConfig
from fewstep.config.values import config_of, value_problems
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.families.table import FAMILIES
from tests.fewstep.systems import SYSTEMS

# ---- labels of searches stand for all options, and can be read back


SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Valid values of a field's type."""
    bounds = getattr(hint, "__metadata__", ())
    bare = get_args(hint)[0] if bounds else hint
    if get_origin(bare) is Literal:
        return st.sampled_from(get_args(bare))
    if dataclasses.is_dataclass(bare):
        return options(bare)
    if bare is bool:
        return st.booleans()
    if bare in (int, float):
        low = next((b.value for b in bounds if isinstance(b, Ge | Gt)), None)
        high = next((b.value for b in bounds if isinstance(b, Le | Lt)), None)
        if bare is int:
            return st.integers(low, 10**12 if high is None else high)
        return st.floats(low, high, allow_nan=False, allow_infinity=False)
    return st.one_of(*(st.none() if member is type(None) else values(member) for member in get_args(bare)))


def options(kind: Any) -> st.SearchStrategy[Any]:
    """Instances of a dataclass, of which any number of fields have their defaults."""
    hints = get_type_hints(kind, include_extras=True)
    fields = {field.name: values(hints[field.name]) for field in dataclasses.fields(kind)}
    required = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    chosen = st.fixed_dictionaries({name: fields.pop(name) for name in sorted(required)}, optional=fields)
    return chosen.map(lambda given: kind(**given))


SEARCHES = st.sampled_from(sorted(FAMILIES)).flatmap(lambda name: st.tuples(*[options(FAMILIES[name].search)] * 2))


@given(SEARCHES)
def test_a_label_stands_for_one_search_and_gives_it_back(pair: tuple[SearchConfig, SearchConfig]) -> None:
    one, other = pair
    assert (one == other) == (one.label == other.label)
    for search in pair:
        assert type(search).parse(search.label) == search
        assert SAFE.fullmatch(search.label)


@pytest.mark.parametrize(
    ("search", "label"),
    [
        (StepwiseSearch(), "greedy"),
        (StepwiseSearch(strategy="beam", beam_size=4, ngram_weight=0.043), "beam-beam_size4-ngram_weight0.043"),
        (StepwiseSearch(shortlist=Shortlist(tokens=100)), "greedy-shortlist100x16"),
        (StepwiseSearch(rescore=False, deduplicate=True), "greedy-no_rescore-deduplicate"),
        (StepwiseSearch(output_limits=OutputLimits(min_tokens=3, allow_unknown=True)), "greedy-min_tokens3-allow_unknown"),
        (StepwiseSearch(strategy="sample", sampling=NucleusSampling(temperature=1e-09)), "sample-temperature1e-9"),
        (StepwiseSearch(strategy="beam", selection="double-top-k", precision="int8"), "beam-double-top-k-int8"),
        (LatticeSearch(candidates=16, normalizer="local"), "viterbi-candidates16-local"),
        (LatticeSearch(token_bonus=-0.5), "viterbi-token_bonus-0.5"),
        (DagSearch(strategy="joint-viterbi", deduplicate=False), "joint-viterbi-no_deduplicate"),
        (AggressiveSearch(strategy="gad++"), "gadpp"),
        (
            AggressiveSearch(draft_precision="int8", verifier_precision="int8", draft_shortlist=Shortlist(tokens=50, links=8)),
            "gad-draft_shortlist50x8-draft_precision_int8-verifier_precision_int8",
        ),
    ],
)
def test_labels_name_the_options_that_differ(search: SearchConfig, label: str) -> None:
    assert search.label == label
    assert type(search).parse(label) == search


@pytest.mark.parametrize(
    "text", ["", "bean", "beam-", "beam5", "beam-beam_size5", "beam-beam_size4.0", "greedy-int8-beam_size4", "gad"]
)
def test_other_texts_are_no_labels(text: str) -> None:
    """Not even those that mean a search in another spelling, or the default of an option."""
    assert parse_label(text, StepwiseSearch) is None


def test_searches_by_label_keep_their_order() -> None:
    assert list(labelled(StepwiseSearch(strategy="beam"), StepwiseSearch())) == ["beam", "greedy"]


@dataclasses.dataclass(frozen=True)
class _Ambiguous:
    """Options whose words and switches are spelled alike."""

    strategy: Literal["a", "a-b"] = "a"
    first: Literal["b", "c", "no_quick"] = "c"
    second: Literal["b", "d"] = "d"
    quick: bool = True
    limit: int | None = 3
    ratio: float = 1.0


@given(options(_Ambiguous), options(_Ambiguous))
def test_words_of_several_options_are_distinguished(one: _Ambiguous, other: _Ambiguous) -> None:
    assert (one == other) == (label_of(one) == label_of(other))
    assert parse_label(label_of(one), _Ambiguous) == one


# ---- values of configs from files: types, bounds and keys are those of the annotations, as pydantic would have them


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
        (LatticeModelConfig, {"segment_length": 17}, "segment_length: expected a number of at most 16, got 17"),
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
