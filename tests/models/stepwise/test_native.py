"""Native code against torch, with exact shapes and in the buffers of a GPU, in which no step waits for the host."""

import dataclasses
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep import Lexicon
from fewstep.config.options import NucleusSampling, OutputLimits, Shortlist
from fewstep.decoding import decode_batch
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.decoder import natural_order
from fewstep.families.stepwise.orders import ORDERS
from fewstep.sources import max_output_lengths
from fewstep.system.format import CODES, WEIGHTS
from fewstep.vocabulary import EOS, UNK
from models.bundle.weights import describe, save_weights
from models.common.buffers import Size, empty_inputs
from models.common.inference import Precisions
from models.stepwise.arrangement import restore
from models.stepwise.decode import StepwiseDecoder, load
from models.stepwise.ensemble import Ensemble
from models.stepwise.search.beam import Beam
from models.stepwise.search.greedy import Greedy
from models.stepwise.search.run import TorchDecoder, with_numbers
from tests.models.common.device_alone import DeviceAlone, buffers_of_a_gpu
from tests.models.stepwise.networks import beams, biased_network, mixed_sources, network, short, short_beams, sources

frozen = partial(StepwiseDecoder, frozen=True)
"""A decoder of finished networks."""

NEAR = 1e-4
GREEDY = short()


def compare(model, inputs, search, ngram=None, shapes=nullcontext):
    """Compare hypotheses of torch, in buffers of `shapes`, with native ones, and return the number of near-ties left out."""
    slow, fast = StepwiseDecoder(model, ngram), frozen(model, ngram)
    near = 0
    with shapes():
        wanted = slow.decode(slow.prepare(inputs), search)
    for expected, found in zip(wanted, fast.decode(fast.prepare(inputs), search), strict=True):
        if min(one[0].statistics["margin"] for one in (expected, found)) < NEAR:
            near += 1
            continue
        assert [one.ids for one in found] == [one.ids for one in expected]
        assert [one.steps for one in found] == [one.steps for one in expected]
        assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-4)
        if ngram is None:
            gaps = [[one.statistics["margin"] for one in ranked] for ranked in (found, expected)]
            assert gaps[0] == pytest.approx(gaps[1], abs=1e-3)
    return near


SEARCHES = [
    GREEDY,
    dataclasses.replace(
        GREEDY,
        output_limits=OutputLimits(max_extra_tokens=6, min_tokens=3, allow_unknown=True),
        length_penalty_form="gnmt",
        length_penalty=0.6,
    ),
    dataclasses.replace(GREEDY, output_limits=OutputLimits(max_extra_tokens=6, max_tokens=5)),
    short_beams(1),
    short_beams(4, n_best=4),
    short_beams(
        3,
        n_best=2,
        output_limits=OutputLimits(max_extra_tokens=6, min_tokens=5, allow_unknown=True),
        length_penalty_form="gnmt",
        length_penalty=0.6,
    ),
    short_beams(4, output_limits=OutputLimits(max_extra_tokens=6, max_tokens=6), length_penalty=0.0),
    short_beams(4, n_best=4, beam_threshold=1.5),
    short_beams(5, beam_threshold=0.3, length_penalty=2.0),
    short_beams(3, output_limits=OutputLimits(max_extra_tokens=0, allow_unknown=True)),
    short_beams(3, n_best=3, selection="outer"),
    short_beams(3, n_best=3, selection="outer", conventions="authors", length_penalty_form="gnmt"),
    short_beams(1, selection="outer", conventions="authors"),
    short_beams(1, selection="outer"),
    short_beams(3, n_best=3, selection="double-top-k"),
]


NETWORKS = [
    {"norm": "pre", "joint": True, "positions": "sinusoidal"},
    {"norm": "post", "joint": False, "positions": "learned"},
    {"norm": "pre", "joint": False, "positions": "sinusoidal"},
]


