"""CTranslate2 against torch: untrained networks of all shapes, and one that learnt the embedded corpus a little."""

import dataclasses
import os
import platform
import sys
from functools import cache, partial

import numpy as np
import pytest
import sacrebleu
import torch

from benchmarks.decoding.agreement import Agreement, agreement, compared
from fewstep.config.network import Sizes
from fewstep.config.options import OutputLimits, Shortlist
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.orders import ORDERS
from fewstep.shortlist import Lexicon
from fewstep.translation import Hypothesis
from fewstep.vocabulary import EOS, RESERVED
from models.bundle.directory import load_system
from models.stepwise import ctranslate2_model
from models.stepwise.ctranslate2 import CTranslate2Search
from models.stepwise.ctranslate2_model import EngineError, convertible, may_saturate, specification, vocabulary_map
from models.stepwise.decode import StepwiseDecoder
from models.stepwise.ensemble import Ensemble
from models.stepwise.loss import loss
from models.stepwise.model import StepwiseModel
from models.stepwise.scores import TokenRules
from models.training.batch import collate
from stages.shared.embedded import pairs
from tests.models.stepwise.networks import WIDER, biased_network, short, sources
from tests.shared import public_data

frozen = partial(StepwiseDecoder, frozen=True)
"""A decoder of finished networks."""

NEAR = 1e-4
NARROW = {"decoder_layers": 1, "max_positions": 60}
GREEDY = short()
KINDS = [
    {"norm": "pre", "joint": True, "positions": "sinusoidal"},
    {"norm": "post", "joint": False, "positions": "learned"},
    {"norm": "post", "joint": True, "positions": "sinusoidal", "start": "per-slot"},
]


@cache
def trained():
    """A network that read 1,500 pairs of the embedded corpus thrice, as ids of words; 60 other sources with references."""
    torch.manual_seed(1)
    known = list(pairs("train", 0, 1500))
    words = sorted({word for pair in known[:300] for side in pair for word in side.split()})
    ids = {word: id_ for id_, word in enumerate(words, len(RESERVED))}

    def encoded(text):
        return [ids[word] for word in text.split() if word in ids]

    model = StepwiseModel(dataclasses.replace(WIDER, **NARROW), Sizes(len(ids) + 7, len(ids) + 7, True), ORDERS["autoregressive"])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for start in 3 * list(range(0, len(known), 15)):
        some = [(encoded(source), encoded(target)) for source, target in known[start : start + 15]]
        batch = collate(range(len(some)), [one[0] for one in some], [one[1] for one in some])
        found = loss(model, batch, 0, 0.1)
        optimizer.zero_grad()
        (found.total / found.count).backward()
        optimizer.step()
    held_out = [(encoded(source), target) for source, target in pairs("test", 0, 60)]
    return (
        model.eval(),
        [source for source, _ in held_out],
        [target for _, target in held_out],
        dict(enumerate(words, len(RESERVED))),
    )


