import dataclasses
import itertools
import math
import random

import pytest
import torch

from fewstep.config.network import Sizes
from fewstep.config.options import OutputLimits
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.families.stepwise.orders import ORDERS, GenerationOrder
from fewstep.vocabulary import BOS, EOS, MASK, PAD, UNK
from models.stepwise.arrangement import restore
from models.stepwise.decode import StepwiseDecoder, decode_batch
from models.stepwise.loss import log_probability, loss
from models.stepwise.model import StepwiseModel, build
from models.stepwise.search import beam, greedy
from models.training.batch import collate

SMALL = StepwiseConfig(encoder_layers=1, decoder_layers=2, width=16, feed_forward=24, heads=2, dropout=0.0, max_positions=40)
GREEDY = StepwiseSearch()


def network(order=None, vocabulary=12, sharpness=3.0, seed=0, **changes):
    """Untrained, but with an opinion: large embeddings make sharp distributions that vary with the prefix."""
    torch.manual_seed(seed)
    names = [name for name, named in ORDERS.items() if named == order]
    config = dataclasses.replace(SMALL, **({"order": names[0]} if names else {}), **changes)
    model = StepwiseModel(config, Sizes(vocabulary, vocabulary, True), order or GenerationOrder()).eval()
    with torch.no_grad():
        model.target_embedding.weight.mul_(sharpness)
    return model


def sources(count, vocabulary=12, longest=6, seed=0):
    draw = random.Random(seed)
    return [[draw.randrange(7, vocabulary) for _ in range(draw.randrange(1, longest + 1))] for _ in range(count)]


def beams(size, **options):
    return StepwiseSearch(strategy="beam", beam_size=size, **options)


def next_log_probs(model, source, prefix):
    """Return log p(. | prefix) as a list, teacher-forced, without the code of decoding."""
    batch = collate([0], [source], [list(prefix)])
    with torch.no_grad():
        states = model(batch.source, batch.source_lengths, batch.target, batch.target_lengths).states
        return torch.log_softmax(model.logits(states[-1]), 0).tolist()


def penalised(search, score, tokens):
    if search.length_penalty_form == "gnmt":
        return score / ((5 + tokens) / 6) ** search.length_penalty
    return score / tokens**search.length_penalty


def allowed(search, vocabulary, prefix):
    return [*([EOS] if prefix else []), *([UNK] if search.output_limits.allow_unknown else []), *range(7, vocabulary)]


def all_outputs(model, source, search, vocabulary):
    """Every possible output with its score, best first."""
    limit = len(source) + 1 + search.output_limits.max_extra_tokens
    found = []

    def extend(prefix, score):
        log_probs = next_log_probs(model, source, prefix)
        for token in allowed(search, vocabulary, prefix):
            total, tokens = score + log_probs[token], len(prefix) + 1
            if token == EOS:
                found.append((penalised(search, total, tokens), prefix))
            elif tokens == limit:
                found.append((penalised(search, total, tokens), [*prefix, token]))
            else:
                extend([*prefix, token], total)

    extend([], 0.0)
    return sorted(found, key=lambda pair: -pair[0])


def textbook_beam(model, source, search, vocabulary):
    """Beam search of one sentence over lists."""
    limit, size = len(source) + 1 + search.output_limits.max_extra_tokens, search.beam_size
    live, finished = [(0.0, [])], []
    for tokens in range(1, limit + 1):
        candidates = []
        for score, prefix in live:
            log_probs = next_log_probs(model, source, prefix)
            candidates += [(score + log_probs[token], prefix, token) for token in allowed(search, vocabulary, prefix)]
        candidates.sort(key=lambda candidate: -candidate[0])
        for score, prefix, token in candidates[:size]:
            if token == EOS or tokens == limit:
                output = prefix if token == EOS else [*prefix, token]
                finished.append((penalised(search, score, tokens), output))
        live = [(score, [*prefix, token]) for score, prefix, token in candidates if token != EOS][:size]
        if len(finished) >= size:
            break
    return sorted(finished, key=lambda pair: -pair[0])[: search.n_best]