@pytest.mark.parametrize("name", ORDERS)
def test_finds_what_torch_finds(name):
    inputs, near, compared = mixed_sources(5, seed=1), 0, 0
    for index, kind in enumerate(NETWORKS):
        model = biased_network(name, **kind)
        for search in SEARCHES[index % 2 :: 2] if index else SEARCHES:
            if search.selection == "double-top-k" and model.order.step_size > 2:
                continue
            near += compare(model, inputs, search)
            compared += len(inputs)
        if model.order.step_size <= model.order.directions:
            for search in (GREEDY, short_beams(3, n_best=3), short_beams(3, selection="outer")):
                near += compare(model, inputs, dataclasses.replace(search, no_repeat_ngram=index + 1))
                compared += len(inputs)
    assert near < 0.03 * compared


@pytest.mark.parametrize("search", [GREEDY, short_beams(3, n_best=3), dataclasses.replace(GREEDY, precision="int8")])
@pytest.mark.parametrize("name", ORDERS)
def test_a_sentence_decodes_to_the_same_bits_alone_and_in_a_batch(name, search):
    decoder, inputs = frozen(biased_network(name)), mixed_sources(11)
    together = decoder.decode(decoder.prepare(inputs), search)
    assert len({ranked[0].steps for ranked in together}) > 1
    torch.set_num_threads(2)
    for source, ranked in zip(inputs, together, strict=True):
        assert decoder.decode(decoder.prepare([source]), search) == [ranked]


@pytest.mark.parametrize("search", [GREEDY, short_beams(3)])
def test_limits_of_the_network_and_empty_batches_are_as_with_torch(search):
    model = biased_network("interleaved-sa", max_positions=10, positions="learned")
    with torch.no_grad():  # EOS is out of reach
        model.decoder.norm.weight[0], model.decoder.norm.bias[0] = 0.0, 1.0
        model.target_embedding.weight[:, 0] = 0.0
        model.target_embedding.weight[2, 0] = -100.0
    decoder = frozen(model)
    assert decoder.decode(decoder.prepare([]), search) == []
    (ranked,) = decoder.decode(decoder.prepare([[7] * 9]), search)
    assert (len(ranked[0].ids), ranked[0].steps) == (10, 3)
    with pytest.raises(ValueError, match=r"sources\[0\].*at most 9 tokens, got 10"):
        decoder.prepare([[7] * 10])
    with pytest.raises(ValueError, match="double-top-k"):
        decoder.decode(decoder.prepare([[7]]), short_beams(2, selection="double-top-k"))


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_fewer_bits_write_what_float32_writes_with_other_scores(precision):
    decoder, inputs = frozen(biased_network("interleaved")), mixed_sources(40, longest=5, seed=2)
    search = dataclasses.replace(
        GREEDY, output_limits=OutputLimits(max_extra_tokens=6, max_tokens=2)
    )  # of one step: what comes later follows from it
    whole, narrow = (
        decoder.decode(decoder.prepare(inputs), dataclasses.replace(search, precision=p)) for p in ("float32", precision)
    )
    alike = [one[0].ids == other[0].ids for one, other in zip(whole, narrow, strict=True)]
    assert sum(alike) > 0.8 * len(alike)
    assert all(one[0].score != other[0].score for one, other in zip(whole, narrow, strict=True) if one[0].steps)


def test_a_precision_that_an_engine_lacks_is_refused():
    native, plain = frozen(biased_network("interleaved")), StepwiseDecoder(biased_network("interleaved"))
    half, narrow = (dataclasses.replace(GREEDY, precision=name) for name in ("float16", "int8"))
    with pytest.raises(
        ValueError, match="precision: expected float32, bfloat16 or int8 unless engine is torch or ctranslate2, got float16"
    ):
        native.decode(native.prepare([[7]]), half)
    for decoder, search in (
        (plain, narrow),
        (native, dataclasses.replace(narrow, engine="torch")),
        (native, dataclasses.replace(narrow, strategy="sample")),
    ):
        with pytest.raises(
            ValueError, match=r"precision: expected float32(, float16 or bfloat16 with engine torch| for sampling| in torch)"
        ):
            decoder.decode(decoder.prepare([[7]]), search)


LEXICON = Lexicon(
    np.array([0, 1, 2, 3, 4, 5, 6, 12, 9, 17]),
    np.where(np.arange(32) < 3, np.random.default_rng(3).integers(-1, 19, (23, 32)), -1),
)
LISTED = {"shortlist": Shortlist(tokens=9, links=2)}


