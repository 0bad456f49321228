"""Passes of drafts in torch, in chains and trees, with verifiers that are tables: outputs, cache and accepted tokens."""

import functools
import itertools
import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.config.options import OutputLimits
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.sources import gather
from fewstep.vocabulary import BOS, EOS, PAD, RESERVED
from models.aggressive.decode import AggressiveDecoder
from models.aggressive.drafters import Draft, LookupDrafter, network_drafter
from models.aggressive.search import verify
from models.aggressive.tree import DraftTree, accepted_path, ancestors, best_tree, depths
from models.aggressive.verifier import CachedDecoder
from models.common.buffers import Inputs, Size
from models.common.inference import inference_mode, source_tensors
from models.stepwise.search.greedy import most_probable
from tests.models.aggressive.networks import draft_and_verify, drafter_of, head_of, heads_of, sharing, sources, verifier_of

# ---- passes of drafts in torch with verifiers that are tables: outputs, cache and accepted tokens


SIZE = 13
"""Size of the tables' vocabulary: the reserved tokens and six others."""
SENTENCES = 5


@functools.cache
def logits_of(sentence, prefix):
    """Return logits as a function of source and prefix; the first sentences seldom end."""
    draw = random.Random(hash((sentence, prefix)))
    row = [draw.gauss(0, 1) for _ in range(SIZE)]
    row[EOS] += sentence - 3
    return row


class Table:
    """A verifier by `logits_of` that remembers, as the cache of a network does, what each slot carries."""

    def __init__(self, sentences, slots):
        self.padding, self.rows = slots, list(range(sentences))
        self.carried = [[None] * (slots + 1) for _ in self.rows]

    def start(self, inputs):
        pass

    def step(self, tokens, slots):
        rows = zip(self.rows, self.carried, tokens.tolist(), slots.tolist(), strict=True)
        return torch.tensor(
            [[self.row(sentence, carried, *pair) for pair in zip(*pairs, strict=True)] for sentence, carried, *pairs in rows]
        )

    def logits(self, states):
        return states

    def row(self, sentence, carried, word, place):
        if place == self.padding:
            return [99.0] * SIZE  # must not be read
        carried[place] = word
        return logits_of(sentence, tuple(carried[1 : place + 1]))


@functools.cache
def written(sentence, limit):
    """Return the output of greedy decoding, and whether it ends with EOS."""
    prefix = ()
    while len(prefix) < limit:
        row = logits_of(sentence, prefix)
        allowed = [EOS, *range(len(RESERVED), SIZE)] if prefix else range(len(RESERVED), SIZE)
        best = max(allowed, key=lambda word: row[word])
        if best == EOS:
            return prefix, True
        prefix += (best,)
    return prefix, False


class Scripted:
    """A drafter that proposes the right token or a wrong one, token by token."""

    def __init__(self, kind, limit):
        self.kind, self.limit = kind, limit

    def start(self, inputs):
        pass

    def propose(self, tokens, lengths, widths, numbers):
        draw = random.Random(f"{self.kind} {lengths.tolist()}")
        ids = torch.full((len(tokens), max(1, int(widths.max()))), -1)
        for place, (length, width) in enumerate(zip(lengths.tolist(), widths.tolist(), strict=True)):
            right, ended = written(place, self.limit)
            right = [*right, *([EOS] if ended else [])]
            for offset in range(width):
                truth = right[length + offset] if length + offset < len(right) else PAD
                ids[place, offset] = self.token(truth, offset, draw)
        return Draft(ids, None)

    def observe(self, slots, states, own):
        pass

    def token(self, truth, offset, draw):
        wrong = len(RESERVED) + (truth + 1 - len(RESERVED)) % (SIZE - len(RESERVED)) if truth >= len(RESERVED) else len(RESERVED)
        return {
            "perfect": truth,
            "wrong": wrong,
            "end": EOS,
            "pad": PAD,
            "random": draw.choice([EOS, PAD, *range(3, SIZE)]),
            "right at first": truth if offset < 2 else wrong,
        }[self.kind]


