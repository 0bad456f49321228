"""Steps with coupled slots, networks that write together, and scores of given texts."""

import dataclasses
import math
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep import BigramCoupling, JointStep
from fewstep.config.network import Sizes
from fewstep.config.options import NucleusSampling, OutputLimits
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.decoder import deduplicate
from fewstep.families.stepwise.options import coupling, joint_step
from fewstep.families.stepwise.orders import ORDERS
from fewstep.vocabulary import BOS, EOS, UNK
from kernels import NgramModel
from models.common.buffers import Size, empty_inputs
from models.stepwise.decode import StepwiseDecoder
from models.stepwise.ensemble import Ensemble
from models.stepwise.model import build
from models.stepwise.search.beam import Beam
from models.stepwise.search.greedy import Greedy
from models.stepwise.search.joint_choice import JointChoice, slot_candidates
from models.training.batch import collate
from tests.models.common.device_alone import DeviceAlone, buffers_of_a_gpu
from tests.models.stepwise.networks import WIDER, mixed_sources, network, sources
from tests.models.stepwise.test_native import compare

# ---- steps with coupled slots: native code agrees with torch


frozen = partial(StepwiseDecoder, frozen=True)
"""A decoder of finished networks."""


PIECES = ["<pad>", "<s>", "</s>", "<unk>", "<mask>", "<5>", "<6>", *(f"w{i}" for i in range(7, 23))]


@pytest.fixture(scope="module")
def ngram():
    """A model over the words of the networks, of a text in which some pairs are frequent."""
    draw = np.random.default_rng(0)
    text = [[PIECES[7 + int(16 * place**2)] for place in draw.random(8)] for _ in range(200)]
    return NgramModel.estimate(text, order=3, discount_fallback=(0.5, 1.0, 1.5)).for_vocabulary(PIECES)


def flat_network(order, **changes):
    """Return an untrained network with many nearly equal tokens, EOS among them."""
    torch.manual_seed(1)
    model = build(dataclasses.replace(WIDER, order=order, **changes), Sizes(23, 23, True)).eval()
    with torch.no_grad():
        model.target_embedding.weight.mul_(0.5)
        for name, values in model.named_parameters():
            if name.endswith((".bias", "norm.weight")):
                values.add_(torch.randn_like(values) * 0.3)
    return model


FLAT = {name: flat_network(name) for name in ("semi-autoregressive", "interleaved-sa", "double-token-l2r", "double-token-r2l")}
FLAT["interleaved by three"] = flat_network("interleaved", tokens_per_direction=3)


