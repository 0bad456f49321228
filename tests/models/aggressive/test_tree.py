"""Draft trees in torch: their construction, their verification, and the cache behind them."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.config.options import OutputLimits
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.vocabulary import EOS, RESERVED
from models.aggressive.decode import AggressiveDecoder
from models.aggressive.drafters import Draft, network_drafter
from models.aggressive.tree import DraftTree, accepted_path, ancestors, best_tree, depths
from models.aggressive.verifier import CachedVerifier
from models.common.buffers import Inputs, Size
from models.common.inference import inference_mode
from tests.models.aggressive.networks import draft_and_verify, drafter_of, head_of, heads_of, sharing, sources, verifier_of
from tests.models.aggressive.test_loop import SENTENCES, SIZE, Table, batch_of, logits_of, written

A, B, C, D, E, F, OTHER = range(7, 14)
HAND = DraftTree(torch.tensor([[A, B, C, D, E]]), torch.tensor([[0, 0, 1, 1, 2]]))
LIMITS = OutputLimits(max_extra_tokens=12)


def test_a_tree_by_hand():
    """Two children of the root, two of the first and one of the second; the verifier writes B, E, F."""
    assert depths(HAND).tolist() == [[0, 1, 1, 2, 2, 2]]
    rows = ["".join(str(int(seen)) for seen in row) for row in ancestors(HAND)[0]]
    assert rows == ["100000", "110000", "101000", "110100", "110010", "101001"]
    path = accepted_path(HAND, torch.tensor([[B, OTHER, E, OTHER, OTHER, F]]), 4)
    assert path.nodes.tolist() == [[0, 2, 5, 5]]
    assert path.ids.tolist() == [[B, E, -1, -1]]
    stopped = accepted_path(HAND, torch.tensor([[A, OTHER, E, OTHER, OTHER, F]]), 3)
    assert (stopped.nodes.tolist(), stopped.ids.tolist()) == ([[0, 1, 1]], [[A, C, -1]]), "a child that is not accepted"


def test_trees_of_given_accuracies_expect_the_known_numbers_of_tokens():
    accuracies = torch.full((1, 3, 9), -torch.inf)
    accuracies[0, :, 3:6] = torch.tensor([[0.6, 0.2, 0.1], [0.5, 0.2, 0.1], [0.4, 0.2, 0.1]]).log()
    for nodes, branches, expected in ((3, 3, 1.10), (3, 1, 1.02), (4, 3, 1.22)):
        tree = best_tree(accuracies, torch.tensor([3]), branches, nodes)
        products = {0: 1.0}
        for node, (token, parent) in enumerate(zip(tree.ids[0].tolist(), tree.parents[0].tolist(), strict=True), 1):
            depth = int(depths(tree)[0, node])
            products[node] = products[parent] * accuracies[0, depth - 1, token].exp().item()
        assert sum(products.values()) - 1 == pytest.approx(expected, abs=1e-6)


def paths_of(tree, row):
    """Return the paths of tokens that are the nodes of a tree, which follow their parents."""
    paths = {0: ()}
    for node, (token, parent) in enumerate(zip(tree.ids[row].tolist(), tree.parents[row].tolist(), strict=True), 1):
        if token >= 0:
            assert parent < node
            paths[node] = (*paths[parent], token)
    return list(paths.values())[1:]


@given(
    st.integers(1, 4), st.integers(3, 6), st.integers(1, 9), st.integers(1, 12), st.lists(st.integers(0, 4), min_size=3, max_size=3)
)
def test_a_tree_has_the_best_paths_of_all(positions, vocabulary, branches, nodes, widths):
    torch.manual_seed(positions * 1000 + vocabulary * 100 + branches * 10 + nodes)
    log_probs = torch.randn(3, positions, vocabulary).log_softmax(2)
    log_probs[:, :, 0] = -torch.inf
    tree = best_tree(log_probs, torch.tensor(widths), branches, nodes)
    assert tree.ids.shape == tree.parents.shape == (3, nodes)
    for row, width in enumerate(widths):
        top = [set(log_probs[row, position].topk(min(branches, vocabulary)).indices.tolist()) for position in range(positions)]
        products = {}
        for length in range(1, min(width, positions) + 1):
            for path in itertools.product(*top[:length]):
                score = sum(log_probs[row, position, token].item() for position, token in enumerate(path))
                if EOS not in path[:-1] and score > -math.inf:
                    products[path] = score
        found = paths_of(tree, row)
        assert len(set(found)) == len(found) == min(nodes, len(products))
        best = sorted(products.values(), reverse=True)[: len(found)]
        assert sorted((products[path] for path in found), reverse=True) == pytest.approx(best, abs=1e-5)


class TreeTable(Table):
    """A verifier by `logits_of` whose cache may hold a tree."""

    def __init__(self, sentences, slots, nodes):
        super().__init__(sentences, slots + nodes)

    def step_tree(self, tokens, lengths, tree):
        seen, found = ancestors(tree), []
        for index, (sentence, carried) in enumerate(zip(self.rows, self.carried, strict=True)):
            length = int(lengths[index])
            carried[length : length + tokens.size(1)] = tokens[index].tolist()
            found.append([])
            for node in range(tokens.size(1)):
                path = [carried[length + other] for other in range(node + 1) if seen[index, node, other]]
                prefix = tuple((carried[:length] + path)[1:])
                found[-1].append(logits_of(sentence, prefix) if node == 0 or tree.ids[index, node - 1] >= 0 else [99.0] * SIZE)
        return torch.tensor(found)

    def keep(self, lengths, nodes):
        for index, carried in enumerate(self.carried):
            length = int(lengths[index])
            path = [carried[length + node] for node in nodes[index].tolist()]
            carried[length : length + len(path)] = path


class RandomTrees:
    """A drafter of random trees, some with the right tokens among their nodes."""

    def __init__(self, seed, nodes, limit):
        self.generator, self.nodes, self.limit = torch.Generator().manual_seed(seed), nodes, limit

    def start(self, inputs):
        pass

    def observe(self, slots, states):
        pass

    def propose(self, tokens, lengths, widths, numbers):
        log_probs = torch.randn(len(tokens), max(1, int(widths.max())), SIZE, generator=self.generator)
        for index, length in enumerate(lengths.tolist()):
            text, ended = written(index, self.limit)
            for offset, token in enumerate([*text, *([EOS] if ended else [])][length : length + log_probs.size(1)]):
                log_probs[index, offset, token] += 2.0
        log_probs[:, :, [token for token in range(len(RESERVED)) if token != EOS]] = -torch.inf
        tree = best_tree(log_probs.log_softmax(2), widths, 1 + self.nodes % 4, self.nodes)
        return Draft(tree.ids, None, tree.parents)


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 6), st.sampled_from([1, 5, 40]))
def test_trees_write_what_a_table_writes_greedily(seed, nodes, width, limit):
    search = AggressiveSearch(min_tokens_per_pass=0.0, tree_nodes=nodes)
    limits = torch.full((SENTENCES,), limit)
    drafter = RandomTrees(seed, nodes, limit)
    state = draft_and_verify(TreeTable(SENTENCES, limit, nodes), drafter, search, width, limits)
    for row, found in enumerate(state.hypotheses()):
        text, ended = written(row, limit)
        assert (tuple(found.ids), bool(state.ended[row])) == (text, ended)
        assert found.steps <= len(text) + ended


VERIFIER = verifier_of(seed=7)
DRAFTERS = {"block": drafter_of(decoder_layers=2), "shared": sharing(VERIFIER), "medusa": heads_of(VERIFIER)}


@given(st.sampled_from(sorted(DRAFTERS)), st.integers(1, 12), st.integers(1, 4), st.sampled_from([1, 2, 5, 50]), st.integers(1, 9))
def test_through_torch_trees_write_what_greedy_passes_write(kind, nodes, width, branches, count):
    decoder, rows = AggressiveDecoder(DRAFTERS[kind], VERIFIER), sources(count, seed=3)
    tree = AggressiveSearch(
        min_tokens_per_pass=0.0, draft_width=width, tree_nodes=nodes, tree_branches=branches, output_limits=LIMITS
    )
    greedy = AggressiveSearch(strategy="greedy", draft_width=width, output_limits=LIMITS)
    plain, drafted = ([one for (one,) in decoder.decode(decoder.prepare(rows, how), how)] for how in (greedy, tree))
    for one, other in zip(plain, drafted, strict=True):
        if one.statistics["margin"] < 1e-4:
            continue
        assert other.ids == one.ids
        assert other.score == pytest.approx(one.score, abs=1e-5)
        assert other.steps <= one.steps
        assert other.statistics["drafted"] <= nodes * other.steps


class Watched(CachedVerifier):
    """Before every pass: the cache of the written slots is that of a pass over them from the beginning."""

    checked = 0

    def start(self, inputs):
        super().start(inputs)
        self.batch, self.text = inputs, torch.zeros(len(inputs.source), self.padding + 1, dtype=torch.int64)

    def step_tree(self, tokens, lengths, tree):
        for row, length in enumerate(lengths.tolist()):
            again = CachedVerifier(self.network, Size(1, self.batch.source.size(1), self.padding))
            again.start(Inputs(*(part[row : row + 1] for part in self.batch[:3])))
            if length:
                again.step(self.text[row : row + 1, :length], torch.arange(length)[None])
            torch.testing.assert_close(self.cache[:, :, row, :, :length], again.cache[:, :, 0, :, :length], atol=1e-5, rtol=0)
            self.checked += length
        self.drafted = (tokens, lengths)
        return super().step_tree(tokens, lengths, tree)

    def keep(self, lengths, nodes):
        slots = (lengths[:, None] + torch.arange(nodes.size(1))).clamp(max=self.padding)
        self.text.scatter_(1, slots, self.drafted[0].gather(1, nodes))
        super().keep(lengths, nodes)


@pytest.mark.parametrize("kind", sorted(DRAFTERS))
def test_what_is_kept_of_an_accepted_path_is_what_a_fresh_pass_gives(kind):
    search, batch = AggressiveSearch(min_tokens_per_pass=0.0, tree_nodes=9), batch_of(sources(8))
    size = Size(8, batch.source.size(1), int(batch.slots.max()))
    with inference_mode(VERIFIER):
        watched = Watched(VERIFIER, size, tree_nodes=9)
        drafter = network_drafter(DRAFTERS[kind], search, size, 4)
        state = draft_and_verify(watched, drafter, search, 4, batch.slots, batch)
    assert watched.checked > 50
    assert 0 < int(state.accepted.sum()) < int(state.drafted.sum()), "some nodes were taken back"


def test_searches_with_trees_that_no_drafter_can_serve_are_refused():
    decoder = AggressiveDecoder(head_of(VERIFIER), VERIFIER)
    with pytest.raises(ValueError, match="tree_nodes: expected 0 for a drafter that writes token after token, got 3"):
        decoder.decode(None, AggressiveSearch(tree_nodes=3))
    block = AggressiveDecoder(DRAFTERS["block"], VERIFIER)
    with pytest.raises(ValueError, match=r"tree_nodes: expected 0 with the strategy gad\+\+"):
        block.decode(None, AggressiveSearch(strategy="gad++", tree_nodes=3))
    with pytest.raises(ValueError, match="tree_nodes: expected 0 with drafter: lookup"):
        block.decode(None, AggressiveSearch(drafter="lookup", tree_nodes=3))
    with pytest.raises(ValueError, match="adaptive: expected false with tree_nodes"):
        block.decode(None, AggressiveSearch(adaptive=True, tree_nodes=3))
