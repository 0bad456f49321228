"""Native decoding of slots against torch's."""

import dataclasses
import random
from functools import partial

import numpy as np
import pytest
import torch

from fewstep import Lexicon
from fewstep.config.network import Sizes
from fewstep.config.options import Shortlist
from fewstep.families.parallel.config import ParallelSearch
from fewstep.families.parallel.decoder import NativeDecoder, _rules, _slots
from fewstep.families.parallel.search import FilledSlots
from fewstep.networks.parallel_network import ParallelNetwork
from fewstep.system.format import CODES, WEIGHTS
from fewstep.system.networks import shape_of
from models.bundle.weights import describe, save_weights
from models.common.engines import native_arrays
from models.parallel.decode import ParallelDecoder, load
from models.parallel.search import TorchDecoder
from tests.models.parallel.networks import network

frozen = partial(ParallelDecoder, frozen=True)
NEAR = 1e-4
SIZES = Sizes(29, 23, False)
NETWORKS = {
    "uniform": {"objective": "nat", "norm": "post"},
    "mask": {"objective": "glat", "slot_input": "mask", "length_prediction": "absolute"},
    "soft": {"objective": "nat", "slot_input": "soft", "positions": "learned", "sizes": SIZES},
    "repeat": {"objective": "ctc", "width": 30},
    "gaussian": {"objective": "ctc-glat", "slot_input": "gaussian", "upsampling": 2.2, "sizes": SIZES},
    "cmlm": {"objective": "cmlm", "heads": 4},
}
SLOTS = [
    ParallelSearch(),
    ParallelSearch(length_candidates=4, n_best=2, allow_unknown=True),
    ParallelSearch(length_candidates=3, length_choice="around", deduplicate=True),
]
ALIGNMENTS = [ParallelSearch(), ParallelSearch(strategy="prefix-beam", beam_size=5, candidates=4, n_best=3, token_bonus=0.3)]
PASSES = [*SLOTS, ParallelSearch(strategy="mask-predict", iterations=4, length_candidates=3)]
CASES = [
    (name, search)
    for name, options in NETWORKS.items()
    for search in (ALIGNMENTS if "ctc" in options["objective"] else PASSES if name == "cmlm" else SLOTS)
]


def made(name):
    model = network(**NETWORKS[name])
    if model.length is not None and not model.config.length_offset:
        with torch.no_grad():
            model.length.weight[3:12] = torch.randn(9, model.config.width) * 3
    return model


def sources(count, longest=11, seed=0):
    draw = random.Random(seed)
    return [[draw.randrange(7, 16) for _ in range(draw.randrange(longest + 1))] for _ in range(count)]


def outputs(decoder, rows, search):
    return decoder.decode(decoder.prepare(rows), search)


def compare(expected, found):
    """The same outputs, but for near-ties."""
    near = 0
    for wanted, got in zip(expected, found, strict=True):
        if wanted[0].statistics.get("margin", 1.0) < NEAR:
            near += 1
            continue
        assert [one.ids for one in got] == [one.ids for one in wanted]
        assert [one.score for one in got] == pytest.approx([one.score for one in wanted], abs=1e-3)
        assert [one.steps for one in got] == [one.steps for one in wanted]
    assert near <= 1


@pytest.mark.parametrize(("name", "search"), CASES, ids=lambda value: getattr(value, "label", value))
def test_finds_what_torch_finds(name, search):
    model, rows = made(name), sources(12)
    expected, found = outputs(ParallelDecoder(model), rows, search), outputs(frozen(model), rows, search)
    compare(expected, found)
    assert len({tuple(one[0].ids) for one in found}) > 3


@pytest.mark.parametrize(("name", "search"), CASES, ids=lambda value: getattr(value, "label", value))
def test_a_sentence_decodes_to_the_same_bits_alone_and_in_a_batch(name, search):
    decoder, rows = frozen(made(name)), sources(19)
    together = outputs(decoder, rows, search)
    torch.set_num_threads(2)
    assert outputs(decoder, rows, search) == together
    for source, ranked in zip(rows, together, strict=True):
        assert outputs(decoder, [source], search) == [ranked]


