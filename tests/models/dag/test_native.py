"""Native decoding of graphs against torch's."""

import dataclasses
import math
import random
from functools import partial

import numpy as np
import pytest
import torch

from fewstep import Lexicon
from fewstep.config.network import Sizes
from fewstep.config.options import Shortlist
from fewstep.config.search import SystemParts
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.dag.search import choose_graphs
from fewstep.sources import gather
from fewstep.system.format import CODES, WEIGHTS
from fewstep.translation import Hypothesis
from fewstep.vocabulary import BOS, EOS, UNK
from models.bundle.weights import describe, save_weights
from models.dag.decode import DagDecoder, load, native_decoder
from models.dag.model import DagModel

frozen = partial(DagDecoder, frozen=True)
"""A decoder of finished networks."""

SMALL = DagConfig(
    encoder_layers=2,
    decoder_layers=2,
    width=32,
    feed_forward=24,
    heads=2,
    dropout=0.0,
    max_positions=40,
    max_vertices=60,
    graph_factor=3.0,
)
NEAR = 1e-4
SEARCHES = [
    DagSearch(strategy="greedy"),
    DagSearch(strategy="lookahead"),
    DagSearch(strategy="lookahead", token_weight=0.4, allow_unknown=True, deduplicate=False),
    DagSearch(strategy="lookahead", no_repeat_ngram=2),
    DagSearch(strategy="viterbi"),
    DagSearch(strategy="joint-viterbi", length_penalty=0.5),
    DagSearch(strategy="beam", beam_size=20, n_best=3),
    DagSearch(strategy="sample", n_best=2),
]
NETWORKS = [
    {"norm": "pre"},
    {"norm": "post", "positions": "learned", "graph_size": "predicted", "heads": 4, "source_bos": True},
    {"norm": "pre", "graph_size": "fixed", "graph_factor": 21.0, "conventions": "v2", "width": 30},
]


def network(joint=True, **changes):
    """Untrained, but with an opinion."""
    torch.manual_seed(1)
    model = DagModel(dataclasses.replace(SMALL, **changes), Sizes(23, 23 if joint else 29, joint)).eval()
    with torch.no_grad():
        for name, values in model.named_parameters():
            if name.endswith((".bias", "norm.weight")):
                values.add_(torch.randn_like(values) * 0.1)
            if name.startswith("links."):
                values.mul_(3.0)
        model.target_embedding.weight.mul_(2.0)
        if model.length is not None:
            model.length.weight[18:] = 0.0  # long targets are never most_probable
    return model


def sources(count, longest=11, seed=0):
    draw = random.Random(seed)
    return [[draw.randrange(7, 23) for _ in range(draw.randrange(longest + 1))] for _ in range(count)]


def outputs(decoder, rows, search):
    return decoder.decode(decoder.prepare(rows), search)


def compare(expected, found):
    """The same outputs, but for a near-tie at most."""
    near = 0
    for wanted, got in zip(expected, found, strict=True):
        assert [one.score for one in got] == pytest.approx([one.score for one in wanted], abs=1e-3)
        if wanted[0].statistics.get("margin", math.inf) < NEAR:
            near += 1
            continue
        assert [one.ids for one in got] == [one.ids for one in wanted]
    assert near <= 1


@pytest.mark.parametrize("changes", NETWORKS)
@pytest.mark.parametrize("joint", [True, False])
def test_graphs_are_those_of_torch(changes, joint):
    model, rows = network(joint, **changes), sources(9)
    plain, search = DagDecoder(model), DagSearch(strategy="beam", candidates=4)
    prepared = gather(rows, 40)
    expected = plain.graph(prepared, search)
    found = frozen(model).graph(prepared, search)
    assert torch.equal(found.lengths, expected.lengths)
    assert found.transitions.shape == expected.transitions.shape
    torch.testing.assert_close(found.transitions, expected.transitions, rtol=1e-4, atol=1e-4)
    for row, size in enumerate(expected.lengths.tolist()):
        torch.testing.assert_close(found.tokens.scores[row, :size], expected.tokens.scores[row, :size], rtol=1e-4, atol=1e-4)
        clear = expected.tokens.scores[row, :size].diff(dim=1).abs() > NEAR
        certain = torch.ones_like(found.tokens.ids[row, :size], dtype=torch.bool)
        certain[:, :-1] &= clear
        certain[:, 1:] &= clear
        certain &= expected.tokens.scores[row, :size].isfinite()
        certain[:, -1] = False  # the best that is left out may be as good
        assert torch.equal(found.tokens.ids[row, :size][certain], expected.tokens.ids[row, :size][certain])
    if model.config.graph_size == "predicted":
        assert len(set(expected.lengths.tolist())) > 1


