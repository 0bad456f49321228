"""Steps with coupled slots: native code agrees with torch."""

import dataclasses
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep import BigramCoupling, JointStep
from fewstep.config.network import Sizes
from fewstep.config.options import OutputLimits
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.options import coupling, joint_step
from fewstep.vocabulary import EOS
from kernels import NgramModel
from models.common.buffers import Size, empty_inputs
from models.stepwise.decode import StepwiseDecoder
from models.stepwise.model import build
from models.stepwise.search.beam import Beam
from models.stepwise.search.candidates import slot_candidates
from models.stepwise.search.greedy import Greedy
from models.stepwise.search.joint_choice import JointChoice
from tests.models.common.device_alone import DeviceAlone
from tests.models.stepwise.test_native import SMALL, one_thread, sources
from tests.models.stepwise.test_search import compare

frozen = partial(StepwiseDecoder, frozen=True)
"""A decoder of finished networks."""

__all__ = ["one_thread"]

PIECES = ["<pad>", "<s>", "</s>", "<unk>", "<mask>", "<5>", "<6>", *(f"w{i}" for i in range(7, 23))]


@pytest.fixture(scope="module")
def ngram():
    """A model over the words of the networks, of a text in which some pairs are frequent."""
    draw = np.random.default_rng(0)
    text = [[PIECES[7 + int(16 * place**2)] for place in draw.random(8)] for _ in range(200)]
    return NgramModel.estimate(text, order=3, discount_fallback=(0.5, 1.0, 1.5)).for_vocabulary(PIECES)


def flat(order, **changes):
    """Return an untrained network with many nearly equal tokens, EOS among them."""
    torch.manual_seed(1)
    model = build(dataclasses.replace(SMALL, order=order, **changes), Sizes(23, 23, True)).eval()
    with torch.no_grad():
        model.target_embedding.weight.mul_(0.5)
        for name, values in model.named_parameters():
            if name.endswith((".bias", "norm.weight")):
                values.add_(torch.randn_like(values) * 0.3)
    return model


FLAT = {name: flat(name) for name in ("semi-autoregressive", "interleaved-sa", "double-token-l2r", "double-token-r2l")}
FLAT["interleaved by three"] = flat("interleaved", tokens_per_direction=3)


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
    inputs = [source for source in sources(40) if source]
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
    rows = [source for source in sources(40) if source][:4]
    compare(FLAT[name], rows, StepwiseSearch(strategy="beam", ngram_weight=weight, **options), ngram=ngram)


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
        model = build(dataclasses.replace(SMALL, order="interleaved-sa"), Sizes(23, 23, True)).eval()
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
    inputs = [source for source in sources(40) if source]
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

    several, one = FLAT["interleaved-sa"], flat("interleaved")
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
            decode(flat(order), end_threshold=0.5)
    other = NgramModel.estimate([["a", "b"]] * 3, order=2, discount_fallback=(0.5, 1, 1.5)).for_vocabulary(["a", "b"])
    for strategy in ("greedy", "beam"):
        with pytest.raises(ValueError, match="ngram: expected a model over the network's vocabulary"):
            decode(several, other, strategy=strategy, ngram_weight=1)
    assert decode(several, ngram, ngram_weight=0.5)[0][0].statistics["margin"] == math.inf
    assert EOS not in decode(one, end_threshold=0.5)[0][0].ids