def decoded(model, inputs, search):
    """By torch, and by CTranslate2."""
    decoders = StepwiseDecoder(model), frozen(model)
    engines = dataclasses.replace(search, engine="torch"), dataclasses.replace(search, engine="ctranslate2")
    return [d.decode(d.prepare(inputs), s) for d, s in zip(decoders, engines, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "search",
    [
        GREEDY,
        dataclasses.replace(GREEDY, output_limits=OutputLimits(max_extra_tokens=6, min_tokens=3, allow_unknown=True, max_tokens=9)),
    ],
)
def test_greedy_finds_what_torch_finds(kind, search):
    near = 0
    for (expected,), (found,) in zip(
        *decoded(biased_network(**kind, **NARROW), sources(24, vocabulary=23, longest=11), search), strict=True
    ):
        if expected.statistics["margin"] < NEAR:
            near += 1
            continue
        assert found.ids == expected.ids
        assert found.steps == expected.steps
        assert found.score == pytest.approx(expected.score, abs=1e-4)
    assert near <= 1


def test_greedy_of_a_trained_network():
    model, inputs, _, _ = trained()
    compared = 0
    for (expected,), (found,) in zip(*decoded(model, inputs, StepwiseSearch()), strict=True):
        if expected.statistics["margin"] >= NEAR:
            compared += 1
            assert found.ids == expected.ids
            assert found.score == pytest.approx(expected.score, abs=1e-4)
    assert compared >= 55


@pytest.mark.parametrize("kind", KINDS)
def test_beams_of_untrained_networks(kind):
    compared = 0
    search = StepwiseSearch(strategy="beam", beam_size=4, n_best=3, output_limits=OutputLimits(max_extra_tokens=6))
    for expected, found in zip(
        *decoded(biased_network(**kind, **NARROW), sources(30, vocabulary=23, longest=11), search), strict=True
    ):
        scores = {tuple(one.ids): one.score for one in expected}
        compared += expected[0].ids == found[0].ids
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        for one in found:
            if tuple(one.ids) in scores:
                assert one.score == pytest.approx(scores[tuple(one.ids)], abs=1e-4)
    assert compared >= 0.97 * 30


def test_beams_of_a_trained_network():
    model, inputs, references, words = trained()
    expected, found = decoded(model, inputs, StepwiseSearch(strategy="beam", beam_size=5))
    same = [one[0].ids == other[0].ids for one, other in zip(expected, found, strict=True)]
    assert sum(same) >= 0.97 * len(same)
    for (one,), (other,), equal in zip(expected, found, same, strict=True):
        assert not equal or one.score == pytest.approx(other.score, abs=1e-4)
    bleu = [
        sacrebleu.corpus_bleu([" ".join(words[id_] for id_ in one[0].ids) for one in hypotheses], [references]).score
        for hypotheses in (expected, found)
    ]
    assert bleu[0] > 1
    assert bleu[1] == pytest.approx(bleu[0], abs=0.1)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_forbidden_ngrams_are_those_of_ctranslate2(strategy, size, monkeypatch):
    """`no_repeat_ngram_size` of the same exported network. CTranslate2 divides the probability of forbidden tokens among others,
    which moves no maximum but the ranks in a beam; searches that do so too have its outputs and its scores."""
    pytest.importorskip("ctranslate2")
    model, inputs = biased_network(**NARROW), sources(24, vocabulary=23, longest=11)
    beam = {} if strategy == "greedy" else {"beam_size": 4, "n_best": 2}
    free = StepwiseSearch(strategy=strategy, output_limits=OutputLimits(max_extra_tokens=6), rescore=False, **beam)
    assert sum(_repeats(one.ids, size) for one, *_ in decoded(model, inputs, free)[0]) >= 6, "the rule has an effect"
    if strategy == "beam":
        apply = TokenRules.apply
        monkeypatch.setattr(TokenRules, "apply", lambda *arguments: apply(*arguments).log_softmax(-1))
    same = 0
    for (expected, *_), (found, *_) in zip(*decoded(model, inputs, dataclasses.replace(free, no_repeat_ngram=size)), strict=True):
        assert not _repeats(found.ids, size)
        same += expected.ids == found.ids
        assert strategy == "greedy" or found.score == pytest.approx(expected.score, abs=1e-4) or expected.ids != found.ids
    assert same >= 23


def _repeats(ids, size):
    """Return whether an output has an n-gram twice."""
    ngrams = [tuple(ids[start : start + size]) for start in range(len(ids) - size + 1)]
    return len(set(ngrams)) < len(ngrams)


def test_company_and_its_longer_limits_change_nothing():
    """Untrained networks run into the limits, which a batch does not share."""
    model = biased_network(**NARROW)
    decoder = frozen(model)
    inputs = sources(12, vocabulary=23, longest=11)
    for search in (GREEDY, StepwiseSearch(strategy="beam", beam_size=3, output_limits=OutputLimits(max_extra_tokens=2))):
        ours = dataclasses.replace(search, engine="ctranslate2")
        together = decoder.decode(decoder.prepare(inputs), ours)
        alone = [decoder.decode(decoder.prepare([source]), ours)[0] for source in inputs]
        assert [one[0].ids for one in together] == [one[0].ids for one in alone]
        assert all(
            len(one[0].ids) <= len(source) + 1 + search.output_limits.max_extra_tokens
            for one, source in zip(alone, inputs, strict=True)
        )


def test_its_own_scores_are_among_the_tokens_that_may_be_written():
    """Six reserved tokens are out of the question, so that what is left is a little likelier."""
    model = biased_network(**NARROW)
    decoder = frozen(model)
    search = dataclasses.replace(GREEDY, engine="ctranslate2")
    exact, own = (
        decoder.decode(decoder.prepare(sources(8, vocabulary=23, longest=11)), dataclasses.replace(search, rescore=rescore))
        for rescore in (True, False)
    )
    assert [one[0].ids for one in exact] == [one[0].ids for one in own]
    assert all(b[0].score > a[0].score + 1e-3 for a, b in zip(exact, own, strict=True))


def test_an_empty_source_has_an_empty_output():
    decoder = frozen(biased_network(**NARROW))
    found = decoder.decode(decoder.prepare([[], [9, 8], []]), StepwiseSearch(engine="ctranslate2"))
    assert [len(one[0].ids) > 0 for one in found] == [False, True, False]


@pytest.mark.skipif(may_saturate("int8"), reason="CTranslate2's 8-bit products may overflow on this processor")
def test_int8_is_near_float32():
    model, inputs, _, _ = trained()
    decoder = frozen(model)
    prepared = decoder.prepare(inputs)
    exact, coarse = (
        decoder.decode(prepared, StepwiseSearch(engine="ctranslate2", precision=precision)) for precision in ("float32", "int8")
    )
    gaps = [abs(one[0].score - other[0].score) for one, other in zip(exact, coarse, strict=True) if one[0].ids == other[0].ids]
    assert len(gaps) > len(inputs) / 2
    assert 0 < sum(gaps) / len(gaps) < 0.1


def test_the_first_slot_carries_what_it_carries_here():
    specification_ = specification(biased_network(**NARROW))
    assert not specification_.decoder.embeddings.weight[1].any()
    assert specification_.decoder.projection.weight[1].any()
    assert specification(biased_network(start="per-slot", **NARROW)).decoder.embeddings.weight[1].any()


@pytest.mark.parametrize("order", ["interleaved", "right-to-left", "semi-autoregressive"])
def test_other_orders_are_refused(order):
    with pytest.raises(ValueError, match="order: autoregressive"):
        convertible(biased_network(order, **NARROW))


def test_ensembles_are_refused():
    with pytest.raises(ValueError, match="a single autoregressive network, got a Ensemble"):
        convertible(Ensemble([biased_network(**NARROW), biased_network(**NARROW)]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "sample"}, "expected auto or torch for sampling"),
        (
            {"strategy": "beam", "length_penalty_form": "gnmt"},
            "length_penalty_form: expected power with engine ctranslate2",
        ),
        ({"strategy": "beam", "beam_threshold": 3.0}, "beam_threshold: expected empty with engine ctranslate2, got 3"),
        ({"precision": "float16"}, "precision: expected one of .*float32.* on this cpu, got float16"),
    ],
)
def test_searches_that_it_has_not_are_refused(options, message):
    decoder = frozen(biased_network(**NARROW))
    with pytest.raises(ValueError, match=message):
        decoder.decode(decoder.prepare(sources(2, vocabulary=23, longest=11)), StepwiseSearch(engine="ctranslate2", **options))