BEAM = {"strategy": "beam", "beam_size": 3, "n_best": 2}
OPTIONS = [
    {"ngram_weight": 0.6},
    {"end_threshold": 0.01},
    {"ngram_weight": 2.0, "end_threshold": 0.05},
    {"ngram_weight": 0.6, "output_limits": OutputLimits(max_extra_tokens=6, min_tokens=5), **BEAM},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", FLAT)
def test_native_code_and_torch_choose_the_same_steps(name, options, ngram):
    search = StepwiseSearch(**{"output_limits": OutputLimits(max_extra_tokens=6), **options})
    inputs = [source for source in mixed_sources(40) if source]
    decoders = StepwiseDecoder(FLAT[name], ngram), frozen(FLAT[name], ngram)
    slow, fast = ([ranked[0] for ranked in one.decode(one.prepare(inputs), search)] for one in decoders)
    assert [one.ids for one in slow] == [one.ids for one in fast]
    assert [one.score for one in slow] == pytest.approx([one.score for one in fast], abs=1e-4)
    assert [one.steps for one in slow] == [one.steps for one in fast]
    native = decoders[1]
    assert [native.decode(native.prepare([source]), search)[0][0] for source in inputs] == fast
    apart = dataclasses.replace(search, ngram_weight=0.0, end_threshold=0.0)
    assert [one.ids for one in fast] != [ranked[0].ids for ranked in native.decode(native.prepare(inputs), apart)]


@given(
    name=st.sampled_from(sorted(FLAT)),
    beam_size=st.integers(1, 6),
    weight=st.sampled_from([0.1, 0.6, 3.0]),
    limits=st.builds(OutputLimits, max_extra_tokens=st.integers(0, 5), min_tokens=st.integers(1, 5)),
    beam_threshold=st.sampled_from([None, 0.5, 3.0]),
)
def test_a_beam_on_a_device_ranks_coupled_slots_as_native_code_does(name, beam_size, weight, limits, beam_threshold, ngram):
    options = {"beam_size": beam_size, "n_best": beam_size, "beam_threshold": beam_threshold, "output_limits": limits}
    rows = [source for source in mixed_sources(40) if source][:4]
    compare(FLAT[name], rows, StepwiseSearch(strategy="beam", ngram_weight=weight, **options), ngram=ngram, shapes=buffers_of_a_gpu)


@given(
    seed=st.integers(0, 10**6),
    step=st.integers(1, 6),
    candidates=st.integers(1, 4),
    right_to_left=st.sampled_from([(False,), (True,), (False, True)]),
    weight=st.sampled_from([0.0, 0.6, 3.0]),
    end_threshold=st.sampled_from([0.0, 0.05, 0.5]),
    order=st.integers(1, 3),
)
def test_the_choice_on_a_device_is_that_of_native_code(seed, step, candidates, right_to_left, weight, end_threshold, order):
    """Also for equal scores, tokens that the n-gram model does not have, and models without bigrams."""
    draw = np.random.default_rng(seed)
    text = [[PIECES[7 + int(16 * place**2)] for place in draw.random(8)] for _ in range(20)]
    known = NgramModel.estimate(text, order=order, discount_fallback=(0.5, 1.0, 1.5)).for_vocabulary(PIECES)
    coupling = BigramCoupling(ngram=known if weight else None, weight=weight, right_to_left=right_to_left)
    joint = JointStep(coupling=coupling, end_threshold=end_threshold, candidates=candidates)
    scores = torch.from_numpy(draw.integers(0, 6, (5, step, len(PIECES))).astype(np.float32)).log_softmax(2)
    scores[draw.random(scores.shape) < 0.2] = -torch.inf
    scores[..., 8] = -9.0  # at least one token is left
    ids, log_probs, _ = JointChoice(joint, torch.device("cpu")).choose(scores.clone())
    candidates = slot_candidates(scores.clone(), joint.candidates, separate_eos=True)
    wanted, wanted_log_probs = map(torch.from_numpy, joint.choose(*(part.numpy() for part in candidates), eos=EOS))
    for row in range(5):
        ends = (wanted[row] == EOS).nonzero()[:, 0].tolist()
        kept = ends[0] + 1 if ends else step
        assert ids[row, :kept].tolist() == wanted[row, :kept].tolist()
        assert log_probs[row, :kept].tolist() == wanted_log_probs[row, :kept].tolist()


@pytest.mark.parametrize("options", OPTIONS)
def test_a_step_does_not_wait_for_the_host(options, ngram):
    with torch.device("meta"):
        model = build(dataclasses.replace(WIDER, order="interleaved-sa"), Sizes(23, 23, True)).eval()
    size, device, search = Size(sentences=4, source=16, slots=32), torch.device("meta"), StepwiseSearch(**options)
    with torch.no_grad():
        batch = empty_inputs(size, model.sizes.target, device, shortlists=False)
        if search.strategy == "beam":
            program = Beam(model, search, size, coupling(model.order, search, ngram))
        else:
            program = Greedy(model, search, size, batch, joint_step(model.order, search, ngram))
        program.start(batch)
        with DeviceAlone() as calls:
            program.step()
    assert calls.calls < 800


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_coupled_slots_of_either_direction_are_weighed_in_the_order_of_the_output(ngram, strategy):
    """With an overwhelming weight the pairs of the output are the most probable ones of the n-gram model."""
    inputs = [source for source in mixed_sources(40) if source]
    decoder = frozen(FLAT["interleaved-sa"], ngram)

    def likely(search):
        pairs = 0.0
        for ranked in decoder.decode(decoder.prepare(inputs), search):
            ids = ranked[0].ids
            for place in (0, len(ids) - 2):  # the first two from the left, and from the right
                if len(ids) >= 4:
                    _, state = ngram.step(ngram.empty, ids[place])
                    pairs += ngram.step(state, ids[place + 1])[0] - ngram.step(ngram.empty, ids[place + 1])[0]
        return pairs

    apart = StepwiseSearch(strategy=strategy, output_limits=OutputLimits(max_extra_tokens=6, min_tokens=4))
    assert likely(dataclasses.replace(apart, ngram_weight=50.0)) > likely(apart) + 10.0


def test_what_does_not_go_together_is_refused(ngram):
    inputs = [[7, 8]]

    def decode(model, scorer=None, **options):
        decoder = frozen(model, scorer)
        return decoder.decode(decoder.prepare(inputs), StepwiseSearch(**options))

    several, one = FLAT["interleaved-sa"], flat_network("interleaved")
    with pytest.raises(ValueError, match="ngram_weight: expected 0 for a system without an n-gram model"):
        decode(several, ngram_weight=0.5)
    with pytest.raises(ValueError, match=r"end_threshold: expected 0 with beam, got 0\.5"):
        decode(several, strategy="beam", end_threshold=0.5)
    with pytest.raises(ValueError, match="ngram_weight: expected 0 for an order that writes no two adjacent tokens in a step"):
        decode(one, ngram, ngram_weight=0.5)
    with pytest.raises(ValueError, match="ngram_weight: expected 0 unless selection is exact and the first EOS ends an output"):
        decode(several, ngram, strategy="beam", selection="outer", ngram_weight=0.5)
    for order in ("autoregressive", "double-token"):
        with pytest.raises(ValueError, match="end_threshold: expected 0 for an order that writes one token a step"):
            decode(flat_network(order), end_threshold=0.5)
    other = NgramModel.estimate([["a", "b"]] * 3, order=2, discount_fallback=(0.5, 1, 1.5)).for_vocabulary(["a", "b"])
    for strategy in ("greedy", "beam"):
        with pytest.raises(ValueError, match="ngram: expected a model over the network's vocabulary"):
            decode(several, other, strategy=strategy, ngram_weight=1)
    assert decode(several, ngram, ngram_weight=0.5)[0][0].statistics["margin"] == math.inf
    assert EOS not in decode(one, end_threshold=0.5)[0][0].ids


# ---- ensemble


"""A decoder of finished networks."""

WORDS = 10
SOME = [[7, 8, 9], [9], [8, 8, 7, 9, 7], [], [7]]


def member(seed, order="autoregressive", **changes):
    return network(ORDERS[order], vocabulary=WORDS, sharpness=2.0, seed=seed, decoder_layers=1, **changes)


def ensemble(order="autoregressive", size=3):
    return Ensemble([member(seed, order) for seed in range(size)])


def decode(decoder, search):
    return decoder.decode(decoder.prepare(SOME), search)


@torch.no_grad()
def log_probs(members, source, prefix):
    """Return the logarithm of the mean probability of each next token, of an autoregressive ensemble."""
    batch = collate([0], [source], [[*prefix, 7]])
    found = []
    for member in members:
        made = member(batch.source, batch.source_lengths, batch.target, batch.target_lengths)
        found.append((made.states @ made.weight.t()).softmax(-1)[len(prefix)])
    return torch.stack(found).mean(0).log()


def test_greedy_takes_the_token_of_the_highest_mean_probability():
    model = ensemble()
    search = StepwiseSearch(output_limits=OutputLimits(max_extra_tokens=3))
    for source, (found,) in zip(SOME, decode(StepwiseDecoder(model), search), strict=True):
        written, score = [], 0.0
        for _ in range(len(source) + 1 + 3):
            row = log_probs(model.members, source, written)
            row[[token for token in range(7) if token != EOS]] = -math.inf
            row[EOS] = row[EOS] if written else -math.inf
            score += float(row.max())
            written.append(int(row.argmax()))
            if written[-1] == EOS:
                break
        assert found.ids == [token for token in written if token != EOS]
        assert found.score == pytest.approx(score / len(written), abs=1e-5)


def test_a_text_scores_the_mean_probability_of_each_of_its_tokens():
    model = ensemble()
    targets = [[7, 9], [8], [7, 7, 7, 9], [9, 8], []]
    for source, target, score in zip(SOME, targets, StepwiseDecoder(model).score(SOME, targets), strict=True):
        steps = [float(log_probs(model.members, source, target[:n])[word]) for n, word in enumerate([*target, EOS])]
        assert score == pytest.approx(sum(steps), abs=1e-4)


FOUR_SEARCHES = [
    StepwiseSearch(output_limits=OutputLimits(max_extra_tokens=4)),
    StepwiseSearch(strategy="beam", beam_size=3, n_best=3, output_limits=OutputLimits(max_extra_tokens=4)),
    StepwiseSearch(strategy="beam", beam_size=4, output_limits=OutputLimits(max_extra_tokens=4, min_tokens=2), length_penalty=0.6),
]


@pytest.mark.parametrize("order", ["autoregressive", "semi-autoregressive", "interleaved", "interleaved-sa"])
def test_native_search_finds_what_torch_finds(order):
    model, near = ensemble(order), 0
    for search in FOUR_SEARCHES:
        for expected, found in zip(decode(StepwiseDecoder(model), search), decode(frozen(model), search), strict=True):
            if min(one[0].statistics["margin"] for one in (expected, found)) < 1e-4:
                near += 1
                continue
            assert [one.ids for one in found] == [one.ids for one in expected]
            assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-4)
    assert near < 5


