"""The engines of autoregressive decoding on a finished system and real text."""

import dataclasses
import os

import pytest
import torch

from benchmarks.decoding.agreement import Agreement, agreement, compared
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.translation import Hypothesis
from models.bundle.directory import load_system
from tests.public_data import public_data

SENTENCES = 200
GREEDY, BEAM = StepwiseSearch(), StepwiseSearch(strategy="beam", beam_size=5)


class Words:
    """A vocabulary whose texts are the ids."""

    def decode_ids(self, ids):
        return [" ".join(map(str, row)) for row in ids]


def hypotheses(*rows):
    return [Hypothesis(list(ids), score, len(ids) + 1, {"margin": margin}) for ids, score, margin in rows]


def judged(found, search):
    expected = hypotheses(([7, 8, 9, 10], -1.0, 0.5), ([9, 10, 11, 12], -2.0, 5e-5))
    references = ["7 8 9 10", "9 10 11 12"]
    return agreement(Words(), expected, found, references, greedy=search is GREEDY)


def test_what_counts_as_agreement():
    same = hypotheses(([7, 8, 9, 10], -1.0, 0.5), ([9, 10, 11, 12], -2.00005, 0.5))
    one = judged(same, GREEDY)
    assert (one.sentences, one.identical, one.near_ties, one.bleu_difference) == (2, 2, 0, 0.0)
    assert one.score_difference == pytest.approx(5e-5)
    assert one.holds(GREEDY)
    assert one.holds(BEAM)
    tied = judged(hypotheses(([7, 8, 9, 10], -1.0, 0.5), ([9], -1.9, 0.5)), GREEDY)
    assert (tied.identical, tied.near_ties) == (1, 1)
    assert tied.bleu_difference < 0
    assert tied.holds(GREEDY), "the second was near a tie"
    assert not tied.holds(BEAM)
    other = judged(hypotheses(([7, 8], -1.0, 0.5), ([9, 10, 11, 12], -2.0, 0.5)), GREEDY)
    assert not other.holds(GREEDY), "the first was not"
    scored = judged(hypotheses(([7, 8, 9, 10], -1.001, 0.5), ([9, 10, 11, 12], -2.0, 0.5)), GREEDY)
    assert not scored.holds(GREEDY)
    assert not scored.holds(BEAM)
    beams = Agreement(1000, 970, 0, 1e-5, 40.0, 0.09)
    assert beams.holds(BEAM)
    assert not dataclasses.replace(beams, identical=969).holds(BEAM)
    assert not dataclasses.replace(beams, bleu_difference=-0.11).holds(BEAM)


def multi30k():
    """Return sources and references, and the system that `FEWSTEP_SYSTEM` names."""
    text = public_data("multi30k")
    if "FEWSTEP_SYSTEM" not in os.environ:
        pytest.skip("no trained system: set FEWSTEP_SYSTEM to the directory of an autoregressive one of Multi30k")
    sides = [(text / f"test_2016.{side}").read_text(encoding="utf-8").splitlines()[:SENTENCES] for side in ("en", "de")]
    return load_system(os.environ["FEWSTEP_SYSTEM"]), *sides


@pytest.mark.slow
@pytest.mark.parametrize("search", [GREEDY, BEAM], ids=lambda search: search.label)
def test_engines_agree_on_a_trained_system(search):
    system, sources, references = multi30k()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = compared(system, sources, references, search)
    finally:
        torch.set_num_threads(before)
    for engine in ("native", "ctranslate2 float32"):
        one = found[engine]
        assert isinstance(one, Agreement), one
        assert one.holds(search), f"{engine}: {one}"
