import pytest

from fewstep.config.options import Shortlist
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.dag.config import DagSearch
from fewstep.families.lattice.config import LatticeSearch
from fewstep.families.stepwise.config import StepwiseSearch
from stages.benchmark.summary import matched_baseline

BASELINES = {
    search.label: search
    for search in (
        StepwiseSearch(),
        StepwiseSearch(strategy="beam"),
        StepwiseSearch(strategy="beam", beam_threshold=1.0),
        StepwiseSearch(precision="int8"),
        StepwiseSearch(precision="int8", shortlist=Shortlist(tokens=300)),
        StepwiseSearch(engine="torch"),
        StepwiseSearch(strategy="sample", n_best=5),
    )
}


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        (StepwiseSearch(deduplicate=True, ngram_weight=0.3), "greedy"),
        (StepwiseSearch(strategy="beam", ngram_weight=0.2, length_penalty=2.0), "beam"),
        (StepwiseSearch(strategy="beam", beam_threshold=1.0), "beam-beam_threshold1"),
        (StepwiseSearch(strategy="beam", beam_threshold=2.0), None),
        (StepwiseSearch(strategy="beam", beam_size=4), None),
        (StepwiseSearch(engine="torch"), "greedy-torch"),
        (StepwiseSearch(precision="int8", shortlist=Shortlist(tokens=300)), "greedy-shortlist300x16-int8"),
        (StepwiseSearch(precision="int8", shortlist=Shortlist(tokens=200)), None),
        (StepwiseSearch(shortlist=Shortlist(tokens=300)), None),
        (StepwiseSearch(engine="ctranslate2"), None),
        (DagSearch(strategy="lookahead"), "greedy"),
        (DagSearch(strategy="joint-viterbi", precision="int8"), "greedy-int8"),
        (DagSearch(strategy="beam"), "beam"),
        (DagSearch(strategy="greedy", engine="torch"), "greedy-torch"),
        (DagSearch(strategy="sample"), "sample-n_best5"),
        (LatticeSearch(), "greedy"),
        (LatticeSearch(precision="bfloat16"), None),
        (AggressiveSearch(draft_precision="int8"), "greedy"),
        (AggressiveSearch(verifier_precision="int8", shortlist=Shortlist(tokens=300)), "greedy-shortlist300x16-int8"),
    ],
)
def test_the_matched_baseline_has_the_same_workload(search, expected):
    assert matched_baseline(search, BASELINES) == expected
