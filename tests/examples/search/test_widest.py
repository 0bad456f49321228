"""A new strategy of an existing family (docs/contributing/add-a-search.md)."""

from collections.abc import Iterator
from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.config.network import Sizes
from fewstep.families.dag import search as dag_searches
from fewstep.families.dag.config import DagConfig
from fewstep.translation import Hypothesis
from models.dag.decode import DagDecoder
from models.dag.model import DagModel
from models.dag.search import GraphTensors, search_on_host
from models.dag.vertices import VertexTokens
from tests.examples.search.widest import WidestSearch, widest
from tests.kernels.dag_graphs import banded

SEARCH = WidestSearch(deduplicate=False)


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(dag_searches.STRATEGIES, "widest", widest)
        yield


def random_graph(lengths: list[int], seed: int) -> GraphTensors:
    """Return graphs whose tokens are the numbers of their vertices, for vertices up to the lengths."""
    generator = torch.Generator().manual_seed(seed)
    size = max(lengths)
    scores = torch.randn((len(lengths), size, size), generator=generator)
    vertex = torch.arange(size)
    real = (vertex > vertex[:, None]) & (vertex < torch.tensor(lengths)[:, None, None])
    transitions = scores.masked_fill(~real, -torch.inf).log_softmax(2).nan_to_num(nan=-torch.inf)
    ids = vertex.expand(len(lengths), size)[..., None]
    return GraphTensors(banded(transitions), VertexTokens(torch.zeros(ids.shape), ids), torch.tensor(lengths))


def width(graph: GraphTensors, row: int, inner: tuple[int, ...], length: int) -> float:
    steps = pairwise((0, *inner, length - 1))
    return min(graph.transitions[row, i, j - i - 1].item() for i, j in steps)


@given(lengths=st.lists(st.integers(2, 7), min_size=1, max_size=3), seed=st.integers(0, 2**32))
def test_the_path_is_the_best_of_all_paths(lengths: list[int], seed: int) -> None:
    graph = random_graph(lengths, seed)
    found = search_on_host(graph, SEARCH, [[7]] * len(lengths))
    for row, ((hypothesis,), length) in enumerate(zip(found, lengths, strict=True)):
        inner = range(1, length - 1)
        paths = [path for count in range(length - 1) for path in combinations(inner, count)]
        assert hypothesis.score == max(width(graph, row, path, length) for path in paths)
        assert hypothesis.score == width(graph, row, tuple(hypothesis.ids), length)


def test_a_sentence_has_the_same_hypothesis_alone_and_in_a_batch() -> None:
    torch.manual_seed(0)
    config = DagConfig(width=16, feed_forward=24, heads=2, encoder_layers=1, decoder_layers=1, graph_factor=2.0, max_vertices=40)
    model = DagModel(config, Sizes(14, 14, True))
    with torch.no_grad():
        for parameter in model.links.parameters():
            parameter.mul_(10.0)  # transitions that differ, so that paths have inner vertices
    decoder = DagDecoder(model)
    sources = [[7, 8, 9], [10], [11, 12, 13, 7, 8]]

    def decoded(rows: list[list[int]]) -> list[list[Hypothesis]]:
        return decoder.decode(decoder.prepare(rows), SEARCH)

    together = [ranked[0] for ranked in decoded(sources)]
    alone = [decoded([source])[0][0] for source in sources]
    assert [one.ids for one in together] == [one.ids for one in alone]
    assert [one.score for one in together] == pytest.approx([one.score for one in alone], abs=1e-5)
    assert any(one.ids for one in together)


def test_the_search_is_named_in_configs_and_tables() -> None:
    assert (WidestSearch().label, SEARCH.label) == ("widest", "widest-no_deduplicate")