def listed_words(source):
    """Return the tokens that `LISTED` allows for a source, except EOS and reserved ones. A token's links end at the first -1."""
    linked = [row[: row.index(-1)] if -1 in row else row for row in LEXICON.linked_tokens[[*source, EOS], :2].tolist()]
    return {12, 9} | {word for row in linked for word in row if word > 6}


def ensemble(order):
    first, second = biased_network(order), biased_network(order)
    with torch.no_grad():
        second.target_embedding.weight.copy_(first.target_embedding.weight.roll(3, 0))
    return Ensemble([first, second])


@pytest.mark.parametrize("build", [biased_network, ensemble])
@pytest.mark.parametrize("search", SEARCHES[:-1], ids=str)
@pytest.mark.parametrize("name", ["autoregressive", "interleaved-sa"])
def test_words_are_chosen_among_those_that_are_listed_as_torch_chooses_them(name, search, build):
    model, inputs, near, others = build(name), mixed_sources(12, seed=4), 0, 0
    search = dataclasses.replace(search, **LISTED, no_repeat_ngram=2 if name == "autoregressive" else 0)
    plain, native = StepwiseDecoder(model, lexicon=LEXICON), frozen(model, lexicon=LEXICON)
    expected, found, all_words = (
        decoder.decode(decoder.prepare(inputs), how)
        for decoder, how in (
            (plain, search),
            (native, search),
            (native, dataclasses.replace(search, shortlist=None)),
        )
    )
    for source, wanted, got, free in zip(inputs, expected, found, all_words, strict=True):
        assert {word for one in got for word in one.ids} - {UNK} <= listed_words(source)
        others += [one.ids for one in got] != [one.ids for one in free]
        if min(one[0].statistics["margin"] for one in (wanted, got)) < NEAR:
            near += 1
            continue
        assert [one.ids for one in got] == [one.ids for one in wanted]
        assert [one.score for one in got] == pytest.approx([one.score for one in wanted], abs=1e-4)
    assert near <= 2
    assert others >= 4


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("search", [GREEDY, short_beams(3, n_best=3)], ids=str)
def test_a_shortlist_of_all_tokens_changes_nothing_and_neither_do_other_sentences(search, precision):
    model, inputs = biased_network("interleaved", joint=False), mixed_sources(12, seed=5)
    search = dataclasses.replace(search, precision=precision)
    order = np.concatenate([np.arange(7), np.random.default_rng(1).permutation(np.arange(7, 19))])
    whole = frozen(model, lexicon=LEXICON._replace(common_tokens=order))
    with_list, without = (
        whole.decode(whole.prepare(inputs), dataclasses.replace(search, shortlist=shortlist))
        for shortlist in (Shortlist(tokens=19), None)
    )
    for one, other in zip(with_list, without, strict=True):
        assert [hypothesis.ids for hypothesis in one] == [hypothesis.ids for hypothesis in other]
        assert [hypothesis.score for hypothesis in one] == pytest.approx([hypothesis.score for hypothesis in other], abs=1e-4)
    decoder, search = frozen(model, lexicon=LEXICON), dataclasses.replace(search, **LISTED)
    together = decoder.decode(decoder.prepare(inputs), search)
    torch.set_num_threads(2)
    for source, ranked in zip(inputs, together, strict=True):
        assert decoder.decode(decoder.prepare([source]), search) == [ranked]


def test_samples_are_drawn_from_the_list():
    decoder, inputs = frozen(biased_network("interleaved"), lexicon=LEXICON), mixed_sources(8, seed=6)
    search = StepwiseSearch(
        strategy="sample", n_best=3, sampling=NucleusSampling(top_p=1.0), output_limits=OutputLimits(max_extra_tokens=6), **LISTED
    )
    for source, ranked in zip(inputs, decoder.decode(decoder.prepare(inputs), search), strict=True):
        assert {word for one in ranked for word in one.ids} <= listed_words(source)