@pytest.mark.parametrize("count", [1, 4])
def test_the_lowest_of_equal_tokens_is_first_in_torch_and_natively(count):
    torch.manual_seed(1)
    model = DagModel(SMALL, Sizes(8000, 8000, True)).eval()
    ties = [10, 64, 65, 7000]
    with torch.no_grad():
        model.decoder.norm.weight.zero_()
        model.decoder.norm.bias.copy_(torch.eye(32)[0])
        model.target_embedding.weight[:, 0] = 0.0
        model.target_embedding.weight[ties, 0] = 1.0
    prepared, search = gather(sources(4), 40), DagSearch(strategy="beam", candidates=count)
    for decoder in (DagDecoder(model), frozen(model)):
        found = decoder.graph(prepared, search)
        for row, length in enumerate(found.lengths.tolist()):
            assert (found.tokens.ids[row, 1 : length - 1, :count] == torch.tensor(ties[:count])).all()


def test_the_first_of_equal_transitions_wins_in_torch_and_natively():
    model, rows = network(), sources(6)
    with torch.no_grad():
        for name, values in model.named_parameters():
            if name.startswith("links."):
                values.zero_()
    search = DagSearch(strategy="greedy", deduplicate=False)
    for decoder in (DagDecoder(model), frozen(model)):
        found = outputs(decoder, rows, search)
        sizes = decoder.graph(decoder.prepare(rows), search).lengths.tolist()
        assert [len(one[0].ids) for one in found] == [size - 2 for size in sizes]


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.label)
@pytest.mark.parametrize("changes", NETWORKS)
def test_finds_what_torch_finds(changes, search):
    model, rows = network(**changes), sources(12)
    compare(outputs(DagDecoder(model), rows, search), outputs(frozen(model), rows, search))


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.label)
def test_a_search_through_torch_is_that_of_torch(search, monkeypatch):
    """To the bit; native code is not called."""
    model, rows = network(), sources(6)
    decoder, through = frozen(model), dataclasses.replace(search, engine="torch")
    monkeypatch.setitem(decoder.engines, "native", None)
    assert outputs(decoder, rows, through) == outputs(DagDecoder(model), rows, search)
    assert through.label != search.label


@pytest.mark.parametrize("search", [search for search in SEARCHES if search.strategy != "sample"], ids=lambda search: search.label)
@pytest.mark.parametrize("changes", NETWORKS)
def test_a_sentence_decodes_to_the_same_bits_alone_and_in_a_batch(changes, search):
    decoder, rows = frozen(network(**changes)), sources(19)
    together = outputs(decoder, rows, search)
    assert len({ranked[0].score for ranked in together}) > 5
    torch.set_num_threads(2)
    assert outputs(decoder, rows, search) == together
    for source, ranked in zip(rows, together, strict=True):
        assert outputs(decoder, [source], search) == [ranked]


LEXICON = Lexicon(
    np.array([0, 1, 2, 3, 4, 5, 6, 12, 9, 17]),
    np.where(np.arange(32) < 3, np.random.default_rng(3).integers(-1, 13, (23, 32)), -1),
)
LEXICON.linked_tokens[BOS] = -1  # no link of training text leads to it


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.label)
@pytest.mark.parametrize("changes", NETWORKS)
def test_words_are_chosen_among_those_that_are_listed_as_torch_chooses_them(changes, search):
    model, rows, others = network(**changes), sources(12), 0
    search = dataclasses.replace(search, shortlist=Shortlist(tokens=9, links=2))
    expected, found, free = (
        outputs(decoder, rows, how)
        for decoder, how in (
            (DagDecoder(model, lexicon=LEXICON), search),
            (frozen(model, lexicon=LEXICON), search),
            (frozen(model, lexicon=LEXICON), dataclasses.replace(search, shortlist=None)),
        )
    )
    compare(expected, found)
    for source, got, every in zip(rows, found, free, strict=True):
        linked = [row[: row.index(-1)] if -1 in row else row for row in LEXICON.linked_tokens[[*source, EOS], :2].tolist()]
        assert {word for one in got for word in one.ids} <= {12, 9, UNK} | {word for row in linked for word in row}
        others += [one.ids for one in got] != [one.ids for one in every]
    assert others >= 4


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_shortlist_of_all_tokens_changes_nothing_and_neither_do_other_sentences(precision):
    model, rows = network(), sources(12)
    order = np.concatenate([np.arange(7), np.random.default_rng(1).permutation(np.arange(7, 23))])
    decoder = frozen(model, lexicon=LEXICON._replace(common_tokens=order))
    for strategy in ("greedy", "lookahead", "beam"):
        search = DagSearch(strategy=strategy, precision=precision, shortlist=Shortlist(tokens=23))
        with_list, without = (
            outputs(decoder, rows, dataclasses.replace(search, shortlist=shortlist)) for shortlist in (search.shortlist, None)
        )
        assert [one[0].ids for one in with_list] == [one[0].ids for one in without]
        assert [one[0].score for one in with_list] == pytest.approx([one[0].score for one in without], abs=1e-3)
        search = dataclasses.replace(search, shortlist=Shortlist(tokens=9, links=2))
        together = outputs(decoder, rows, search)
        torch.set_num_threads(2)
        assert [outputs(decoder, [source], search)[0] for source in rows] == together
        torch.set_num_threads(1)