def test_samples_are_drawn_from_the_mean():
    """With a tiny top_p a sample consists of the most probable tokens."""
    model = ensemble()
    greedy = decode(StepwiseDecoder(model), StepwiseSearch(output_limits=OutputLimits(max_extra_tokens=4)))
    samples = decode(
        StepwiseDecoder(model),
        StepwiseSearch(strategy="sample", sampling=NucleusSampling(top_p=1e-6), output_limits=OutputLimits(max_extra_tokens=4)),
    )
    assert [one[0].ids for one in samples] == [one[0].ids for one in greedy]


def test_networks_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match=r"member 2: expected the order of the first .*fold"):
        Ensemble([member(0), member(1, "interleaved")])
    with pytest.raises(ValueError, match=r"member 2: expected the max_positions of the first \(40\), got 30"):
        Ensemble([member(0), member(1, max_positions=30)])


# ---- scores of given targets agree with the scores of searches


def decoder_of(order=None, **changes):
    return StepwiseDecoder(network(order, **changes))


@pytest.mark.parametrize("name", ORDERS)
def test_what_a_search_wrote_has_the_probability_that_the_search_found(name):
    """The search computes step by step with a cache, the score all steps at once."""
    at_work = decoder_of(ORDERS[name], vocabulary=9)
    given = [[7], [8, 7], [7, 7, 8], [8, 8], [7, 8, 8, 8]]
    search = StepwiseSearch(
        strategy="beam",
        beam_size=40,
        n_best=40,
        length_penalty=0.0,
        output_limits=OutputLimits(max_extra_tokens=9, allow_unknown=True),
    )
    searches = [
        search,
        dataclasses.replace(search, output_limits=OutputLimits(max_extra_tokens=9, min_tokens=6, allow_unknown=True)),
    ]
    pairs = [
        (source, one)
        for each in searches
        for source, ranked in zip(given, at_work.decode(at_work.prepare(given), each), strict=True)
        for one in ranked
        if len(one.ids) < len(source) + 10  # else the longest output cut it, and no EOS was written
    ]
    compared = Counter()
    for (_, one), score in zip(pairs, at_work.score([source for source, _ in pairs], [one.ids for _, one in pairs]), strict=True):
        if at_work.model.order.stop == "per-direction" and one.score > score + 1e-3:
            compared["other"] += 1  # written the other way: (EOS, w) for (w, EOS)
            continue
        assert score == pytest.approx(one.score, abs=2e-4)
        compared[len(one.ids)] += 1
    assert len(compared) > 3, "outputs of few lengths would test little"
    assert compared["other"] < compared.total() / 2