def test_a_list_needs_something_to_be_made_of():
    model, search = biased_network("interleaved"), dataclasses.replace(GREEDY, **LISTED)
    for decoder in (StepwiseDecoder(model), frozen(model)):
        with pytest.raises(ValueError, match="shortlist: expected none for a system without candidate tables, got "):
            decoder.decode(decoder.prepare([[7]]), search)


def test_sampling_scores_and_deduplication_are_those_of_torch():
    model, inputs = biased_network("interleaved"), mixed_sources(6)
    plain, native = StepwiseDecoder(model), frozen(model)
    search = StepwiseSearch(strategy="sample", n_best=2, output_limits=OutputLimits(max_extra_tokens=3))
    expected = plain.decode(plain.prepare(inputs), search)
    assert [[one.ids for one in ranked] for ranked in native.decode(native.prepare(inputs), search)] == [
        [one.ids for one in ranked] for ranked in expected
    ]
    targets = mixed_sources(6, seed=1)
    targets = [[token for token in target if token < 19] for target in targets]
    assert native.score(inputs, targets) == pytest.approx(plain.score(inputs, targets), abs=1e-4)
    assert compare(model, inputs, dataclasses.replace(GREEDY, deduplicate=True)) <= 1


@pytest.mark.parametrize("name", ORDERS)
def test_restoring_one_output_is_restoring_a_batch_of_one(name):
    order = ORDERS[name]
    for length in range(14):
        flat = [*range(100, 100 + length)]
        assert natural_order(order, flat) == restore(order, torch.tensor([flat]).long(), torch.tensor([length]))[0].tolist()


def test_a_system_on_the_cpu_is_decoded_natively(tmp_path):
    model = biased_network("interleaved")
    save_weights(tmp_path / WEIGHTS, model.state_dict())
    save_weights(tmp_path / CODES, model.codes())
    decoder = load(tmp_path, describe("stepwise", model.config, model.sizes) | {"parts": {WEIGHTS: {}, CODES: {}}}, GREEDY, "cpu")
    assert "native" in decoder.engines
    assert decoder.decode(decoder.prepare([[7, 8]]), GREEDY) == frozen(model).decode(decoder.prepare([[7, 8]]), GREEDY)


# ---- searches of torch in buffers of fixed shapes: native code finds the same, and no step waits for the host


SAMPLES = short(strategy="sample", n_best=3, sampling=NucleusSampling(top_p=0.9))


@pytest.mark.parametrize("kind", ["greedy", "beam"])
@given(seed=st.integers(0, 1000), order=st.sampled_from(sorted(ORDERS)), data=st.data(), count=st.integers(1, 5))
def test_buffers_of_rounded_sizes_find_what_native_code_finds(kind, seed, order, data, count):
    search = data.draw(st.sampled_from([one for one in SEARCHES if one.strategy == kind]))
    if search.selection == "double-top-k" and ORDERS[order].step_size > 2:
        search = dataclasses.replace(search, selection="outer")
    compare(network(ORDERS[order], seed=seed), sources(count, seed=seed), search, shapes=buffers_of_a_gpu)


@pytest.mark.parametrize("search", [GREEDY, short_beams(3, n_best=2), SAMPLES])
def test_buffers_serve_batches_of_other_sizes_and_forget_the_last_one(search):
    model = network(ORDERS["interleaved"], seed=2)
    exact = StepwiseDecoder(model)
    with buffers_of_a_gpu():
        rounded = StepwiseDecoder(model)
    for count in (4, 3, 4, 1):
        rows = sources(count, seed=count)
        expected = exact.decode(exact.prepare(rows), search)
        with buffers_of_a_gpu():
            found = rounded.decode(rounded.prepare(rows), search)
        assert [[one.ids for one in ranked] for ranked in found] == [[one.ids for one in ranked] for ranked in expected]


def test_start_vectors_that_training_changes_are_read_again():
    model = network(dataclasses.replace(ORDERS["interleaved"], start="shared"), seed=2, start="shared")
    with buffers_of_a_gpu():
        kept = StepwiseDecoder(model)
        before = kept.decode(kept.prepare([[7, 8]]), GREEDY)
        with torch.no_grad():
            model.start.table.weight.mul_(-3.0)  # not a number added to all values: a layer norm takes it away again
        fresh = StepwiseDecoder(model)
        after = kept.decode(kept.prepare([[7, 8]]), GREEDY)
        assert after == fresh.decode(fresh.prepare([[7, 8]]), GREEDY)
    assert after != before


