"""Decoding with torch: lengths, passes, alignments and rescoring."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from fewstep.config.options import NucleusSampling, Shortlist
from fewstep.config.search import SystemParts
from fewstep.decoding import BATCH_TOKENS
from fewstep.families.parallel.config import ParallelSearch
from fewstep.families.parallel.search import FilledSlots, RankedSlots, choose_lengths, collapse, search_alignments
from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.vocabulary import BLANK, EOS, LENGTH, MASK, RESERVED, UNK
from kernels.reference import ctc as reference
from models.common.buffers import Size
from models.common.inference import Precisions
from models.parallel import filling
from models.parallel.decode import ParallelDecoder, rescoring
from models.parallel.filling import Ranking, fill
from models.parallel.search import FillingRunner, RankingRunner, TorchDecoder
from models.stepwise.decode import StepwiseDecoder
from models.stepwise.model import StepwiseModel
from tests.models.aggressive.test_decode import links
from tests.models.common.device_alone import DeviceAlone, buffers_of_a_gpu
from tests.models.parallel.networks import PAIRS, network

STEPWISE = StepwiseConfig(width=16, feed_forward=24, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0, max_positions=40)
GREEDY, BEAM = ParallelSearch(), ParallelSearch(strategy="prefix-beam", beam_size=4, candidates=3)
SOURCES = [source for source, _ in PAIRS]
MASKED = ParallelSearch(strategy="mask-predict", iterations=4)


def outputs(model, rows, search, **parts):
    decoder = ParallelDecoder(model, **parts)
    return decoder.decode(decoder.prepare(rows), search)


class Fixed:
    """A system that scores texts by a rule."""

    def __init__(self, rule):
        self.rule, self.asked, self.most = rule, [], 0

    def score(self, sources, targets):
        self.most = max(self.most, len(sources))
        self.asked += list(zip(sources, targets, strict=True))
        return [self.rule(target) for target in targets]


def filled(*targets):
    """Return targets, each with a sentence, tokens and probabilities."""
    size = max(len(ids) for _, ids, _ in targets)
    padded = [[list(row) + [0] * (size - len(row)) for row in part] for part in zip(*[one[1:] for one in targets], strict=True)]
    return FilledSlots(
        np.array([sentence for sentence, _, _ in targets]),
        np.array([len(ids) for _, ids, _ in targets]),
        np.array(padded[0]),
        np.log(np.array(padded[1], dtype=np.float32).clip(1e-30)),
    )


def test_a_length_is_chosen_by_the_mean_log_probability():
    targets = filled(
        (0, [7, 8, EOS], [0.5, 0.5, 0.5]), (0, [7, EOS], [0.6, 0.5]), (0, [9, 9, 9, EOS], [0.4] * 4), (1, [EOS], [0.9])
    )
    first, second = choose_lengths(targets, ParallelSearch(length_candidates=3, n_best=3), 2, 1)
    assert [one.ids for one in first] == [[7], [7, 8], [9, 9, 9]]
    assert [one.score for one in first] == pytest.approx([math.log(0.3) / 2, math.log(0.5), math.log(0.4)], abs=1e-6)
    assert [one.ids for one in second] == [[]]


def test_ties_are_won_by_the_length_nearest_to_the_predicted_one_then_by_the_shorter_one():
    targets = filled(*[(0, [7] * (size - 1) + [EOS], [0.5] * size) for size in (4, 6, 3, 5)])
    (found,) = choose_lengths(targets, ParallelSearch(length_candidates=4, n_best=4), 1, 1)
    assert [len(one.ids) + 1 for one in found] == [4, 3, 5, 6]


def test_equal_texts_are_returned_once_and_repetitions_removed_before_rescoring():
    targets = filled((0, [7, 7, EOS], [0.5] * 3), (0, [7, EOS], [0.4] * 2), (0, [EOS, 7, 8], [0.3] * 3))
    search = ParallelSearch(length_candidates=3, n_best=3, deduplicate=True)
    (found,) = choose_lengths(targets, search, 1, 1)
    assert [(one.ids, one.score) for one in found] == [([7], pytest.approx(math.log(0.5))), ([7, 8], pytest.approx(math.log(0.3)))]
    asked = []
    choose_lengths(targets, search, 1, 1, lambda sentences, texts: asked.extend(texts) or [0.0] * len(texts))
    assert asked == [[7], [7], [7, 8]]


def test_another_system_chooses_among_lengths():
    model, system = network(), Fixed(lambda text: -1.0 * (len(text) + 1) * abs(len(text) - 2))
    search = ParallelSearch(length_candidates=4, n_best=4, rescoring="system")
    found = outputs(model, SOURCES, search, rescorer=system)
    own = outputs(model, SOURCES, dataclasses.replace(search, rescoring="self"))
    for source, ranked, others in zip(SOURCES, found, own, strict=True):
        assert {tuple(one.ids) for one in ranked} == {tuple(one.ids) for one in others}
        gaps = [abs(len(one.ids) - 2) for one in ranked]
        assert gaps == sorted(gaps)
        assert [one.score for one in ranked] == pytest.approx([-1.0 * gap for gap in gaps])
        assert all((source, one.ids) in system.asked for one in ranked)
    assert any(one[0].ids != other[0].ids for one, other in zip(found, own, strict=True))


@pytest.mark.parametrize("frozen", [False, True], ids=["torch", "native"])
@pytest.mark.parametrize("count", [1, 4])
def test_a_text_without_eos_in_all_slots_wins_only_if_there_is_no_other(frozen, count):
    """All slots of all lengths write token 12, and the most probable length is that of all slots."""
    model = network(length_prediction="absolute")
    rescorer = StepwiseDecoder(StepwiseModel(STEPWISE, model.sizes, STEPWISE.generation()).eval())
    with torch.no_grad():
        model.decoder.norm.weight.zero_()
        model.decoder.norm.bias.copy_(torch.eye(16)[0])
        model.target_embedding.weight[:, 0] = 0.0
        model.target_embedding.weight[12, 0] = 1.0
        model.encoder.norm.weight.zero_()
        model.encoder.norm.bias.copy_(torch.eye(16)[0])
        model.length.weight[:] = 0.0
        model.length.weight[40, 0] = 1.0
    search = ParallelSearch(length_candidates=count, length_choice="around", rescoring="system", n_best=count)
    for ranked in outputs(model, SOURCES, search, rescorer=rescorer, frozen=frozen):
        assert (len(ranked[0].ids) == 40) == (count == 1)
        assert [one.score == -math.inf for one in ranked] == [len(one.ids) == 40 for one in ranked]


def test_rescoring_scores_distinct_pairs_in_parts():
    system = Fixed(lambda text: -float(len(text)))
    sources, texts = [[7] * 30, [8, 9], []], [[7], [8], [7], [7], [], [7, 7], [7]]
    rescore = rescoring(system, sources, 39)
    assert rescore([0, 0, 0, 1, 1, 2, 1], texts) == [-1.0, -1.0, -1.0, -1.0, 0.0, -2.0, -1.0]
    assert sorted(system.asked) == [([], [7, 7]), ([7] * 30, [7]), ([7] * 30, [8]), ([8, 9], []), ([8, 9], [7])]
    many = [[token] * 30 for token in range(7, 1000)]
    assert rescoring(system, sources, 39)([0] * len(many), many) == [-30.0] * len(many)
    assert system.most * 31 <= BATCH_TOKENS


def test_rescoring_encodes_equal_candidates_once():
    model, system = network(), Fixed(lambda text: -1.0)
    search = ParallelSearch(length_candidates=4, rescoring="system", deduplicate=True)
    outputs(model, SOURCES * 2, search, rescorer=system)
    assert len(system.asked) == 2 * len({(tuple(source), tuple(text)) for source, text in system.asked})


def test_one_candidate_is_the_same_with_rescoring():
    model = network()
    plain = outputs(model, SOURCES, GREEDY)
    found = outputs(model, SOURCES, ParallelSearch(rescoring="system"), rescorer=Fixed(lambda text: -3.0))
    assert [one[0].ids for one in found] == [one[0].ids for one in plain]


@pytest.mark.parametrize("objective", ["nat", "ctc", "cmlm"])
@pytest.mark.parametrize("allow", [False, True])
def test_slots_write_their_most_probable_tokens(objective, allow):
    model = network(objective=objective)
    with torch.no_grad():
        model.target_embedding.weight[UNK] = model.target_embedding.weight[12] * 1.5  # often the best token
    found = outputs(model, SOURCES, ParallelSearch(allow_unknown=allow))
    written = {token for (one,) in found for token in one.ids}
    assert written.isdisjoint({token for token in range(len(RESERVED)) if token != UNK or not allow})
    assert (UNK in written) == allow
    for source, (one,) in zip(SOURCES, found, strict=True):
        alone = outputs(model, [source], ParallelSearch(allow_unknown=allow))[0][0]
        assert alone.ids == one.ids
        assert alone.score == pytest.approx(one.score, abs=1e-5)


def test_garbage_in_padding_changes_nothing():
    for objective in ("nat", "ctc", "cmlm"):
        model = network(objective=objective)
        decoder = ParallelDecoder(model)
        search = MASKED if objective == "cmlm" else GREEDY
        prepared = decoder.prepare(SOURCES)
        clean = decoder.decode(prepared, search)
        for row, length in enumerate(prepared.lengths):
            prepared.ids[row, length:] = 11
        assert [one[0].ids for one in decoder.decode(prepared, search)] == [one[0].ids for one in clean]


@pytest.mark.parametrize(
    ("size", "passes", "counts"), [(10, 4, [7, 5, 2]), (7, 10, [6, 5, 4, 4, 3, 2, 2, 1, 1]), (3, 4, [2, 1, 1])]
)
def test_the_number_of_hidden_tokens_falls_linearly(size, passes, counts, monkeypatch):
    model, hidden = network(objective="cmlm"), []
    write = filling._write
    monkeypatch.setattr(
        filling, "_write", lambda found, states, mask, *rest: hidden.append(int(mask.sum())) or write(found, states, mask, *rest)
    )
    source = model.read(torch.tensor([[7, 8, EOS]]), torch.tensor([3]))
    with torch.inference_mode():
        fill(model, source, torch.tensor([size]), torch.tensor([0]), Ranking(model, None, allow_unknown=False), size, passes)
    assert hidden == [size, *counts]


@pytest.mark.parametrize(("count", "slots"), [(1, {1}), (3, {1, 3, 2})])
def test_the_least_certain_tokens_are_hidden_ties_by_slot(count, slots):
    found = filling.Filled(torch.zeros(1, 5), torch.tensor([[0.9, 0.4, 0.6, 0.4, 0.1]]).log(), torch.full((1,), math.inf))
    real = torch.tensor([[True] * 4 + [False]])
    hidden = filling._least_certain(found, real, torch.tensor([count]))
    assert set(hidden[0].nonzero()[:, 0].tolist()) == slots


def by_hand(model, source, size, passes):
    """Return the tokens and probabilities of Mask-Predict for one sentence, slot by slot."""
    read = model.read(torch.tensor([[*source, EOS]]), torch.tensor([len(source) + 1]))
    tokens, certain = [MASK] * size, [0.0] * size
    for number in range(passes):
        count = size if number == 0 else max(1, size * (passes - number) // passes)
        hidden = sorted(range(size), key=lambda slot: (certain[slot], slot))[:count]
        shown = [MASK if slot in hidden else token for slot, token in enumerate(tokens)]
        states = model.states(model.embedded(torch.tensor([shown])), torch.tensor([size]), read)
        logits = model.logits(states)[0]
        logits[:, [0, 1, MASK, BLANK, LENGTH]] = -math.inf
        probabilities = logits.softmax(1)
        for slot in hidden:
            probabilities[slot, UNK] = 0.0
            certain[slot], tokens[slot] = probabilities[slot].max().item(), int(probabilities[slot].argmax())
    return tokens, sum(math.log(value) for value in certain) / size


@pytest.mark.parametrize("passes", [1, 2, 5])
def test_passes_are_those_of_the_method(passes):
    model = network(objective="cmlm")
    search = ParallelSearch(strategy="mask-predict", iterations=passes)
    slots = TorchDecoder(model, None, None).filled(ParallelDecoder(model).prepare(SOURCES), search)
    found = outputs(model, SOURCES, search)
    for row, source in enumerate(SOURCES):
        with torch.no_grad():
            tokens, score = by_hand(model, source, int(slots.lengths[row]), passes)
        assert found[row][0].ids == [token for token in tokens if token != EOS]
        assert found[row][0].score == pytest.approx(score, abs=1e-4)
        assert found[row][0].steps == passes


def test_one_pass_is_the_one_shot_decoder():
    masked, one_shot = network(objective="cmlm"), network(slot_input="mask")
    one_shot.load_state_dict(masked.state_dict())
    plain = outputs(one_shot, SOURCES, GREEDY)
    assert all(one[0].ids for one in plain)
    assert outputs(masked, SOURCES, ParallelSearch(strategy="mask-predict", iterations=1)) == plain
    assert outputs(masked, SOURCES, GREEDY) == plain


def test_a_network_that_does_not_read_its_inputs_needs_one_pass():
    model = network(objective="cmlm")
    model.embedded = lambda tokens: torch.zeros(*tokens.shape, model.config.width)
    once = outputs(model, SOURCES, GREEDY)
    for passes in (2, 7):
        found = outputs(model, SOURCES, ParallelSearch(strategy="mask-predict", iterations=passes))
        assert [one[0].ids for one in found] == [one[0].ids for one in once]


def test_a_beam_without_limits_is_the_best_text_of_all():
    model = network(objective="ctc", upsampling=1.0)
    search = ParallelSearch(strategy="prefix-beam", beam_size=4096, candidates=99, n_best=10, allow_unknown=True)
    rows = [[8], [9, 10]]
    found = outputs(model, rows, search)
    scores = ParallelDecoder(model).score
    for source, ranked in zip(rows, found, strict=True):
        texts = [one.ids for one in ranked]
        assert [one.score for one in ranked] == pytest.approx(scores([source] * len(texts), texts), abs=1e-4)
        assert outputs(model, [source], search)[0][0].ids == texts[0]
        tokens = [token for token in range(16) if token >= len(RESERVED) or token == UNK]
        shorter = [
            [],
            *([one] for one in tokens),
            *([one, two] for one in tokens for two in tokens if len(source) > 0 and one != two),
        ]
        assert ranked[0].score >= max(scores([source] * len(shorter), shorter)) - 1e-4


def test_greedy_collapses_the_best_alignment():
    probabilities = np.log(np.array([[[0.5, 0.2], [0.4, 0.3], [0.7, 0.1], [0.3, 0.2]]], np.float32))
    ids = np.array([[[7, 8], [7, 8], [8, 7], [8, 7]]])
    blanks = np.log(np.array([[0.2, 0.4, 0.1, 0.3]], np.float32))
    slots = RankedSlots(probabilities, ids, blanks, np.array([4]))
    (found,) = search_alignments(slots, GREEDY, [[7]])
    assert found[0].ids == [7, 8]
    assert found[0].score == pytest.approx(math.log(0.5 * 0.4 * 0.7 * 0.3))
    (cut,) = search_alignments(slots._replace(lengths=np.array([1])), GREEDY, [[7]])
    assert (cut[0].ids, cut[0].score) == ([7], pytest.approx(math.log(0.5)))
    assert collapse([7, 7, BLANK, 7, 8, 8, BLANK]) == [7, 7, 8] == list(reference.collapse([7, 7, BLANK, 7, 8, 8, BLANK], BLANK))


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (2.0, 0.6)])
def test_slots_are_drawn_by_their_tempered_probabilities(temperature, top_p):
    """The blank of 0.3 and tokens of 0.5 and 0.2: frequencies of 4,000 draws, whose seeds are fixed."""
    slots = RankedSlots(
        np.log(np.array([[[0.5, 0.2]]], np.float32)), np.array([[[7, 8]]]), np.log(np.array([[0.3]], np.float32)), np.array([1])
    )
    sampling = NucleusSampling(temperature=temperature, top_p=top_p)
    search = ParallelSearch(strategy="sample", candidates=2, n_best=4000, sampling=sampling)
    (found,) = search_alignments(slots, search, [[9]])
    powers = {7: 0.5 ** (1 / temperature), BLANK: 0.3 ** (1 / temperature), 8: 0.2 ** (1 / temperature)}
    shares = {symbol: power / sum(powers.values()) for symbol, power in powers.items()}
    before = {7: 0.0, BLANK: shares[7], 8: shares[7] + shares[BLANK]}
    kept = {symbol: share for symbol, share in shares.items() if before[symbol] < top_p}
    for symbol, probability in ((7, 0.5), (BLANK, 0.3), (8, 0.2)):
        drawn = [one for one in found if one.ids == ([] if symbol == BLANK else [symbol])]
        assert len(drawn) / 4000 == pytest.approx(kept.get(symbol, 0.0) / sum(kept.values()), abs=0.03)
        assert all(one.score == pytest.approx(math.log(probability), abs=1e-6) for one in drawn)
    assert search_alignments(slots, search, [[9]]) == [found]
    assert search_alignments(slots, search, [[10]]) != [found], "samples depend on the sentence"


def test_only_ctc_has_slots_to_draw():
    search = ParallelSearch(strategy="sample", n_best=4)
    assert not list(search.problems(network(objective="ctc").config, SystemParts()))
    (problem,) = search.problems(network(objective="nat").config, SystemParts())
    assert (problem.path, problem.expected) == (("strategy",), "a strategy other than sample with objective nat")


def test_samples_of_a_low_temperature_are_the_best_alignment_in_both_engines():
    model = network(objective="ctc")
    for engine in ("auto", "torch"):
        search = ParallelSearch(strategy="sample", n_best=2, sampling=NucleusSampling(temperature=0.001), engine=engine)
        decoder = ParallelDecoder(model, frozen=True)
        found = decoder.decode(decoder.prepare(SOURCES), search)
        best = decoder.decode(decoder.prepare(SOURCES), dataclasses.replace(GREEDY, engine=engine))
        assert [[one.ids for one in ranked] for ranked in found] == [[ranked[0].ids] * 2 for ranked in best]


def test_all_blanks_are_an_empty_output():
    model = network(objective="ctc")
    with torch.no_grad():
        model.target_embedding.weight.zero_()
        model.decoder.norm.bias.fill_(1.0)
        model.target_embedding.weight[BLANK] = 50.0
    for search in (GREEDY, BEAM):
        found = outputs(model, SOURCES, search)
        assert [(one[0].ids, one[0].score) for one in found] == [([], pytest.approx(0.0, abs=1e-3))] * len(SOURCES)


@pytest.mark.parametrize("objective", ["nat", "ctc", "cmlm"])
def test_sources_without_tokens_decode(objective):
    model = network(objective=objective)
    assert len(outputs(model, [[], [7]], GREEDY)) == 2
    assert outputs(model, [], GREEDY) == []


def test_a_repeated_decoding_leaves_a_network_in_training():
    model = network(objective="cmlm", dropout=0.3).train()
    assert outputs(model, SOURCES, MASKED) == outputs(model, SOURCES, MASKED)
    assert model.training


@pytest.mark.parametrize(
    ("objective", "search", "message"),
    [
        ("nat", MASKED, "strategy: expected a strategy other than mask-predict with objective nat"),
        ("cmlm", BEAM, "strategy: expected a strategy other than prefix-beam"),
        ("ctc", ParallelSearch(length_candidates=2), "length_candidates: expected 1 with CTC"),
        ("ctc", ParallelSearch(deduplicate=True), "deduplicate: expected false with CTC"),
        ("ctc", dataclasses.replace(BEAM, n_best=5), "n_best: expected at most 4, the size of the beam"),
        ("nat", ParallelSearch(n_best=2), "n_best: expected at most 1, the number of length_candidates"),
        ("nat", ParallelSearch(token_bonus=1.0), "token_bonus: expected 0 with greedy"),
        ("ctc", dataclasses.replace(BEAM, ngram_weight=1.0), "ngram_weight: expected 0 for a system without an n-gram model"),
        ("nat", ParallelSearch(rescoring="system"), "rescoring: expected self for a system without a `rescorer`"),
        ("nat", ParallelSearch(precision="int8"), "precision: expected float32 in torch"),
        (
            "nat",
            ParallelSearch(precision="int8", engine="torch"),
            "precision: expected float32, float16 or bfloat16 with",
        ),
    ],
)
def test_searches_that_a_network_cannot_run_are_refused(objective, search, message):
    with pytest.raises(ValueError, match=message):
        outputs(network(objective=objective), SOURCES, search)


# ---- slots that are ranked and filled in buffers of fixed shapes: the same tokens in rounded ones, without waiting for the host


SHORT_GREEDY = ParallelSearch(engine="torch")
MASK_PREDICT = dataclasses.replace(SHORT_GREEDY, strategy="mask-predict", iterations=4)
LENGTHS = dataclasses.replace(MASK_PREDICT, length_candidates=3, length_choice="around")
SHORT_BEAM = dataclasses.replace(SHORT_GREEDY, strategy="prefix-beam", candidates=4, allow_unknown=True)


@pytest.mark.parametrize("search", [SHORT_GREEDY, SHORT_BEAM])
@pytest.mark.parametrize("options", [{}, {"slot_input": "gaussian", "upsampling": 2.5}, {"norm": "post", "positions": "learned"}])
def test_rounded_buffers_rank_the_tokens_of_exact_ones(search, options):
    """They serve batches of several sizes and forget the one before."""
    model = network(objective="ctc", **options)
    decoder, exact = ParallelDecoder(model), TorchDecoder(model, None, None)
    with buffers_of_a_gpu():
        rounded = TorchDecoder(model, None, None)
    for rows in (SOURCES, SOURCES[:1], SOURCES[1:]):
        prepared = decoder.prepare(rows)
        with buffers_of_a_gpu():
            found = rounded.ranked(prepared, search)
        expected = exact.ranked(prepared, search)
        assert found.lengths.tolist() == expected.lengths.tolist()
        real = np.arange(found.ids.shape[1]) < found.lengths[:, None]
        assert (found.ids == expected.ids)[real].all()
        np.testing.assert_allclose(found.scores[real], expected.scores[real], atol=1e-4)
        np.testing.assert_allclose(found.blanks[real], expected.blanks[real], atol=1e-4)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("objective", ["ctc", "nat", "cmlm"])
def test_half_precision_is_near_float32(precision, objective, monkeypatch):
    model = network(objective=objective)
    monkeypatch.setattr(Precisions, "problems", lambda self, precision: [])  # this device has no half precision
    decoder = ParallelDecoder(model)
    prepared = decoder.prepare(SOURCES)
    search = dataclasses.replace(SHORT_GREEDY, strategy="mask-predict" if objective == "cmlm" else "greedy")
    whole, half = (decoder.decode(prepared, dataclasses.replace(search, precision=name)) for name in ("float32", precision))
    equal = [(one, other) for (one,), (other,) in zip(half, whole, strict=True) if one.ids == other.ids]
    assert len(equal) >= len(SOURCES) / 2
    assert [one.score for one, _ in equal] == pytest.approx([other.score for _, other in equal], abs=0.3)
    assert [one.score for one, _ in equal] != [other.score for _, other in equal]


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("search", [SHORT_GREEDY, SHORT_BEAM])
def test_ranking_does_not_wait_for_the_host(search, listed):
    search = dataclasses.replace(search, shortlist=Shortlist(tokens=9) if listed else None)
    model = network(objective="ctc").to("meta")
    with torch.no_grad():
        runner = RankingRunner(model, search, Size(sentences=4, source=16, slots=32))
        with DeviceAlone() as calls:
            runner.rank()
    assert runner.found is not None
    assert runner.found[1].shape == (4, 32, 4 if search.strategy == "prefix-beam" else 1)
    assert calls.calls < 400


@pytest.mark.parametrize(
    ("search", "options"),
    [
        (SHORT_GREEDY, {}),
        (SHORT_GREEDY, {"objective": "glat", "slot_input": "soft", "norm": "post", "positions": "learned"}),
        (dataclasses.replace(SHORT_GREEDY, length_candidates=5, allow_unknown=True), {"length_prediction": "absolute"}),
        (MASK_PREDICT, {"objective": "cmlm"}),
        (LENGTHS, {"objective": "cmlm"}),
        (dataclasses.replace(LENGTHS, shortlist=Shortlist(tokens=5, links=2)), {"objective": "cmlm"}),
    ],
)
def test_rounded_buffers_fill_the_slots_of_exact_ones(search, options):
    """Tokens, certainties and margins, for the same lengths. They serve batches of several sizes and numbers of slots."""
    model = network(**options)
    lexicon = links(model.sizes.target) if search.shortlist else None
    decoder, exact = ParallelDecoder(model, lexicon=lexicon), TorchDecoder(model, None, lexicon)
    with buffers_of_a_gpu():
        rounded = TorchDecoder(model, None, lexicon)
    for rows in (SOURCES, SOURCES[:1], [*SOURCES, [7] * 33], SOURCES[1:]):
        prepared = decoder.prepare(rows)
        with buffers_of_a_gpu():
            found = rounded.filled(prepared, search)
        expected = exact.filled(prepared, search)
        assert found.sentences.tolist() == expected.sentences.tolist()
        assert found.lengths.tolist() == expected.lengths.tolist()
        size = expected.ids.shape[1]
        real = np.arange(size) < found.lengths[:, None]
        assert (found.ids[:, :size] == expected.ids)[real].all()
        np.testing.assert_allclose(found.log_probs[:, :size][real], expected.log_probs[real], atol=1e-4)
        np.testing.assert_allclose(found.margins, expected.margins, atol=1e-4)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(
    ("search", "objective"), [(SHORT_GREEDY, "nat"), (SHORT_GREEDY, "cmlm"), (MASK_PREDICT, "cmlm"), (LENGTHS, "cmlm")]
)
def test_filling_waits_for_the_lengths_alone(search, objective, listed):
    search = dataclasses.replace(search, shortlist=Shortlist(tokens=9) if listed else None)
    model = network(objective=objective).to("meta")
    with torch.no_grad():
        runner = FillingRunner(model, search, Size(sentences=4, source=16, slots=1))
        with DeviceAlone() as reading:
            runner.read()
        with DeviceAlone() as writing:
            runner.fill(32)
    assert runner.filled[32].ids.shape == (4 * search.length_candidates, 32)
    assert reading.calls < 150
    assert writing.calls < 350 * (search.iterations if search.strategy == "mask-predict" else 1)