@pytest.mark.parametrize("search", SLOTS[:1] + SLOTS[2:])
def test_slots_are_those_of_torch(search):
    model, rows = made("soft"), sources(9)
    prepared = ParallelDecoder(model).prepare(rows)
    expected = TorchDecoder(model, None, None).filled(prepared, search)
    native = NativeDecoder(model.config, native_arrays(model))._copies["float32"]
    found = FilledSlots(
        *native.fill(
            prepared.ids,
            prepared.lengths,
            candidates=search.length_candidates,
            around=search.length_choice == "around",
            iterations=1,
            rules=_rules(model.config, search),
        )
    )
    assert np.array_equal(found.sentences, expected.sentences)
    assert np.array_equal(found.lengths, expected.lengths)
    real = np.arange(found.ids.shape[1]) < found.lengths[:, None]
    np.testing.assert_allclose(found.log_probs[real], expected.log_probs[real], atol=1e-4)


TIES = [10, 64, 65, 7000]


@pytest.mark.parametrize("objective", ["nat", "cmlm", "ctc"])
def test_the_lowest_of_equal_tokens_wins_in_torch_and_natively(objective):
    model = network(Sizes(8000, 8000, True), objective=objective)
    with torch.no_grad():
        model.decoder.norm.weight.zero_()
        model.decoder.norm.bias.copy_(torch.eye(16)[0])
        model.target_embedding.weight[:, 0] = 0.0
        model.target_embedding.weight[TIES, 0] = 1.0
    rows, decoders = sources(5), (ParallelDecoder(model), frozen(model))
    if objective != "ctc":
        search = PASSES[-1] if objective == "cmlm" else ParallelSearch(length_candidates=2)
        found = [outputs(decoder, rows, search) for decoder in decoders]
        assert {token for one in found for ranked in one for token in ranked[0].ids} == {10}
        return
    prepared, search = decoders[0].prepare(rows), ALIGNMENTS[1]
    expected = TorchDecoder(model, None, None).ranked(prepared, search).ids
    network_copy = NativeDecoder(model.config, native_arrays(model))._copies["float32"]
    ranked = network_copy.rank(prepared.ids, prepared.lengths, tokens=4, rules=_rules(model.config, search), threads=1)
    for ids, lengths in ((expected, ranked[3]), (ranked[1], ranked[3])):
        assert all((ids[row, :length] == TIES).all() for row, length in enumerate(lengths.tolist()))


LEXICON = Lexicon(
    np.array([0, 1, 2, 3, 4, 5, 6, 12, 9]),
    np.where(np.arange(32) < 3, np.random.default_rng(3).integers(-1, 13, (29, 32)), -1),
)


@pytest.mark.parametrize("name", ["soft", "gaussian", "cmlm"])
def test_tokens_are_chosen_among_those_that_are_listed_as_torch_chooses_them(name):
    options = NETWORKS[name]
    model, rows = made(name), sources(12)
    lexicon = LEXICON if "sizes" in options else LEXICON._replace(linked_tokens=LEXICON.linked_tokens[:16])
    search = (ALIGNMENTS if "ctc" in options["objective"] else PASSES)[-1]
    listed = dataclasses.replace(search, shortlist=Shortlist(tokens=9, links=2))
    if name == "soft":
        listed = dataclasses.replace(SLOTS[1], shortlist=Shortlist(tokens=9, links=2))
    expected, found = (outputs(kind(model, lexicon=lexicon), rows, listed) for kind in (ParallelDecoder, frozen))
    compare(expected, found)
    written = {token for ranked in found for one in ranked for token in one.ids}
    common, linked = set(LEXICON.common_tokens.tolist()), set(LEXICON.linked_tokens[:16, :2].ravel().tolist())
    assert written <= common | linked | {3}
    together = outputs(frozen(model, lexicon=lexicon), rows, listed)
    assert [outputs(frozen(model, lexicon=lexicon), [row], listed)[0] for row in rows] == together


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("name", ["uniform", "repeat", "cmlm"])
def test_other_precisions_are_near(name, precision):
    decoder, rows = frozen(made(name), lexicon=LEXICON._replace(linked_tokens=None)), sources(12)
    exact = outputs(decoder, rows, ParallelSearch())
    found = outputs(decoder, rows, ParallelSearch(precision=precision))
    assert sum(one[0].ids == other[0].ids for one, other in zip(exact, found, strict=True)) >= 4
    assert 0 < max(abs(one[0].score - other[0].score) for one, other in zip(exact, found, strict=True)) < 2.0
    listed = outputs(decoder, rows, ParallelSearch(precision=precision, shortlist=Shortlist(tokens=9, links=0)))
    assert {token for one in listed for token in one[0].ids} <= {9, 12}


