"""Rows that are scored together agree with an ordinary decoder, and normalisers with their definitions."""

import itertools

import pytest
import torch

from fewstep.families.lattice.config import LatticeSearch
from fewstep.vocabulary import BOS, EOS
from models.common.layers import logits
from models.common.layers.attention import SelfAttention
from models.common.layers.linear import pack
from models.lattice.loss import log_probability, loss
from models.lattice.markov import attend_alone, attend_segments, contexts, draw_contexts
from models.lattice.scoring import SlotTensors, full_normalizers, score_memories
from models.lattice.tables import bigram_tables, row_states
from models.training.batch import collate
from tests.models.lattice.made import SIZE, network

SOURCE, LENGTHS = torch.tensor([[7, 8, 9, 2], [11, 2, 0, 0]]), torch.tensor([4, 2])


def slots(behind=0, candidates=3, size=3):
    """Candidates of two sentences of `size` and 2 slots, the last of the first slot missing."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.stack(
        [torch.stack([7 + torch.randperm(SIZE - 7, generator=generator)[:candidates] for _ in range(size + behind)]) for _ in "ab"]
    )
    ids[0, 0, -1] = -1
    ids[1, 2 + behind :] = -1
    counts = torch.log(torch.rand(ids.shape, generator=generator)).masked_fill(ids < 0, -torch.inf)
    return SlotTensors(ids, counts, torch.tensor([1, 1]), torch.tensor([size, 2]))


def lattice_of(model, made, tables=None, **search):
    with torch.inference_mode():
        return score_memories(model, model.encode(SOURCE, LENGTHS), made, LatticeSearch(**search), tables)


def forced(model, source, target):
    """Return log-probabilities [T,V] of each slot given the token before it, by ordinary teacher forcing."""
    batch = collate([0], [source], [target])
    with torch.no_grad():
        states = model.hidden(batch.target, model.encode(batch.source, batch.source_lengths), None)[0]
        return (states @ model.target_embedding.weight.t()).log_softmax(1)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_rows_are_those_of_an_ordinary_decoder(norm, layers, positions):
    model, made = network(norm=norm, decoder_layers=layers, positions=positions), slots()
    pairs = [(model, None), (model, bigram_tables(model))]
    for network_, tables in pairs:
        found = lattice_of(network_, made, tables)
        for row, source in enumerate(([7, 8, 9], [11])):
            size = int(made.max_lengths[row])
            for path in itertools.product(range(3), repeat=size):
                words = [int(made.token_ids[row, slot, taken]) for slot, taken in enumerate(path)]
                if min(words) < 0:
                    continue
                expected = forced(model, source, words)
                assert float(found.start[row, path[0]]) == pytest.approx(float(expected[0, words[0]]), abs=1e-5)
                for slot in range(size):
                    exit_ = float(found.exits[row, slot, path[slot]])
                    assert exit_ == pytest.approx(float(expected[slot + 1, EOS]), abs=1e-5)
                    if slot:
                        edge = float(found.edges[row, slot - 1, path[slot - 1], path[slot]])
                        assert edge == pytest.approx(float(expected[slot, words[slot]]), abs=1e-5)


def test_missing_candidates_have_no_score_at_all():
    found = lattice_of(network(), slots())
    assert found.start[0, -1] == found.exits[0, 0, -1] == -torch.inf
    assert bool((found.edges[0, 0, -1] == -torch.inf).all())
    assert bool((found.edges[1, 1:] == -torch.inf).all())
    assert bool((found.exits[1, 2:] == -torch.inf).all())
    assert not any(part.isnan().any() for part in found)


def test_a_packed_network_scores_alike():
    model = network()
    plain = lattice_of(model, slots(), bigram_tables(model))
    pack(model)
    for one, other in zip(plain, lattice_of(model, slots(), bigram_tables(model)), strict=True):
        torch.testing.assert_close(one, other)


def test_the_whole_vocabulary_in_parts_is_the_whole_vocabulary(monkeypatch):
    states = torch.randn(5, 11, 16) * 3
    table = network().target_embedding
    expected = (states @ table.weight.t()).logsumexp(2)
    for held in (logits.CPU_LOGITS, 3 * SIZE, 1):
        monkeypatch.setattr(logits, "CPU_LOGITS", held)
        with torch.no_grad():
            torch.testing.assert_close(full_normalizers(states, table), expected)


def test_the_union_is_that_of_the_words_of_a_sentence():
    model, made = network(), slots()
    raw, found = lattice_of(model, made, normalizer="selfnorm"), lattice_of(model, made, normalizer="union")
    words = sorted({*made.token_ids[1, :2].flatten().tolist(), EOS})
    all_words = forced(model, [11], [int(made.token_ids[1, 0, 1])])[1]
    share = all_words[words].logsumexp(0)
    expected = all_words[made.token_ids[1, 1]] - share
    torch.testing.assert_close(found.edges[1, 0, 1], expected)
    torch.testing.assert_close(
        found.edges[1, 0, 1] - found.edges[1, 0, 1, 0], raw.edges[1, 0, 1] - raw.edges[1, 0, 1, 0], msg="ratios stay"
    )


def test_counts_and_bonus_are_added_for_the_word_that_is_entered():
    model, made = network(), slots()
    plain, found = lattice_of(model, made), lattice_of(model, made, count_weight=0.5, token_bonus=0.25)
    added = 0.5 * made.log_probs + 0.25
    torch.testing.assert_close(found.start[1], plain.start[1] + added[1, 0])
    torch.testing.assert_close(found.edges[1, 0], plain.edges[1, 0] + added[1, 1])
    torch.testing.assert_close(found.exits, plain.exits)
    assert bool((found.edges[0, 0, -1] == -torch.inf).all())
    assert not any(part.isnan().any() for part in found)


def test_given_text_scores_the_sum_of_its_bigrams():
    model = network()
    batch = collate([0, 1], [[7, 8, 9], [11]], [[9, 12], []])
    with torch.no_grad():
        found = log_probability(model, batch)
    one, other = forced(model, [7, 8, 9], [9, 12]), forced(model, [11], [])
    assert float(found[0]) == pytest.approx(float(one[0, 9] + one[1, 12] + one[2, EOS]), abs=1e-4)
    assert float(found[1]) == pytest.approx(float(other[0, EOS]), abs=1e-4)


# ---- segments: the slots that see each other, and the frequency of segments


TARGET = torch.tensor([[9, 12, 8, 16, 11, 10, 2]])


def states(model, target=TARGET, offset=None):
    memories = model.encode(torch.tensor([[7, 8, 9, 2]]), torch.tensor([4]))
    earlier = None if offset is None else contexts(torch.tensor([offset]), target.size(1), 2)
    with torch.no_grad():
        return model.hidden(target, memories, earlier)[0]


def changed(model, place, offset):
    """Return the slots whose states change with the target token at a position."""
    other = TARGET.clone()
    other[0, place] = 7
    return (states(model, TARGET, offset) - states(model, other, offset)).abs().amax(1).gt(1e-6).nonzero()[:, 0].tolist()


def test_segments_follow_from_the_offset():
    assert contexts(torch.tensor([0, 1]), 6, 2).tolist() == [[0, 1, 0, 1, 0, 1], [0, 0, 1, 0, 1, 0]]
    assert contexts(torch.tensor([0, 3, 4]), 8, 5).tolist() == [
        [0, 1, 2, 3, 4, 0, 1, 2],
        [0, 1, 2, 0, 1, 2, 3, 4],
        [0, 1, 2, 3, 0, 1, 2, 3],
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
        seen = contexts(torch.tensor([offset]), TARGET.size(1), 2)[0] > 0
        difference = (states(model, offset=offset) - alone).abs().amax(1)
        assert difference[~seen].max() <= 1e-5
        assert difference[seen].min() > 1e-3


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_segments_attend_as_a_mask_lets_them(length):
    torch.manual_seed(3)
    attention, x = SelfAttention(16, 4, 0.0), torch.randn(3, 7, 16)
    earlier = contexts(torch.tensor([0, 1, length - 1]), 7, length)
    place = torch.arange(7)
    mask = (place <= place[:, None]) & (place >= place[:, None] - earlier[:, :, None])
    with torch.no_grad():
        torch.testing.assert_close(attend_segments(attention, x, earlier, length), attention(x, mask[:, None]))
        torch.testing.assert_close(attend_alone(attention, x), attention(x, torch.eye(7, dtype=torch.bool)))


@pytest.mark.parametrize("length", [2, 5])
def test_contexts_are_equally_frequent_and_the_first_slot_has_none(length):
    torch.manual_seed(5)
    drawn = torch.cat([draw_contexts(200, 4 + 3 * length, length, torch.device("cpu")) for _ in range(20)])
    assert drawn[:, 0].max() == 0
    shares = [(drawn[:, length - 1 :] == count).float().mean().item() for count in range(length)]
    assert shares == pytest.approx([1 / length] * length, abs=0.02)
    again = [(torch.manual_seed(5), draw_contexts(200, 9, length, torch.device("cpu")))[1] for _ in range(2)]
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
        assert not any(bool(earlier[dropped].any()) for earlier, dropped in seen)
        assert any(bool(earlier.any()) for earlier, _ in seen)


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
