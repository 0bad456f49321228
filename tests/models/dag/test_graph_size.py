"""Sizes of graphs, and the pairs that fit them."""

from dataclasses import replace

import pytest
import torch

from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.dag.graph_size import decoding_factor, vertex_counts
from fewstep.vocabulary import BOS, EOS
from models.dag.graph_size import fits, graph_lengths
from models.dag.segments import segments_of


def size(config, source, target, factor):
    return graph_lengths(config, torch.tensor([source + 1]), torch.tensor([target + 2]), factor).item()


@pytest.mark.parametrize(
    ("options", "source", "target", "factor", "expected"),
    [
        ({}, 5, 3, 4.0, 28),  # int(f (n + 2))
        ({"conventions": "v2"}, 5, 3, 4.0, 24),  # int(f (n + 1))
        ({}, 5, 3, 1.9, 13),
        ({"graph_size": "predicted"}, 5, 3, 4.0, 14),  # int(f m) + 2
        ({"graph_size": "fixed"}, 5, 3, 30.5, 32),
        ({}, 0, 0, 0.5, 2),
    ],
)
def test_sizes_follow_their_rule(options, source, target, factor, expected):
    assert size(DagConfig(**options), source, target, factor) == expected


def test_a_factor_for_each_sentence():
    config = DagConfig()
    lengths = graph_lengths(config, torch.tensor([6, 6]), torch.tensor([5, 5]), torch.tensor([4.0, 8.0]))
    assert lengths.tolist() == [28, 56]


def test_decoding_takes_the_middle_of_a_range():
    assert decoding_factor(DagConfig(graph_factor_range=(4.0, 8.0))) == 6.0
    assert decoding_factor(DagConfig(graph_factor=5.0)) == 5.0
    assert decoding_factor(DagConfig(graph_factor_range=(4.0, 8.0)), DagSearch(graph_factor=4.5)) == 4.5


@pytest.mark.parametrize("graph_size", ["source", "predicted", "fixed"])
@pytest.mark.parametrize("factor", [0.1, 1.9, 4.7, 8.3, 30.5])
def test_both_sides_of_the_project_round_alike(graph_size, factor):
    config = DagConfig(graph_size=graph_size, max_vertices=300)
    counts = vertex_counts(config, factor)
    lengths = torch.arange(len(counts))
    expected = graph_lengths(config, lengths, lengths.clamp(min=2), factor).clamp(max=300)
    assert counts.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("options", "source", "target", "expected"),
    [
        ({"graph_factor": 2.0}, 3, 8, True),  # 10 vertices for BOS, 8 tokens, EOS
        ({"graph_factor": 2.0}, 3, 9, False),
        ({"graph_factor": 2.0, "graph_factor_range": (1.5, 4.0)}, 3, 6, False),  # the smallest graph counts
        ({"graph_factor": 2.0, "graph_factor_range": (1.5, 4.0)}, 3, 5, True),
        ({"graph_factor": 8.0, "max_vertices": 40}, 3, 1, True),
        ({"graph_factor": 8.0, "max_vertices": 39}, 3, 1, False),
        ({"max_positions": 8}, 7, 1, True),
        ({"max_positions": 8}, 8, 1, False),
        ({"max_positions": 8, "source_bos": True}, 6, 1, True),
        ({"max_positions": 8, "source_bos": True}, 7, 1, False),
        ({}, 0, 0, True),
    ],
)
def test_pairs_that_no_graph_holds_are_left_out(options, source, target, expected):
    assert fits(DagConfig(**options), source, target) is expected


@pytest.mark.parametrize("graph_size", ["source", "predicted", "fixed"])
@pytest.mark.parametrize(
    ("options", "target", "expected"),
    [
        ({"graph_factor_range": (4.0, 8.0)}, 127, True),  # 127 tokens of spans and separators, at most 8 x 127 + 2 vertices
        ({"graph_factor_range": (4.0, 8.0)}, 128, False),
        ({"graph_factor": 1.0}, 100, True),
        ({"graph_factor": 0.9}, 100, False),  # a span has fewer vertices than tokens
        ({"graph_factor": 8.0, "max_transition_length": 8}, 100, True),
        ({"graph_factor": 8.0, "max_transition_length": 7}, 100, False),
    ],
)
def test_the_graph_of_segments_is_bounded_by_the_target_alone(graph_size, options, target, expected):
    config = DagConfig(graph_size=graph_size, segments=True, max_positions=1024, **options)
    assert [fits(config, source, target) for source in (0, 140, 600)] == [expected] * 3


@pytest.mark.parametrize("spans", [1, 2, 3, 8, 40])
@pytest.mark.parametrize("factor", [1.0, 2.7, 8.0])
def test_texts_of_segments_that_fit_have_a_path_within_the_largest_graph(spans, factor):
    size = 3 * spans + spans - 1  # spans of 3 tokens, and what separates them
    bound = int(factor * size) + 2
    config = DagConfig(graph_factor=factor, max_vertices=bound, segments=True)
    assert fits(config, 5, size)
    assert not fits(replace(config, max_vertices=bound - 1), 5, size)
    ids = torch.tensor([[BOS, *([7, 8, 9, BOS] * spans)[:-1], EOS]])
    segments = segments_of(config, ids, torch.tensor([size + 2]), training=True)
    gaps = segments.borders[0, segments.separators[0]].diff()
    assert int(segments.graph_lengths) <= bound
    assert all(gap - 1 >= 3 for gap in gaps.tolist())  # a vertex for each token