def test_a_list_needs_something_to_be_made_of():
    search = DagSearch(shortlist=Shortlist(tokens=9))
    for decoder in (DagDecoder(network()), frozen(network())):
        with pytest.raises(ValueError, match="shortlist: expected none for a system without candidate tables"):
            outputs(decoder, [[7]], search)


@pytest.mark.parametrize("strategy", ["greedy", "lookahead", "beam"])
def test_half_precision_is_near_and_for_native_decoding_alone(strategy):
    model, rows = network(), sources(12)
    native, half = frozen(model), DagSearch(strategy=strategy, precision="bfloat16")
    assert half.label == f"{DagSearch(strategy=strategy).label}-bfloat16"
    with pytest.raises(ValueError, match="precision: expected float32 in torch"):
        outputs(DagDecoder(model), rows, half)
    with pytest.raises(ValueError, match="precision: expected float32 for sampling"):
        outputs(native, rows, DagSearch(strategy="sample", precision="bfloat16"))
    found, exact = outputs(native, rows, half), outputs(native, rows, dataclasses.replace(half, precision="float32"))
    same = [one[0].ids == other[0].ids for one, other in zip(found, exact, strict=True)]
    assert sum(same) >= 8
    gaps = [
        abs(one[0].score - other[0].score) for one, other, alike in zip(found, exact, same, strict=True) if alike and one[0].ids
    ]
    assert 0 < max(gaps) < 0.5


def test_graphs_are_cut_to_the_table_of_positions_and_empty_batches_are_empty():
    decoder = frozen(network(graph_factor=30.0))
    for search in (DagSearch(), DagSearch(strategy="viterbi")):
        assert outputs(decoder, [], search) == []
        (ranked,) = outputs(decoder, [[7] * 30], search)
        assert len(ranked[0].ids) <= 58
    with pytest.raises(ValueError, match=r"sources\[0\].*at most 39 tokens"):
        decoder.prepare([[7] * 40])


def test_the_smallest_graph_writes_nothing():
    model = network(graph_size="fixed", graph_factor=0.5)
    for search in (DagSearch(strategy="greedy"), DagSearch()):
        (found,), (expected,) = (outputs(kind(model), [[9, 8]], search) for kind in (frozen, DagDecoder))
        assert found[0].ids == expected[0].ids == []
        assert found[0].score == pytest.approx(expected[0].score, abs=1e-4)


def test_a_loaded_system_is_native_on_a_cpu(tmp_path):
    model = network()
    save_weights(tmp_path / WEIGHTS, model.state_dict())
    save_weights(tmp_path / CODES, model.codes())
    decoder = load(tmp_path, describe("dag", model.config, model.sizes) | {"parts": {WEIGHTS: {}, CODES: {}}}, DagSearch(), "cpu")
    assert "native" in decoder.engines
    rows = sources(4)
    assert outputs(decoder, rows, DagSearch()) == outputs(frozen(model), rows, DagSearch())


def test_initialisation_as_in_bert_draws_all_matrices_alike():
    torch.manual_seed(3)
    model = DagModel(dataclasses.replace(SMALL, width=64, initialisation="normal"), Sizes(500, 500, True))
    for name, values in model.named_parameters():
        if values.dim() == 2:
            assert 0.015 < float(values.detach().std()) < 0.025, name