def test_a_shortlist_is_a_vocabulary_map():
    """One sentence at a time, the tokens of the map are those of the shortlist, so native code finds the same outputs."""
    draw = np.random.default_rng(1)
    lexicon = Lexicon(np.arange(23), np.concatenate([draw.integers(7, 23, (23, 3)), np.full((23, 1), -1)], 1))
    shortlist = Shortlist(tokens=8, links=2)
    decoder = StepwiseDecoder(biased_network(**NARROW), lexicon=lexicon, frozen=True)
    search = StepwiseSearch(shortlist=shortlist)
    for source in sources(20, vocabulary=23, longest=11, seed=3):
        (found,), (expected,) = (
            decoder.decode(decoder.prepare([source]), dataclasses.replace(search, engine=engine))
            for engine in ("ctranslate2", "auto")
        )
        assert found[0].ids == expected[0].ids
        assert set(found[0].ids) <= {7, *lexicon.linked_tokens[[*source, EOS], :2].ravel()}
    pieces = [str(id_) for id_ in range(23)]
    lines = vocabulary_map(shortlist, lexicon, source_pieces=pieces, target_pieces=pieces).splitlines()
    linked = [id_ for id_ in lexicon.linked_tokens[EOS, :2] if id_ > 7]
    assert lines[0] == "\t" + " ".join(map(str, [*range(8), *linked]))
    assert lines[1:] == [f"{id_}\t{a} {b}" for id_, (a, b, _, _) in enumerate(lexicon.linked_tokens)]