@pytest.mark.parametrize("name", ["autoregressive", "interleaved-sa", "multi-directional", "double-token"])
def test_scores_do_not_depend_on_company(name):
    at_work = decoder_of(ORDERS[name])
    given, targets = sources(20, 12, 0, 9, seed=1), sources(20, 12, 0, 12, seed=2)
    together = at_work.score(given, targets)
    assert together == pytest.approx(at_work.score(given[::-1], targets[::-1])[::-1], abs=1e-4)
    for source, target, score in zip(given, targets, together, strict=True):
        assert at_work.score([source], [target]) == pytest.approx([score], abs=1e-4)
    assert all(score < 0 for score in together)


def test_sides_may_be_empty_and_batches_too():
    at_work = decoder_of()
    assert at_work.score([], []) == []
    empty, some = at_work.score([[], [7]], [[], [8]])
    assert empty < 0
    assert some < 0


def test_the_unknown_token_is_scored_though_no_search_writes_it():
    at_work = decoder_of()
    (score,) = at_work.score([[7]], [[8, UNK]])
    assert math.isfinite(score)


@pytest.mark.parametrize(
    ("sources", "targets", "problem"),
    [
        ([[7]], [], r"targets: expected 1, one for each source, got 0"),
        ([[7], [7] * 40], [[7], [8]], r"sources\[1\]: expected at most 39 tokens, got 40"),
        ([[7], [7]], [[7], [8] * 40], r"targets\[1\]: expected at most 39 tokens, got 40"),
        ([[7]], [[8, EOS, 8]], r"targets\[0\]: expected ids of text, got the reserved id 2 \(</s>\)"),
        ([[7]], [[BOS, 8]], r"got the reserved id 1 \(<s>\)"),
    ],
)
def test_what_cannot_be_scored_is_refused(sources, targets, problem):
    with pytest.raises(ValueError, match=problem):
        decoder_of().score(sources, targets)