@pytest.mark.parametrize("form", ["power", "gnmt"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_a_wide_beam_finds_the_best_of_all_outputs(form, alpha):
    vocabulary = 9
    model = network(vocabulary=vocabulary)
    search = beams(
        40,
        n_best=12,
        length_penalty=alpha,
        length_penalty_form=form,
        output_limits=OutputLimits(max_extra_tokens=1, allow_unknown=True),
    )
    inputs = [[7], [8, 7], [7, 7], [8]]
    for source, ranked in zip(inputs, decode_batch(model, inputs, search), strict=True):
        expected = all_outputs(model, source, search, vocabulary)[:12]
        assert [hypothesis.ids for hypothesis in ranked] == [output for _, output in expected]
        assert [hypothesis.score for hypothesis in ranked] == pytest.approx([score for score, _ in expected], abs=1e-4)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("order", [GenerationOrder(), GenerationOrder(arrangement="r2l")])
def test_equals_textbook_beam_search_on_a_batch(size, order):
    model = network(order)
    inputs = sources(14)
    search = beams(size, n_best=size, output_limits=OutputLimits(max_extra_tokens=3))
    lengths = set()
    for source, ranked in zip(inputs, decode_batch(model, inputs, search), strict=True):
        expected = textbook_beam(network(), source, search, 12)
        turn = -1 if order.arrangement == "r2l" else 1
        assert [hypothesis.ids for hypothesis in ranked] == [output[::turn] for _, output in expected]
        assert [hypothesis.score for hypothesis in ranked] == pytest.approx([score for score, _ in expected], abs=1e-4)
        lengths |= {len(hypothesis.ids) for hypothesis in ranked}
    assert len(lengths) > 2, "outputs of one length would test little"


def test_beam_of_one_is_greedy():
    model = network()
    inputs = sources(30)
    plain = decode_batch(model, inputs, GREEDY)
    single = decode_batch(model, inputs, beams(1))
    for (one,), (other,) in zip(plain, single, strict=True):
        assert (one.ids, one.steps) == (other.ids, other.steps)
        assert one.score == pytest.approx(other.score, abs=1e-5)
        assert one.statistics["margin"] == pytest.approx(other.statistics["margin"], abs=1e-4)
    assert any(len(ranked[0].ids) < len(source) + 50 for ranked, source in zip(plain, inputs, strict=True))


@pytest.mark.parametrize("search", [GREEDY, beams(4, n_best=4)])
@pytest.mark.parametrize("name", ORDERS)
def test_hypotheses_do_not_depend_on_company(name, search):
    model = network(ORDERS[name])
    inputs, search = sources(8, longest=9), dataclasses.replace(search, output_limits=OutputLimits(max_extra_tokens=12))
    together = decode_batch(model, inputs, search)
    turned = decode_batch(model, inputs[::-1], search)[::-1]
    for source, ranked, again in zip(inputs, together, turned, strict=True):
        (alone,) = decode_batch(model, [source], search)
        assert ranked[0].statistics["margin"] > 1e-5
        assert [h.ids for h in alone] == [h.ids for h in ranked] == [h.ids for h in again]
        assert [h.steps for h in alone] == [h.steps for h in ranked]
        assert [h.score for h in alone] == pytest.approx([h.score for h in ranked], abs=1e-4)


def test_n_best_are_distinct_sorted_and_led_by_the_same_best():
    model = network()
    inputs = sources(12)
    for (best,), ranked in zip(decode_batch(model, inputs, beams(5)), decode_batch(model, inputs, beams(5, n_best=5)), strict=True):
        assert len({tuple(hypothesis.ids) for hypothesis in ranked}) == len(ranked) == 5
        assert [h.score for h in ranked] == sorted((h.score for h in ranked), reverse=True)
        assert ranked[0].ids == best.ids


@pytest.mark.parametrize("search", [GREEDY, beams(3, n_best=3)])
@pytest.mark.parametrize("extra", [0, 2])
@pytest.mark.parametrize("name", ORDERS)
def test_a_search_that_never_ends_stops_at_its_limit_and_keeps_all_tokens(name, search, extra):
    model = network(ORDERS[name])
    _bias(model, EOS, -100.0)
    inputs = sources(8)
    for source, ranked in zip(
        inputs,
        decode_batch(model, inputs, dataclasses.replace(search, output_limits=OutputLimits(max_extra_tokens=extra))),
        strict=True,
    ):
        for hypothesis in ranked:
            assert len(hypothesis.ids) == len(source) + 1 + extra
            assert hypothesis.steps == -(-len(hypothesis.ids) // model.order.step_size)


@pytest.mark.parametrize("search", [GREEDY, beams(3)])
def test_no_output_is_longer_than_the_network_can_write(search):
    model = network(max_positions=8, positions="learned")
    _bias(model, EOS, -100.0)
    assert len(decode_batch(model, [[7] * 7], search)[0][0].ids) == 8
    with pytest.raises(ValueError, match=r"sources\[1\].*at most 7 tokens, got 8"):
        decode_batch(model, [[7], [7] * 8], search)


@pytest.mark.parametrize("search", [GREEDY, beams(3)])
def test_reserved_ids_are_never_written_but_unknown_on_request(search):
    model = network()
    for token in (PAD, BOS, MASK):
        _bias(model, token, 1000.0)
    (ranked,) = decode_batch(model, [[7, 8]], search)
    assert ranked[0].ids
    assert min(ranked[0].ids) >= 7
    model = network()
    _bias(model, UNK, 1000.0)
    assert UNK not in decode_batch(model, [[7, 8]], search)[0][0].ids
    assert set(
        decode_batch(model, [[7, 8]], dataclasses.replace(search, output_limits=OutputLimits(allow_unknown=True)))[0][0].ids
    ) == {UNK}


@pytest.mark.parametrize("search", [GREEDY, beams(3)])
@pytest.mark.parametrize("least", [1, 3, 4])
@pytest.mark.parametrize("name", ORDERS)
def test_the_shortest_output_is_in_tokens_whatever_the_step(name, search, least):
    model = network(ORDERS[name])
    _bias(model, EOS, 1000.0)
    for ranked in decode_batch(model, sources(5), dataclasses.replace(search, output_limits=OutputLimits(min_tokens=least))):
        assert len(ranked[0].ids) == least
        assert ranked[0].steps == -(-(least + 1) // model.order.step_size)


@pytest.mark.parametrize("search", [GREEDY, beams(3)])
def test_the_longest_output_may_be_stated(search):
    model = network(ORDERS["interleaved-sa"])
    _bias(model, EOS, -100.0)
    assert {
        len(ranked[0].ids)
        for ranked in decode_batch(model, sources(5), dataclasses.replace(search, output_limits=OutputLimits(max_tokens=3)))
    } == {3}


def step_log_probs(model, source, prefix):
    """Return log p of each token in each slot of the step after `prefix` (whole steps), without the code of decoding."""
    batch = collate([0], [source], [[]])
    size = model.order.step_size
    with torch.no_grad():
        memories = model.encode(batch.source, batch.source_lengths)
        flat = torch.tensor([[*prefix, *[PAD] * size]])
        return torch.log_softmax(model.logits(model.hidden(flat, memories))[0, -size:], 1).tolist()


def two_steps(model, source, search, vocabulary):
    """All that can be written in two steps with the best score of each, best first; EOS ends, and what follows it is free."""
    size, limit = model.order.step_size, len(source) + 1 + search.output_limits.max_extra_tokens
    found: dict[tuple[int, ...], float] = {}

    def extend(flat, score):
        log_probs = step_log_probs(model, source, flat)
        for tokens in itertools.product([EOS, *range(7, vocabulary)], repeat=size):
            counted = tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens
            counted = counted[: limit - len(flat)]
            if counted[-1] == EOS and not flat and len(counted) == 1:
                continue
            total = score + sum(log_probs[slot][token] for slot, token in enumerate(counted))
            whole = (*flat, *counted)
            if EOS in counted or len(whole) == limit:
                natural = [token for token in whole if token != EOS]
                text = restore(model.order, torch.tensor([natural]), torch.tensor([len(natural)]))[0].tolist()
                found[tuple(text)] = penalised(search, total, len(whole))
            else:
                extend([*flat, *tokens], total)

    extend([], 0.0)
    return sorted(found.items(), key=lambda pair: -pair[1])


@pytest.mark.parametrize("name", ["semi-autoregressive", "interleaved", "double-token-r2l", "middle-to-side", "causal-mask"])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_wide_beam_finds_the_best_of_all_that_two_steps_can_write(name, alpha):
    vocabulary = 10
    model = network(ORDERS[name], vocabulary=vocabulary)
    search = beams(200, n_best=6, length_penalty=alpha, output_limits=OutputLimits(max_extra_tokens=1))
    inputs = [[7], [8, 7], [9]]
    for source, ranked in zip(inputs, decode_batch(model, inputs, search), strict=True):
        expected = two_steps(model, source, search, vocabulary)[:6]
        assert [tuple(hypothesis.ids) for hypothesis in ranked] == [text for text, _ in expected]
        assert [hypothesis.score for hypothesis in ranked] == pytest.approx([score for _, score in expected], abs=1e-4)


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("selection", ["exact", "outer", "double-top-k"])
def test_finished_outputs_are_distinct_and_score_what_they_are(name, selection):
    order = ORDERS[name]
    if selection == "double-top-k" and order.step_size > 2:
        pytest.skip("double-top-k is for steps of two")
    model = network(order, sharpness=1.5, seed=int(order.target_positions == "learned"))  # outputs of these end
    inputs = sources(10)
    search = beams(4, n_best=4, length_penalty=0.0, selection=selection, output_limits=OutputLimits(max_extra_tokens=12))
    checked = 0
    for source, ranked in zip(inputs, decode_batch(model, inputs, search), strict=True):
        ended = [one for one in ranked if len(one.ids) < len(source) + 13]
        assert selection != "exact" or len({tuple(one.ids) for one in ranked}) == len(ranked)
        for one in ended:
            expected = log_probability(model, collate([0], [source], [one.ids])).item()
            if order.stop == "per-direction":
                continue  # some texts can be written in two ways
            if selection == "exact" or order.step_size == 1:
                assert one.score == pytest.approx(expected, abs=1e-4)
            else:  # the token beside an EOS is scored too
                assert one.score <= expected + 1e-4
        checked += len(ended)
    assert checked > 5 or (selection, order.step_size) == ("outer", 4), "nothing ended"


@pytest.mark.parametrize("selection", ["outer", "double-top-k"])
def test_with_one_token_a_step_all_selections_are_the_same(selection):
    model, inputs = network(), sources(8)
    assert decode_batch(model, inputs, beams(3, selection=selection)) == decode_batch(model, inputs, beams(3))


def _bias(model, token, amount):
    """Add about `amount` to every logit of a token, through a unit that the last norm makes constant."""
    with torch.no_grad():
        model.decoder.norm.weight[0] = 0.0
        model.decoder.norm.bias[0] = 1.0
        model.target_embedding.weight[:, 0] = 0.0
        model.target_embedding.weight[token, 0] = amount


class Table:
    """Stands for the network: log-probabilities as a function of what a row has written."""

    def __init__(self, table, vocabulary, rows):
        self.table, self.vocabulary, self.rows = table, vocabulary, rows

    def start(self, inputs):
        self.prefixes = None

    def log_probs(self, tokens):
        if self.prefixes is None:
            self.prefixes = [()] * self.rows
        else:
            self.prefixes = [(*prefix, token) for prefix, (token,) in zip(self.prefixes, tokens.tolist(), strict=True)]
        found = torch.full((len(self.prefixes), 1, self.vocabulary), -torch.inf)
        for row, prefix in zip(found, self.prefixes, strict=True):
            for token, probability in self.table.get(prefix, {EOS: 1.0}).items():
                row[0, token] = math.log(probability)
        return found

    def select(self, rows):
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]


def rigged(monkeypatch, table, search, vocabulary=12):
    for module in (beam, greedy):
        monkeypatch.setattr(
            module, "IncrementalDecoders", lambda model, size, rows, shortlists: Table(table, vocabulary, size.sentences * rows)
        )
    return decode_batch(network(vocabulary=vocabulary), [[7, 7, 7]], search)[0]


# Greedy takes 7 and is punished for it; the most_probable output is 8 9.
GARDEN_PATH = {
    (): {7: 0.5, 8: 0.4, 9: 0.1},
    (7,): {7: 0.3, 8: 0.3, 9: 0.2, EOS: 0.2},
    (8,): {9: 0.9, EOS: 0.1},
    (7, 7): {EOS: 1.0},
    (8, 9): {EOS: 1.0},
}


def test_beam_search_leaves_the_garden_path(monkeypatch):
    (greedy_one,) = rigged(monkeypatch, GARDEN_PATH, GREEDY)
    assert greedy_one.ids[0] == 7
    best = rigged(monkeypatch, GARDEN_PATH, beams(2, length_penalty=0.0))[0]
    assert best.ids == [8, 9]
    assert best.score == pytest.approx(math.log(0.4 * 0.9), abs=1e-4)


def test_length_penalty_prefers_longer_outputs(monkeypatch):
    table = {(): {7: 1.0}, (7,): {EOS: 0.6, 8: 0.4}, (7, 8): {8: 1.0}, (7, 8, 8): {EOS: 1.0}}
    assert rigged(monkeypatch, table, beams(3, length_penalty=0.0))[0].ids == [7]
    assert rigged(monkeypatch, table, beams(3, length_penalty=1.0))[0].score == pytest.approx(math.log(0.4) / 4, abs=1e-4)
    assert rigged(monkeypatch, table, beams(3, length_penalty=1.0))[0].ids == [7, 8, 8]


def test_search_ends_once_nothing_better_can_come(monkeypatch):
    table = {(): {7: 0.99, 8: 0.01}, (7,): {EOS: 0.999, 8: 0.001}}
    best = rigged(monkeypatch, table, beams(4, length_penalty=0.0))[0]
    assert (best.ids, best.steps) == ([7], 2)


def test_search_goes_on_while_one_of_the_n_best_can_be_beaten(monkeypatch):
    table = {(): {7: 0.99, 8: 0.01}, (7,): {EOS: 0.9, 8: 0.1}, (8,): {EOS: 1.0}, (7, 8): {EOS: 1.0}}
    ranked = rigged(monkeypatch, table, beams(4, length_penalty=0.0, n_best=2))
    assert [hypothesis.ids for hypothesis in ranked] == [[7], [7, 8]]


def test_margin_is_the_smallest_gap_between_kept_and_dropped(monkeypatch):
    table = {(): {7: 0.6, 8: 0.4}, (7,): {8: 0.52, 9: 0.48}, (7, 8): {EOS: 0.9, 7: 0.1}}
    (hypothesis,) = rigged(monkeypatch, table, GREEDY)
    assert hypothesis.statistics["margin"] == pytest.approx(math.log(0.52 / 0.48), abs=1e-4)
    # Two live on: of 7 8 (.36), 7 9 (.24), 8 7 (.22), 8 9 (.18) the third is dropped by a hair. Then 7 8 wins clearly.
    table = {
        (): {7: 0.6, 8: 0.4},
        (7,): {8: 0.6, 9: 0.4},
        (8,): {7: 0.55, 9: 0.45},
        (7, 8): {EOS: 1.0},
        (7, 9): {EOS: 1.0},
    }
    best = rigged(monkeypatch, table, beams(2, length_penalty=0.0))[0]
    assert best.ids == [7, 8]
    assert best.statistics["margin"] == pytest.approx(math.log(0.24 / 0.22), abs=1e-4)


def test_searches_that_do_not_go_together_are_refused():
    four = build(dataclasses.replace(SMALL, order="interleaved-sa"), Sizes(12, 12, True))
    with pytest.raises(ValueError, match=r"selection.*4 tokens"):
        decode_batch(four, [[7]], beams(2, selection="double-top-k"))
    with pytest.raises(ValueError, match="n_best"):
        decode_batch(network(), [[7]], beams(2, n_best=3))


def test_an_empty_batch_and_an_empty_source_are_decoded():
    assert decode_batch(network(), [], GREEDY) == []
    ranked = decode_batch(network(), [[], [7]], beams(2))
    assert [len(found) for found in ranked] == [1, 1]


def test_a_living_network_keeps_its_mode_and_decodes_without_dropout_or_autocast():
    model = network(dropout=0.5)
    decoder = StepwiseDecoder(model)
    expected = decoder.decode(decoder.prepare([[7, 8]]), GREEDY)
    model.train()
    with torch.autocast("cpu", torch.bfloat16):
        assert decode_batch(model, [[7, 8]], GREEDY) == expected
    assert model.training


@pytest.mark.parametrize(
    "name",
    [
        "autoregressive",
        "interleaved-sa",
        "multi-directional",
        "double-token",
    ],
)
def test_overfitted_pairs_are_reproduced_in_as_few_steps_as_can_be(name):
    order = ORDERS[name]
    torch.manual_seed(0)
    draw = random.Random(2)
    config = dataclasses.replace(SMALL, width=32, feed_forward=64, decoder_layers=1)
    model = StepwiseModel(config, Sizes(30, 30, True), order)
    lengths = itertools.islice(itertools.cycle(range(1, max(8, 2 * order.step_size + 2))), 20)
    targets = [[draw.randrange(7, 30) for _ in range(length)] for length in lengths]
    inputs = [[7 + index, draw.randrange(7, 30)] for index in range(20)]
    batch = collate(range(20), inputs, targets)
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    for update in range(200):
        result = loss(model, batch, update, 0.0)
        optimiser.zero_grad()
        (result.total / result.count).backward()
        optimiser.step()
    for search in (GREEDY, beams(1)):
        found = [ranked[0] for ranked in decode_batch(model, inputs, search)]
        assert [one.ids for one in found] == targets
        assert [one.steps for one in found] == [-(-(len(target) + 1) // order.step_size) for target in targets]
    # A wide beam misses a target for one reason only: four shorter hypotheses were finished, and so the search, before it ended.
    for ranked, target in zip(decode_batch(model, inputs, beams(4, n_best=4)), targets, strict=True):
        found = [hypothesis.ids for hypothesis in ranked]
        assert found[0] == target or (len(found) == 4 and max(map(len, found)) < len(target))
