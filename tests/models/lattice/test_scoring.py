"""Rows that are scored together agree with an ordinary decoder, and normalisers with their definitions."""

import itertools

import pytest
import torch

from fewstep.families.lattice.config import LatticeSearch
from fewstep.vocabulary import EOS
from models.common.layers import logits
from models.common.layers.linear import pack
from models.lattice import normalizer
from models.lattice.batches import SlotTensors
from models.lattice.loss import log_probability
from models.lattice.scoring import score_memories
from models.lattice.tables import bigram_tables
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
            torch.testing.assert_close(normalizer.full(states, table), expected)


def test_scores_over_the_next_slot_sum_to_one_with_eos():
    model = network()
    found = lattice_of(model, slots(behind=1), normalizer="local")
    first = forced(model, [7, 8, 9], [7])[0]
    some = slots().token_ids[0, 0, :2]
    expected = first[some] - torch.cat((first[some], first[EOS, None])).logsumexp(0)
    torch.testing.assert_close(found.start[0, :2], expected)
    inner = found.edges[0].exp().sum(2) + found.exits[0, :2].exp()
    torch.testing.assert_close(inner[0, :2], torch.ones(2))
    torch.testing.assert_close(inner[1], torch.ones(3))
    assert bool((found.exits[0, 2] < 0).all()), "behind the last slot the next one has its say"


def test_scores_over_a_slot_that_holds_every_word_are_those_over_the_vocabulary():
    """Logits of tokens that are never candidates are set so low that they do not count."""
    model = network()
    made = slots()
    every = torch.arange(7, SIZE).expand(2, 4, SIZE - 7).clone()
    whole = SlotTensors(every, torch.zeros(every.shape), made.min_lengths, torch.tensor([3, 3]))
    shorter = whole._replace(token_ids=every[:, :3], log_probs=whole.log_probs[:, :3])
    norms = lattice_of(model, shorter, normalizer="selfnorm")
    wide, narrow = lattice_of(model, shorter, normalizer="union"), lattice_of(model, whole, normalizer="local")
    for one, other in zip(wide, narrow, strict=True):
        torch.testing.assert_close(one, other)
    # Raw scores differ from normalised ones by a number of the row.
    rows = norms.edges - wide.edges
    torch.testing.assert_close(rows, rows[..., :1].expand_as(rows))
    full = lattice_of(model, shorter)
    shares = torch.cat((wide.edges, wide.exits[:, :2, :, None]), 3).exp().sum(3)
    torch.testing.assert_close(shares, torch.ones_like(shares))
    assert bool((full.edges < wide.edges).all())


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