BART = {"norm": "post", "embedding_norm": True, "begin_vectors": True, "logits_bias": True, "positions": "learned"}
KINDS = [
    ("greedy", GREEDY, 330),
    ("beam", beams(3), 900),
    ("outer", beams(3, selection="outer"), 900),
    ("outer-authors", beams(3, selection="outer", conventions="authors"), 900),
    ("double-top-k", beams(3, selection="double-top-k"), 900),
    ("sample", SAMPLES, 340),
]


@pytest.mark.parametrize("order", ["autoregressive", "interleaved-sa", "double-token", "independent-directions", "bart"])
@pytest.mark.parametrize(("name", "search", "operations"), KINDS, ids=[name for name, *_ in KINDS])
def test_neither_start_nor_step_waits_for_the_host(order, name, search, operations):
    if name == "double-top-k" and order != "bart" and ORDERS[order].step_size > 2:
        pytest.skip("double-top-k is for steps of two")
    listed = dataclasses.replace(search, shortlist=Shortlist(tokens=9))
    with torch.device("meta"):
        model = network(**BART) if order == "bart" else network(ORDERS[order])
    size, device = Size(sentences=4, source=16, slots=32), torch.device("meta")
    with torch.no_grad():
        batch = with_numbers(empty_inputs(size, model.sizes.target, device, shortlists=True), size, search.n_best)
        made = Beam(model, listed, size) if search.strategy == "beam" else Greedy(model, listed, size, batch)
        with DeviceAlone():
            made.start(batch)
        with DeviceAlone() as calls:
            made.step()
    assert calls.calls < operations


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("order", ["autoregressive", "interleaved-sa", "bart"])
def test_half_precision_is_near_float32(precision, order):
    model, rows = network(**BART) if order == "bart" else network(ORDERS[order], seed=4), sources(12)
    decoder, engine = StepwiseDecoder(model), TorchDecoder(model, None, None, frozen=True)
    prepared = decoder.prepare(rows)
    limits = max_output_lengths(GREEDY.output_limits, prepared.lengths, model.config.max_positions)
    half, whole = (
        engine.search(prepared, dataclasses.replace(GREEDY, precision=name), limits, 1) for name in (precision, "float32")
    )
    equal = [(one, other) for (one,), (other,) in zip(half, whole, strict=True) if one.ids == other.ids]
    assert len(equal) >= 8
    assert [one.score for one, _ in equal] == pytest.approx([other.score for _, other in equal], abs=0.3)
    assert [one.score for one, _ in equal] != [other.score for _, other in equal]


def test_half_precision_needs_a_gpu_and_weights_that_stay():
    model = network()
    assert [problem.got for problem in Precisions(model, frozen=True).problems("float16")] == ["float16"]
    with torch.device("meta"):
        model = network()
    assert not list(Precisions(model, frozen=True).problems("float16"))
    assert len(list(Precisions(model, frozen=True).problems("int8"))) == 1
    assert len(list(Precisions(model, frozen=False).problems("float16"))) == 1


@pytest.mark.parametrize("shapes", [nullcontext, buffers_of_a_gpu])
def test_a_batch_that_does_not_fit_is_decoded_in_halves(monkeypatch, shapes):
    with shapes():
        decoder = StepwiseDecoder(network(seed=3))
        rows, counts, start = sources(8), [], Greedy.start
        expected = decoder.decode(decoder.prepare(rows), GREEDY)

        def limited(search, inputs):
            counts.append(len(inputs.source))
            if len(inputs.source) > 2:
                raise torch.OutOfMemoryError("no memory")
            start(search, inputs)

        monkeypatch.setattr(Greedy, "start", limited)
        found = decode_batch(decoder, rows, GREEDY)
    assert [ranked[0].ids for ranked in found] == [ranked[0].ids for ranked in expected]
    assert counts == [8, 4, 2, 2, 4, 2, 2]
