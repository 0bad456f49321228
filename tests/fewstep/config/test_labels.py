"""Labels of searches stand for all options, and can be read back."""

import dataclasses
import re
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep.config.bounds import Ge, Gt, Le, Lt
from fewstep.config.labels import label_of, labelled, parse_label
from fewstep.config.options import NucleusSampling, OutputLimits, Shortlist
from fewstep.config.search import SearchConfig
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.dag.config import DagSearch
from fewstep.families.lattice.config import LatticeSearch
from fewstep.families.stepwise.config import StepwiseSearch
from models.family import FAMILIES

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