@pytest.mark.parametrize("name", ORDERS)
def test_the_longest_target_can_be_scored(name):
    (score,) = decoder_of(ORDERS[name], max_positions=11).score([[7] * 10], [[8] * 10])
    assert math.isfinite(score)


def test_a_living_network_is_scored_without_dropout_or_autocast_and_keeps_its_mode():
    at_work = decoder_of(dropout=0.5)
    expected = at_work.score([[7, 8]], [[9, 10]])
    at_work.model.train()
    with torch.autocast("cpu", torch.bfloat16):
        assert at_work.score([[7, 8]], [[9, 10]]) == expected
    assert at_work.model.training


@pytest.mark.parametrize(
    "search",
    [
        StepwiseSearch(output_limits=OutputLimits(max_extra_tokens=9)),
        StepwiseSearch(strategy="beam", beam_size=4, n_best=4, output_limits=OutputLimits(max_extra_tokens=9)),
    ],
)
def test_repetitions_are_taken_out_of_outputs_only_where_asked(search):
    at_work = decoder_of(ORDERS["interleaved-sa"])
    prepared = at_work.prepare(sources(30, 12, 0, 6, seed=5))
    plain = at_work.decode(prepared, search)
    clean = at_work.decode(prepared, dataclasses.replace(search, deduplicate=True))
    shortened = 0
    for before, after in zip(plain, clean, strict=True):
        first = {}
        for one in before:
            first.setdefault(tuple(deduplicate(one.ids)), one)
        assert [(tuple(one.ids), one.score, one.steps) for one in after] == [
            (ids, one.score, one.steps) for ids, one in first.items()
        ]
        shortened += before[0].ids != after[0].ids
    assert shortened > 3


def test_samples_stay_as_many_as_were_drawn():
    at_work = decoder_of(ORDERS["interleaved-sa"])
    search = StepwiseSearch(
        strategy="sample",
        n_best=12,
        sampling=NucleusSampling(top_p=0.5),
        output_limits=OutputLimits(max_extra_tokens=9),
        deduplicate=True,
    )
    found = at_work.decode(at_work.prepare(sources(6, 12, 0, 6, seed=5)), search)
    assert [len(ranked) for ranked in found] == [12] * 6
    assert any(len({tuple(one.ids) for one in ranked}) < 12 for ranked in found)