def test_a_loaded_system_is_native_on_a_cpu(tmp_path):
    model = made("cmlm")
    save_weights(tmp_path / WEIGHTS, model.state_dict())
    save_weights(tmp_path / CODES, model.codes())
    described = describe("parallel", model.config, model.sizes) | {"parts": {WEIGHTS: {}, CODES: {}}}
    decoder = load(tmp_path, described, ParallelSearch(), "cpu")
    assert "native" in decoder.engines
    rows = sources(4)
    assert outputs(decoder, rows, PASSES[-1]) == outputs(frozen(model), rows, PASSES[-1])


def native(model, **changes):
    """Return the native network of a model, with other options of its slots."""
    return ParallelNetwork(
        native_arrays(model),
        shape=shape_of(model.config),
        slots=dataclasses.replace(_slots(model.config), **changes),
        impossible=(0, 1),
    )


def test_arguments_that_do_not_fit_are_refused():
    slots, alignments = made("uniform"), made("repeat")
    ids, lengths = np.array([[7, 8, 2]]), np.array([3])
    rules = _rules(slots.config, ParallelSearch())
    fill = partial(native(slots).fill, candidates=1, around=False, iterations=1)
    for given, message in [
        ((ids, np.array([4]), rules), r"lengths\[0\]: expected 1 to 3, got 4"),
        ((ids, np.array([0]), rules), r"lengths\[0\]: expected 1 to 3, got 0"),
        ((ids + 9, lengths, rules), r"sources\[0\]: expected ids below 16, got 16"),
        ((ids, lengths, dataclasses.replace(rules, separator=16)), "separator: expected ids below 16, got 16"),
        ((ids, lengths, dataclasses.replace(rules, banned=(-1,))), "banned: expected ids below 16, got -1"),
        ((ids, lengths, dataclasses.replace(rules, shortlist_tokens=8)), "shortlist: expected a network with a lexicon"),
    ]:
        with pytest.raises(ValueError, match=message):
            fill(*given[:2], rules=given[2])
    with pytest.raises(ValueError, match="iterations: expected 1 to 4096, got 0"):
        native(slots).fill(ids, lengths, candidates=1, around=False, iterations=0, rules=rules)
    with pytest.raises(ValueError, match="rank: expected a network that upsamples"):
        native(slots).rank(ids, lengths, tokens=1, rules=rules)
    with pytest.raises(ValueError, match="fill: expected a network that predicts lengths"):
        native(alignments).fill(ids, lengths, candidates=1, around=False, iterations=1, rules=rules)
    with pytest.raises(ValueError, match="a source with codes for all of its slots"):
        native(alignments, upsampling=40.0).rank(ids, lengths, tokens=1, rules=rules)
    with pytest.raises(ValueError, match="input: expected mask, uniform"):
        native(slots, input="other")
    with pytest.raises(ValueError, match="slot_codes: expected 80 rows, got 40"):
        NativeDecoder(alignments.config, native_arrays(slots))


def test_the_runtime_refuses_what_it_cannot_do():
    model = made("uniform")
    decoder = NativeDecoder(model.config, native_arrays(model), rescorer=True)
    with pytest.raises(ValueError, match="engine: expected auto in native code"):
        outputs(decoder, [[7]], ParallelSearch(engine="torch"))
    with pytest.raises(ValueError, match="rescoring: expected self in the runtime"):
        outputs(decoder, [[7]], ParallelSearch(rescoring="system"))
    with pytest.raises(ValueError, match=r"sources\[0\].*at most 39 tokens"):
        decoder.prepare([[7] * 40])
