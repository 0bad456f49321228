"""Segments: the slots that see each other, and the frequency of segments."""

import pytest
import torch

from fewstep.vocabulary import BOS
from models.common.layers.attention import SelfAttention
from models.lattice.loss import loss
from models.lattice.markov import attend_alone, attend_pairs, draw_pairs, pairs
from models.lattice.tables import row_states
from models.training.batch import collate
from tests.models.lattice.made import network

TARGET = torch.tensor([[9, 12, 8, 16, 11, 10, 2]])


def states(model, target=TARGET, offset=None):
    memories = model.encode(torch.tensor([[7, 8, 9, 2]]), torch.tensor([4]))
    paired = None if offset is None else pairs(torch.tensor([offset]), target.size(1))
    with torch.no_grad():
        return model.hidden(target, memories, paired)[0]


def changed(model, place, offset):
    """Return the slots whose states change with the target token at a position."""
    other = TARGET.clone()
    other[0, place] = 7
    return (states(model, TARGET, offset) - states(model, other, offset)).abs().amax(1).gt(1e-6).nonzero()[:, 0].tolist()


def test_segments_follow_from_the_offset():
    assert pairs(torch.tensor([0, 1]), 6).tolist() == [
        [False, True, False, True, False, True],
        [False, False, True, False, True, False],
    ]


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_nothing_is_seen_across_a_barrier(layers, norm):
    model = network(decoder_layers=layers, norm=norm)
    for place in range(TARGET.size(1) - 1):
        # The token at a position is input of the next slot, and seen by the slot after it in the same segment.
        assert changed(model, place, None) == [place + 1]
        for offset in (0, 1):
            together = (place + 2 - offset) % 2 == 1 and place + 2 < TARGET.size(1)
            assert changed(model, place, offset) == ([place + 1, place + 2] if together else [place + 1])


def test_bigram_slots_of_pairs_are_those_of_slots_alone_and_trigram_slots_are_not():
    model = network(decoder_layers=2)
    alone = states(model)
    for offset in (0, 1):
        seen = pairs(torch.tensor([offset]), TARGET.size(1))[0]
        difference = (states(model, offset=offset) - alone).abs().amax(1)
        assert difference[~seen].max() <= 1e-5
        assert difference[seen].min() > 1e-3


def test_pairs_attend_as_a_mask_lets_them():
    torch.manual_seed(3)
    attention, x = SelfAttention(16, 4, 0.0), torch.randn(2, 7, 16)
    paired = pairs(torch.tensor([0, 1]), 7)
    mask = torch.eye(7, dtype=torch.bool).repeat(2, 1, 1)
    mask[:, torch.arange(1, 7), torch.arange(6)] = paired[:, 1:]
    with torch.no_grad():
        torch.testing.assert_close(attend_pairs(attention, x, paired), attention(x, mask[:, None]))
        torch.testing.assert_close(attend_alone(attention, x), attention(x, torch.eye(7, dtype=torch.bool)))


def test_half_of_the_slots_are_bigrams_and_the_first_always_is():
    torch.manual_seed(5)
    drawn = torch.stack([draw_pairs(200, 9, torch.device("cpu")) for _ in range(20)]).float().mean((0, 1))
    assert drawn[0] == 0
    assert (drawn[1:] - 0.5).abs().max() < 0.04
    again = [(torch.manual_seed(5), draw_pairs(200, 9, torch.device("cpu")))[1] for _ in range(2)]
    assert torch.equal(*again)


def test_the_first_slot_carries_the_beginning():
    """Slot 0 has the same state for all targets, since it sees only BOS and the source."""
    model = network()
    assert torch.equal(states(model)[0], states(model, TARGET.flip(1))[0])
    assert int(TARGET[0, 0]) != BOS


def test_training_draws_pairs_and_evaluation_knows_one_word():
    batch = collate([0], [[7, 8, 9]], [TARGET[0, :-1].tolist()])
    model = network(dropout=0.0)
    assert loss(model, batch, 1, 0.0).total == loss(model, batch, 2, 0.0).total
    bigrams = loss(model, batch, 1, 0.0).total.item()
    model.train()
    found = set()
    for seed in range(8):
        torch.manual_seed(seed)
        found.add(round(loss(model, batch, 1, 0.0).total.item(), 4))
    assert len(found) == 2
    assert round(bigrams, 4) not in found
    alone = network(dropout=0.0, segment_length=1).train()
    assert loss(alone, batch, 1, 0.0).total.item() == pytest.approx(bigrams, rel=1e-6)


def test_slots_whose_word_is_dropped_know_the_source_alone():
    """Each is the row of BOS at its position, which searches prune by; of pairs it is neither."""
    model = network(dropout=0.0, decoder_layers=2, word_dropout=0.5)
    memories = model.encode(torch.tensor([[7, 8, 9, 2]]), torch.tensor([4]))
    places = torch.arange(TARGET.size(1))
    with torch.no_grad():
        unigrams = row_states(model, torch.full_like(TARGET, BOS), places, memories, None)[0]
        dropped = torch.tensor([[False, True, True, False, False, True, False]])
        found = model.hidden(TARGET, memories, None, dropped)[0]
    torch.testing.assert_close(found[dropped[0]], unigrams[dropped[0]])
    torch.testing.assert_close(found[~dropped[0]], states(model)[~dropped[0]])


@pytest.mark.parametrize("segment_length", [1, 2])
def test_words_are_dropped_in_training_alone_and_as_often_as_is_said(segment_length, monkeypatch):
    batch = collate([0], [[7, 8, 9]], [TARGET[0, :-1].tolist()])
    model = network(dropout=0.0, word_dropout=0.25, segment_length=segment_length)
    seen = []
    hidden = model.hidden
    monkeypatch.setattr(model, "hidden", lambda *given: (seen.append(given[2:]), hidden(*given))[1])
    loss(model, batch, 1, 0.0)
    assert seen.pop() == (None, None)
    model.train()
    torch.manual_seed(4)
    for update in range(400):
        loss(model, batch, update, 0.0)
    assert torch.cat([dropped for _, dropped in seen]).float().mean().item() == pytest.approx(0.25, abs=0.03)
    if segment_length == 2:
        assert not any(bool((paired & dropped).any()) for paired, dropped in seen)
        assert any(bool(paired.any()) for paired, _ in seen)


def test_the_penalty_is_that_of_the_normalisers():
    batch = collate([0, 1], [[7, 8, 9], [10]], [[9, 12, 8], [16]])
    plain, penalised = network(dropout=0.0), network(dropout=0.0, normalizer_penalty=0.05)
    one, other = loss(plain, batch, 1, 0.1), loss(penalised, batch, 1, 0.1)
    states_of = penalised.hidden(batch.target, penalised.encode(batch.source, batch.source_lengths), None)
    squares = (states_of @ penalised.target_embedding.weight.t()).logsumexp(2) ** 2
    expected = squares[0].sum() + squares[1, :2].sum()
    assert other.statistics["log_z_squared"].item() == pytest.approx(expected.item(), rel=1e-5)
    assert (other.total - one.total).item() == pytest.approx(0.05 * expected.item(), rel=1e-4)
    assert set(one.statistics) == {"nll", "correct"}