def test_bos_before_the_source_changes_the_graph():
    rows = [[8, 9, 10]]
    plain, with_bos = (network(source_bos=source_bos) for source_bos in (False, True))
    one, other = (native_decoder(model, None, None) for model in (plain, with_bos))
    search = DagSearch(strategy="lookahead")
    graphs = [decoder.graph(decoder.prepare(rows), search, 1) for decoder in (one, other)]
    assert graphs[0].lengths.tolist() == graphs[1].lengths.tolist()
    assert not np.allclose(graphs[0].transitions, graphs[1].transitions)
    with pytest.raises(ValueError, match="expected at most"):
        other.prepare([[8] * (SMALL.max_positions - 1)])


# ---- graphs of other sizes in decoding: another factor, and several predicted lengths


PREDICTED = {"graph_size": "predicted", "positions": "learned"}
STRATEGIES = ["greedy", "lookahead", "joint-viterbi", "beam"]


@pytest.mark.parametrize("graph_size", ["source", "predicted", "fixed"])
def test_a_search_has_a_factor_of_its_own(graph_size):
    model, rows = network(graph_size=graph_size, graph_factor_range=(2.0, 4.0)), sources(8)
    plain, native = DagDecoder(model), frozen(model)
    sizes = {}
    for factor in (None, 2.0, 2.7, 3.0):
        search = DagSearch(graph_factor=factor)
        sizes[factor] = plain.graph(plain.prepare(rows), search).lengths.tolist()
        assert native.graph(native.prepare(rows), search).lengths.tolist() == sizes[factor]
        compare(outputs(plain, rows, search), outputs(native, rows, search))
    assert sizes[None] == sizes[3.0] != sizes[2.0]
    assert all(small <= large for small, large in zip(sizes[2.0], sizes[2.7], strict=True))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_best_of_several_lengths_is_chosen(strategy):
    model, rows = network(**PREDICTED), sources(8)
    plain, native = DagDecoder(model), frozen(model)
    search = DagSearch(strategy=strategy, length_candidates=3, length_penalty=0.7, beam_size=20)
    found = outputs(native, rows, search)
    compare(outputs(plain, rows, search), found)
    assert [outputs(native, [row], search)[0] for row in rows] == found
    one = dataclasses.replace(search, length_candidates=1)
    alone = [native.engines["native"]._search(native.prepare(rows), one, 1, rank) for rank in range(3)]
    assert alone[0] == outputs(native, rows, one)
    assert alone[0] != alone[1]
    for row, (best,) in enumerate(found):
        power = 0.0 if search.divides_by_length else 0.7
        scores = [ranked[row][0].score / (len(ranked[row][0].ids) + 1) ** power for ranked in alone]
        assert best.score == pytest.approx(max(scores), abs=1e-6)
        assert best.ids in [ranked[row][0].ids for ranked in alone]


def test_outputs_of_several_graphs_are_distinct_and_the_more_probable_length_wins_ties():
    graphs = [
        [[Hypothesis([7, 8], -3.0, 1, {"margin": 0.5}), Hypothesis([9], -4.0, 1, {"margin": 0.5})]],
        [[Hypothesis([9], -3.0, 1, {"margin": 0.4}), Hypothesis([7, 8], -3.5, 1, {"margin": 0.4})]],
    ]
    search = DagSearch(strategy="beam", n_best=2, length_candidates=2)
    (found,) = choose_graphs(graphs, search)
    assert [(one.ids, one.score) for one in found] == [([7, 8], -3.0), ([9], -3.0)]
    assert [one.statistics["margin"] for one in found] == [0.0, 0.0]
    lookahead = DagSearch(length_candidates=2, length_penalty=1.0)
    (divided,) = choose_graphs(graphs, lookahead)
    assert [(one.ids, one.score) for one in divided] == [([7, 8], -1.0)]
    assert divided[0].statistics["margin"] == pytest.approx(0.4)
    assert choose_graphs(graphs[:1], search) == graphs[0]
    assert math.isinf(min(choose_graphs([[[Hypothesis([], -math.inf, 1)]]] * 2, search)[0][0].score, 0))


@pytest.mark.parametrize(
    ("changes", "search", "path"),
    [
        ({}, DagSearch(graph_factor=5.0), "graph_factor"),
        ({"graph_factor_range": (2.0, 4.0)}, DagSearch(graph_factor=1.9), "graph_factor"),
        ({}, DagSearch(length_candidates=2), "length_candidates"),
        (PREDICTED, DagSearch(strategy="sample", length_candidates=2), "length_candidates"),
        (PREDICTED, DagSearch(length_candidates=101), "length_candidates"),
    ],
)
def test_sizes_that_training_did_not_draw_are_refused(changes, search, path):
    problems = list(search.problems(dataclasses.replace(SMALL, **changes), SystemParts()))
    assert [problem.path for problem in problems] == [(path,)]