@pytest.mark.parametrize("kind", ["perfect", "wrong", "end", "pad", "random", "right at first"])
@pytest.mark.parametrize("limit", [1, 5, 60])
def test_whoever_drafts_what_a_table_writes_greedily_stays(kind, limit):
    expected = [written(sentence, limit) for sentence in range(SENTENCES)]
    limits = torch.full((SENTENCES,), limit)
    widths = (1, 2, 3, 8, 25)
    for width, (adaptive, mode) in zip(widths, itertools.cycle(itertools.product((False, True), ("exact", "fast"))), strict=False):
        search = AggressiveSearch(min_tokens_per_pass=0.0, adaptive=adaptive, mode=mode)
        state = draft_and_verify(Table(SENTENCES, limit), Scripted(kind, limit), search, width, limits)
        for row, (found, (text, ended)) in enumerate(zip(state.hypotheses(), expected, strict=True)):
            assert (tuple(found.ids), bool(state.ended[row])) == (text, ended)
            whole = len(text) + ended
            assert found.steps <= whole
            if kind == "wrong" or kind == "pad":
                assert found.steps == whole
            if kind == "perfect" and not adaptive:
                assert found.steps == -(-whole // (width + 1))


PUBLISHED = {"gad": [(1, 0.0)], "gad++": [(3, 1.0), (3, 2.0), (5, 3.0), (5, 6.0), (3, 0.0), (10, 1.0)]}
"""Top-β and τ of each strategy: those of tables 1 to 5 of Xia et al. (2022), and further ones."""


def allowed(sentence, prefix):
    """Return the logits after a prefix, minus infinity for reserved tokens but EOS, and for an empty output."""
    row = logits_of(sentence, prefix)
    return [row[word] if word >= len(RESERVED) or (word == EOS and prefix) else -math.inf for word in range(SIZE)]


def guess(sentence, prefix, width):
    """Return a block of drafts: mostly the best tokens, else one of the next four, at times a token that must not be written."""
    block = ()
    for _ in range(width):
        draw = random.Random(hash((sentence, prefix, block)))
        row = allowed(sentence, prefix + block)
        ranked = sorted(range(SIZE), key=lambda word: -row[word])
        block += (ranked[min(draw.choice([0, 0, 0, 1, 1, 2, 3, 4]), 6)] if draw.random() < 0.95 else PAD,)
    return block


def published(sentence, width, top, gap, limit):
    """Return tokens and passes of the loop of Xia et al. (2022, Eq. 5 to 7). As in their program a block brings one more token, and
    a drafted end is taken as other tokens are; other than there no draft takes the last place before the limit."""
    output, passes = (), 0
    while True:
        block, passes = guess(sentence, output, min(width, limit - len(output) - 1)), passes + 1
        accepted = 0
        for word in block:
            row = allowed(sentence, output + block[:accepted])
            ranked = sorted(range(SIZE), key=lambda one: -row[one])[:top]
            if word not in [one for one in ranked if row[ranked[0]] - row[one] <= gap]:
                break
            accepted += 1
        row = allowed(sentence, output + block[:accepted])
        for word in (*block[:accepted], max(range(SIZE), key=lambda one: row[one])):
            if word == EOS or len(output) == limit:
                return output, passes
            output += (word,)
        if len(output) == limit:
            return output, passes


class Guessing:
    """A drafter by `guess`."""

    def __init__(self, sentences):
        self.sentences = sentences

    def start(self, inputs):
        pass

    def propose(self, tokens, lengths, widths, numbers):
        ids = torch.full((len(tokens), max(1, int(widths.max()))), -1)
        for row, (sentence, text, length, width) in enumerate(
            zip(self.sentences, tokens.tolist(), lengths.tolist(), widths.tolist(), strict=True)
        ):
            ids[row, :width] = torch.tensor(guess(sentence, tuple(text[:length]), width), dtype=torch.int64)
        return Draft(ids, None)

    def observe(self, slots, states, own):
        pass


@pytest.mark.parametrize("strategy", PUBLISHED)
def test_published_settings_write_the_tokens_of_the_published_loop_in_as_many_passes(strategy):
    """840 drafted outputs, of 30 tables by 7 settings in blocks of 4 widths: no difference in tokens or passes."""
    sentences, limit, compared, lengths = [row % 5 + row / 100 for row in range(30)], 30, 0, set()
    for (top, gap), width in itertools.product(PUBLISHED[strategy], (1, 3, 8, 25)):
        table = Table(len(sentences), limit)
        table.rows = sentences
        search = AggressiveSearch(
            strategy=strategy, top_k=top, max_logprob_gap=gap, require_top1_eos=False, min_tokens_per_pass=0.0
        )
        state = draft_and_verify(table, Guessing(sentences), search, width, torch.full((len(sentences),), limit))
        for sentence, found in zip(sentences, state.hypotheses(), strict=True):
            assert (tuple(found.ids), found.steps) == published(sentence, width, top, gap, limit)
            compared, lengths = compared + 1, lengths | {len(found.ids)}
    assert compared == 120 * len(PUBLISHED[strategy])
    assert min(lengths) < 5
    assert max(lengths) == limit


def test_outputs_of_tables_are_long_and_short():
    """Outputs are long enough for the limits above to matter."""
    assert len(written(0, 60)[0]) == 60
    assert 0 < len(written(SENTENCES - 1, 60)[0]) < 20


def batch_of(rows, extra=12):
    """Return a batch of sources whose hints are the sources."""
    source, lengths = source_tensors(gather(rows, 39), "cpu")
    hints = source.masked_fill(torch.arange(source.size(1)) >= lengths[:, None], -1)
    return Inputs(source, lengths, lengths + extra, hints=hints)


def look_up(hint, written, max_ngram, width):
    """Return what follows the longest n-gram at the end of `written`, by comparing lists: in the hint at the place nearest to the
    output's length, or else in the output where it occurs last."""
    text, before = [BOS, *hint], [BOS, *written]
    end = len(before) - 1
    for size in range(min(max_ngram, len(before)), 0, -1):
        last = before[-size:]
        places = [index for index in range(size - 1, len(text) - 1) if text[index - size + 1 : index + 1] == last]
        if places:
            nearest = min(places, key=lambda index: (abs(index - end), index))
            return text[nearest + 1 : nearest + 1 + width]
        for index in range(end - 1, size - 2, -1):
            if before[index - size + 1 : index + 1] == last:
                return before[index + 1 : index + 1 + width]
    return []


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 6))
def test_texts_are_looked_up_as_lists_are(seed, max_ngram, width):
    draw = random.Random(seed)
    hints, texts = ([[draw.randrange(7, 10) for _ in range(draw.randrange(9))] for _ in range(6)] for _ in range(2))
    widths = [draw.randrange(width + 1) for _ in texts]
    hint_ids = torch.full((6, 9), -1)
    tokens = torch.full((6, 12), PAD)
    for row, (hint, text) in enumerate(zip(hints, texts, strict=True)):
        hint_ids[row, : len(hint)] = torch.tensor(hint, dtype=torch.int64)
        tokens[row, : len(text)] = torch.tensor(text, dtype=torch.int64)
    drafter, nothing = LookupDrafter(max_ngram, width), torch.zeros(6, dtype=torch.int64)
    drafter.start(Inputs(tokens, nothing, nothing, hints=hint_ids))
    found = drafter.propose(tokens, torch.tensor([len(text) for text in texts]), torch.tensor(widths), None).ids
    for row, (hint, text, most) in enumerate(zip(hints, texts, widths, strict=True)):
        assert [token for token in found[row].tolist() if token >= 0] == look_up(hint, text, max_ngram, most)