def test_a_processor_without_vnni_may_overflow(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    monkeypatch.setattr(ctranslate2_model.Path, "read_text", lambda *_, **__: "vendor_id : AuthenticAMD")
    monkeypatch.delenv("CT2_USE_MKL", raising=False)
    assert may_saturate("int8_float32") == (platform.machine() == "x86_64")
    assert not may_saturate("float32")
    monkeypatch.setenv("CT2_USE_MKL", "1")
    assert not may_saturate("int8")


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(EngineError, match=r"pip install ctranslate2"):
        CTranslate2Search(biased_network(**NARROW), precision="float32")


def test_a_living_network_is_refused():
    decoder = StepwiseDecoder(biased_network(**NARROW))
    with pytest.raises(ValueError, match="expected auto or one of torch"):
        decoder.decode(decoder.prepare(sources(2, vocabulary=23, longest=11)), StepwiseSearch(engine="ctranslate2"))


# ---- the engines of autoregressive decoding on a finished system and real text


SENTENCES = 200
LONG, BEAM = StepwiseSearch(), StepwiseSearch(strategy="beam", beam_size=5)


class Words:
    """A vocabulary whose texts are the ids."""

    def decode_ids(self, ids):
        return [" ".join(map(str, row)) for row in ids]


def hypotheses(*rows):
    return [Hypothesis(list(ids), score, len(ids) + 1, {"margin": margin}) for ids, score, margin in rows]


def judged(found, search):
    expected = hypotheses(([7, 8, 9, 10], -1.0, 0.5), ([9, 10, 11, 12], -2.0, 5e-5))
    references = ["7 8 9 10", "9 10 11 12"]
    return agreement(Words(), expected, found, references, greedy=search is LONG)


def test_what_counts_as_agreement():
    same = hypotheses(([7, 8, 9, 10], -1.0, 0.5), ([9, 10, 11, 12], -2.00005, 0.5))
    one = judged(same, LONG)
    assert (one.sentences, one.identical, one.near_ties, one.bleu_difference) == (2, 2, 0, 0.0)
    assert one.score_difference == pytest.approx(5e-5)
    assert one.holds(LONG)
    assert one.holds(BEAM)
    tied = judged(hypotheses(([7, 8, 9, 10], -1.0, 0.5), ([9], -1.9, 0.5)), LONG)
    assert (tied.identical, tied.near_ties) == (1, 1)
    assert tied.bleu_difference < 0
    assert tied.holds(LONG), "the second was near a tie"
    assert not tied.holds(BEAM)
    other = judged(hypotheses(([7, 8], -1.0, 0.5), ([9, 10, 11, 12], -2.0, 0.5)), LONG)
    assert not other.holds(LONG), "the first was not"
    scored = judged(hypotheses(([7, 8, 9, 10], -1.001, 0.5), ([9, 10, 11, 12], -2.0, 0.5)), LONG)
    assert not scored.holds(LONG)
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
@pytest.mark.parametrize("search", [LONG, BEAM], ids=lambda search: search.label)
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