@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("strategy", [{}, {"drafter": "lookup"}, {"adaptive": True}])
def test_through_torch_as_many_queries_write_what_greedy_passes_of_that_width_write(width, strategy):
    verifier = verifier_of(seed=7)
    decoder, rows = AggressiveDecoder(drafter_of(decoder_layers=2), verifier), sources(40, seed=3)
    searches = (
        AggressiveSearch(strategy="greedy", draft_width=width, output_limits=OutputLimits(max_extra_tokens=12)),
        AggressiveSearch(min_tokens_per_pass=0.0, draft_width=width, output_limits=OutputLimits(max_extra_tokens=12), **strategy),
    )
    plain, drafted = ([one for (one,) in decoder.decode(decoder.prepare(rows, how), how)] for how in searches)
    sure = [row for row, one in enumerate(plain) if one.statistics["margin"] >= 1e-4]
    assert len(sure) >= 39
    for row in sure:
        assert drafted[row].ids == plain[row].ids
        assert drafted[row].score == pytest.approx(plain[row].score, abs=1e-5)
    assert sum(one.steps for one in drafted) < sum(one.steps for one in plain)


def kept_by(scores, ids, **options):
    return verify(scores.clone(), ids, AggressiveSearch(strategy="gad++", **options)).accepted[0].tolist()


def test_more_ranks_and_a_wider_gap_keep_what_fewer_and_a_narrower_keep():
    torch.manual_seed(0)
    scores = torch.randn(1, 300, 9).log_softmax(2)
    ids = torch.randint(9, (1, 300))
    for strict in (False, True):
        by_rank = [kept_by(scores, ids, top_k=ranks, max_logprob_gap=2.0, require_top1_eos=strict) for ranks in range(1, 10)]
        by_gap = [kept_by(scores, ids, top_k=4, max_logprob_gap=gap, require_top1_eos=strict) for gap in (0.0, 0.3, 1.0, 2.0, 9.0)]
        for fewer, more in (*itertools.pairwise(by_rank), *itertools.pairwise(by_gap)):
            assert all(high >= low for low, high in zip(fewer, more, strict=True))
        assert sum(by_rank[0]) < sum(by_rank[-1])
        assert by_gap[0] == [token == best for token, best in zip(ids[0].tolist(), scores[0].argmax(1).tolist(), strict=True)]


def test_a_gap_is_inclusive_and_so_is_a_tie_at_the_last_rank():
    scores, ids = torch.tensor([[[-1.0, -1.5, -2.0, -2.0, -2.0, -4.0]] * 6]), torch.arange(6)[None]
    ids = torch.tensor([[0, 1, 3, 4, 5, 2]])
    assert kept_by(scores, ids, top_k=3, max_logprob_gap=1.0, require_top1_eos=False) == [True, True, True, True, False, True]
    assert kept_by(scores, ids, top_k=3, max_logprob_gap=0.99, require_top1_eos=False) == [True, True, False, False, False, False]
    assert kept_by(scores, ids, top_k=2, max_logprob_gap=9.0, require_top1_eos=False) == [True, True, False, False, False, False]
    assert kept_by(scores, ids, top_k=3, max_logprob_gap=1.0) == [True, True, True, True, False, False], (
        "2 is EOS, and not the best"
    )


def test_among_tokens_of_equal_scores_the_first_is_written():
    for size in (23, 4000):
        scores = torch.zeros(1, 5, size)
        scores[0, torch.arange(5), torch.tensor([7, 9, 3, 11, 8])] = 1.0
        scores[..., 20] = 1.0
        assert verify(scores, torch.full((1, 5), -1), AggressiveSearch()).own.tolist() == [[7, 9, 3, 11, 8]]
        assert most_probable(scores)[0].tolist() == [[7, 9, 3, 11, 8]], "greedy decoding agrees"


# ---- draft trees in torch: their construction, their verification, and the cache behind them


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

    def observe(self, slots, states, own):
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


class Watched(CachedDecoder):
    """Before every pass: what is kept of the slots that are written is what a pass over them from the beginning gives."""

    checked = 0

    def start(self, inputs):
        super().start(inputs)
        self.batch = inputs
        self.text = torch.full((len(inputs.source), self.padding + 1), PAD)

    def check(self, lengths):
        for row, length in enumerate(lengths.tolist()):
            again = CachedDecoder(self.network, Size(1, self.batch.source.size(1), self.padding))
            again.start(Inputs(*(part[row : row + 1] for part in self.batch[:3])))
            if length:
                again.step(self.text[row : row + 1, :length], torch.arange(length)[None])
            torch.testing.assert_close(self.cache[:, :, row, :, :length], again.cache[:, :, 0, :, :length], atol=1e-5, rtol=0)
            self.checked += length

    def step(self, tokens, slots):
        self.check(slots[:, 0])
        self.text.scatter_(1, slots, tokens)
        return super().step(tokens, slots)

    def step_tree(self, tokens, lengths, tree):
        self.check(lengths)
        self.drafted = tokens
        return super().step_tree(tokens, lengths, tree)

    def keep(self, lengths, nodes):
        slots = (lengths[:, None] + torch.arange(nodes.size(1))).clamp(max=self.padding)
        self.text.scatter_(1, slots, self.drafted.gather(1, nodes))
        super().keep(lengths, nodes)


@pytest.mark.parametrize(
    ("kind", "tree_nodes"), [("block", 0), ("head", 0), ("lookup", 0), *((kind, 9) for kind in sorted(DRAFTERS))]
)
def test_what_is_kept_is_what_a_fresh_pass_gives(kind, tree_nodes):
    search, batch = AggressiveSearch(min_tokens_per_pass=0.0, tree_nodes=tree_nodes), batch_of(sources(8))
    size = Size(8, batch.source.size(1), int(batch.slots.max()))
    with inference_mode(VERIFIER):
        watched = Watched(VERIFIER, size, tree_nodes=tree_nodes)
        model = head_of(VERIFIER) if kind == "head" else DRAFTERS.get(kind)
        drafter = LookupDrafter(3, 4) if kind == "lookup" else network_drafter(model, search, size, 4)
        state = draft_and_verify(watched, drafter, search, 4, batch.slots, batch)
    assert watched.checked > 50
    assert 0 < int(state.accepted.sum()) < int(state.drafted.sum()), "some slots were taken back"


def test_searches_with_trees_that_no_drafter_can_serve_are_refused():
    block = AggressiveDecoder(DRAFTERS["block"], VERIFIER)
    with pytest.raises(ValueError, match=r"tree_nodes: expected 0 with the strategy gad\+\+"):
        block.decode(None, AggressiveSearch(strategy="gad++", tree_nodes=3))
    with pytest.raises(ValueError, match="tree_nodes: expected 0 with drafter: lookup"):
        block.decode(None, AggressiveSearch(drafter="lookup", tree_nodes=3))
    with pytest.raises(ValueError, match="adaptive: expected false with tree_nodes"):
        block.decode(None, AggressiveSearch(adaptive=True, tree_nodes=3))
