"""Drafters that write token after token: draft models, and trees that grow by levels; and Jacobi decoding, which has no drafter."""

import contextlib
import dataclasses
import gc
import itertools
import math
import random
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.config.options import OutputLimits, Sampling, Shortlist
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.aggressive.roles import can_draft
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.native import fewstep_native
from fewstep.vocabulary import EOS
from models.aggressive.decode import AggressiveDecoder
from models.aggressive.drafters import TokenDrafter, pick
from models.aggressive.search import verify_by_rejection_sampling
from models.aggressive.tree import DraftTree
from models.common.buffers import Size
from models.stepwise.decode import StepwiseDecoder
from tests.models.aggressive.networks import drafter_of, head_of, near, sources, verifier_of
from tests.models.aggressive.test_decode import _second_token, links
from tests.models.aggressive.test_loop import paths_of
from tests.models.common.device_alone import buffers_of_a_gpu

frozen = partial(AggressiveDecoder, frozen=True)
LIMITS = OutputLimits(max_extra_tokens=12)
VERIFIER = verifier_of()
POST = verifier_of(joint=False, norm="post", positions="learned")
BLOCK = drafter_of()
MODELS = {
    "near": (VERIFIER, BLOCK, near(VERIFIER)),
    "itself": (VERIFIER, BLOCK, VERIFIER),
    "small": (VERIFIER, BLOCK, verifier_of(seed=3, width=16, heads=1, encoder_layers=1, decoder_layers=1, norm="post")),
    "post": (POST, drafter_of(joint=False, norm="post", positions="learned"), near(POST)),
}
HEADS = {"head": (VERIFIER, head_of(VERIFIER), None), "post-head": (POST, head_of(POST, norm="post", positions="learned"), None)}
SYSTEMS = MODELS | HEADS


def search(**options):
    return AggressiveSearch(**{"output_limits": LIMITS, "min_tokens_per_pass": 0.0, **options})


def drafting(kind, **options):
    """The search with the drafter of a system of `SYSTEMS`."""
    return search(drafter="draft_model" if kind in MODELS else "network", **options)


def decoder_of(make, kind, lexicon=None):
    verifier, drafter, draft_model = SYSTEMS[kind]
    return make(drafter, verifier, None, lexicon, draft_model)


def run(decoder, inputs, how):
    return [ranked[0] for ranked in decoder.decode(decoder.prepare(inputs), how)]


def greedy(verifier, inputs, **options):
    return run(StepwiseDecoder(verifier, frozen=True), inputs, StepwiseSearch(output_limits=LIMITS, **options))


OPTIONS = [
    {},
    {"draft_precision": "int8"},
    {"draft_shortlist": Shortlist(tokens=9, links=3)},
    {"min_tokens_per_pass": 1.5},
    {"min_tokens_per_pass": 1.2, "draft_shortlist": Shortlist(tokens=9, links=0), "draft_precision": "int8"},
]


@given(
    st.sampled_from(sorted(SYSTEMS)),
    st.integers(1, 6),
    st.sampled_from([0, 1, 2, 5, 12]),
    st.sampled_from([1, 2, 5, 60]),
    st.integers(1, 12),
    st.sampled_from(OPTIONS),
    st.sampled_from(["float32", "int8"]),
)
def test_native_drafts_leave_greedy_decoding_as_it_is_to_the_last_bit(kind, width, nodes, branches, count, options, precision):
    inputs, verifier = sources(count, seed=count), SYSTEMS[kind][0]
    expected = greedy(verifier, inputs, precision=precision)
    how = drafting(kind, draft_width=width, tree_nodes=nodes, tree_branches=branches, verifier_precision=precision, **options)
    found = run(decoder_of(frozen, kind, links(verifier.sizes.target)), inputs, how)
    assert [(one.ids, one.score) for one in found] == [(one.ids, one.score) for one in expected]
    assert [one.statistics["margin"] for one in found] == [one.statistics["margin"] for one in expected]
    assert all(one.steps <= other.steps for one, other in zip(found, expected, strict=True))
    assert all(one.statistics["drafted"] <= max(width, nodes) * one.steps for one in found)


@given(st.integers(1, 8), st.integers(1, 12), st.sampled_from([{}, {"adaptive": True}, {"min_tokens_per_pass": 1.2}]))
def test_native_jacobi_decoding_writes_the_greedy_output(width, count, options):
    inputs = sources(count, seed=count)
    for verifier, precision in ((VERIFIER, "float32"), (POST, "int8")):
        kind = "near" if verifier is VERIFIER else "post"
        how = search(drafter="jacobi", draft_width=width, verifier_precision=precision, **options)
        found, expected = run(decoder_of(frozen, kind), inputs, how), greedy(verifier, inputs, precision=precision)
        assert [(one.ids, one.score) for one in found] == [(one.ids, one.score) for one in expected]


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, options) for kind in sorted(MODELS) for options in ({}, {"tree_nodes": 7}, {"confidence": 0.4, "draft_width": 6})),
        *((kind, {"tree_nodes": nodes, **more}) for kind in HEADS for nodes, more in ((7, {}), (12, {"tree_branches": 30}))),
        ("near", {"strategy": "gad++", "max_logprob_gap": 3.0}),
        ("near", {"adaptive": True, "mode": "fast", "min_tokens_per_pass": 1.5}),
        ("near", {"tree_nodes": 9, "draft_shortlist": Shortlist(tokens=8, links=2), "output_limits": OutputLimits(min_tokens=4)}),
        ("head", {"tree_nodes": 9, "draft_shortlist": Shortlist(tokens=8, links=2), "draft_width": 2}),
        ("near", {"drafter": "jacobi"}),
        ("near", {"drafter": "jacobi", "draft_width": 9, "adaptive": True, "mode": "fast"}),
        ("post", {"drafter": "jacobi", "strategy": "gad++", "min_tokens_per_pass": 1.2}),
    ],
)
def test_torch_and_native_code_find_the_same(kind, options, gpu):
    """In buffers of exact and of rounded sizes."""
    how, inputs = search(**options) if "drafter" in options else drafting(kind, **options), sources(16)
    linked = links(SYSTEMS[kind][0].sizes.target)
    fast = decoder_of(frozen, kind, linked)
    with buffers_of_a_gpu() if gpu else contextlib.nullcontext():
        found = run(decoder_of(AggressiveDecoder, kind, linked), inputs, how)
    unsure = 0
    for one, other in zip(found, run(fast, inputs, how), strict=True):
        if min(one.statistics["margin"], other.statistics["margin"]) < 1e-4:
            unsure += 1
            continue
        assert (one.ids, one.steps) == (other.ids, other.steps)
        for name in ("drafted", "accepted", "fell_back", "proposed_at", "accepted_at"):
            assert one.statistics[name] == other.statistics[name]
    assert unsure <= 2
    assert fast.record.accepted > 0 or kind in ("small", "head", "post-head")


@pytest.mark.parametrize("kind", ["near", "head"])
@pytest.mark.parametrize("nodes", [0, 8])
def test_an_output_does_not_depend_on_company_or_threads(kind, nodes):
    inputs, decoder, how = sources(16), decoder_of(frozen, kind), drafting(kind, tree_nodes=nodes)
    together = run(decoder, inputs, how)
    assert [run(decoder, [one], how)[0] for one in inputs] == together
    assert [one for (one,) in decoder.decode(decoder.prepare(inputs[::-1]), how, threads=3)][::-1] == together


@pytest.mark.parametrize("make", [frozen, AggressiveDecoder])
@pytest.mark.parametrize("width", [1, 3, 4])
def test_a_draft_model_that_is_the_verifier_has_every_draft_accepted(make, width):
    """A pass writes a block and one token more, EOS included."""
    inputs = sources(20)
    for source, one in zip(inputs, run(decoder_of(make, "itself"), inputs, drafting("itself", draft_width=width)), strict=True):
        ended = len(one.ids) < len(source) + 1 + 12
        assert one.statistics["accepted"] == one.statistics["drafted"]
        assert one.steps == -(-(len(one.ids) + ended) // (width + 1))


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_the_drafters_of_a_system_share_one_copy_of_its_verifier(precision, monkeypatch):
    inputs, lent = sources(12), []
    make = fewstep_native.make_aggressive

    def recorded(*parts, **more):
        lent.append(more.get("beside"))
        return make(*parts, **more)

    monkeypatch.setattr(fewstep_native, "make_aggressive", recorded)
    searches = [search(drafter=name, verifier_precision=precision) for name in ("draft_model", "network")]
    expected = [run(decoder_of(frozen, "near"), inputs, how) for how in searches]
    lent.clear()
    decoder = decoder_of(frozen, "near")
    for _ in range(2):
        assert [run(decoder, inputs, how) for how in searches] == expected
    assert [one is not None for one in lent] == ([False, True] if precision == "float32" else [False, False, True])
    decoder.engines["native"]._copies["network" if precision == "float32" else "draft_model"]._made.clear()  # the one that lent it
    gc.collect()
    assert run(decoder, inputs, searches[precision == "int8"]) == expected[precision == "int8"]


def test_a_tree_of_one_branch_is_a_chain():
    for kind in ("near", "head"):
        chain, tree = (
            run(decoder_of(frozen, kind), sources(24), drafting(kind, draft_width=4, **options))
            for options in ({}, {"tree_nodes": 4, "tree_branches": 1})
        )
        assert [(one.steps, one.statistics) for one in chain] == [(one.steps, one.statistics) for one in tree]


def test_trees_need_fewer_passes_than_chains_of_their_depth():
    for kind in ("near", "head"):
        decoder = decoder_of(frozen, kind)
        chain, tree = (run(decoder, sources(40), drafting(kind, draft_width=4, tree_nodes=nodes)) for nodes in (0, 40))
        assert sum(one.steps for one in tree) < sum(one.steps for one in chain)


# ---- the growth of trees by levels


SIZE = 6


def row_of(seed, path):
    """Return the log-probabilities after a path of drafted tokens, among them some of probability 0."""
    draw = random.Random(f"{seed} {path}")
    row = [draw.gauss(0, 1.5) for _ in range(SIZE)]
    row[0] = row[1] = -math.inf
    total = math.log(sum(map(math.exp, row)))
    return [value - total for value in row]


class Table(TokenDrafter):
    """A drafter by `row_of`, whose seed is the number of the sentence."""

    def observe(self, slots, states, own):
        pass

    def log_probs(self, tokens, lengths, widths):
        return torch.tensor([[row_of(sentence, ())] for sentence in range(len(tokens))])

    def node_log_probs(self, tokens, lengths, tree, count):
        rows = []
        for sentence, (ids, parents) in enumerate(zip(tree.ids.tolist(), tree.parents.tolist(), strict=True)):
            paths = [()]
            for token, parent in zip(ids, parents, strict=True):
                paths.append((*paths[parent], token))
            rows.append([row_of(sentence, path) for path in paths[-count:]])
        return torch.tensor(rows)


def eagle2(seed, depth, branches, nodes):
    """Return the paths of a tree of EAGLE-2, by lists: of each depth the most probable `branches` paths are expanded, and the most
    probable `nodes` of all are kept."""
    scores, level = {}, {(): 0.0}
    for _ in range(depth):
        children = {}
        for path, score in level.items():
            row = row_of(seed, path)
            for token in sorted(range(SIZE), key=lambda token: -row[token])[:branches]:
                if row[token] > -math.inf:
                    children[(*path, token)] = score + row[token]
        scores |= children
        alive = [path for path in sorted(children, key=lambda path: -children[path]) if path[-1] != EOS]
        level = {path: children[path] for path in alive[:branches]}
    return sorted(scores, key=lambda path: -scores[path])[:nodes]


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 16))
def test_a_tree_is_that_of_eagle2(depth, branches, nodes):
    how = search(tree_nodes=nodes, tree_branches=branches)
    drafter = Table(how, Size(4, 1, 20), depth)
    widths = torch.tensor([depth, 1, 0, depth])
    draft = drafter.propose(torch.zeros(4, 20, dtype=torch.int64), torch.zeros(4, dtype=torch.int64), widths, None)
    for sentence, width in enumerate(widths.tolist()):
        # A node that is not among the best ones of its depth is not expanded: with fewer nodes than branches that may be fewer.
        expected = eagle2(sentence, width, min(branches, nodes), nodes)
        assert set(paths_of(DraftTree(draft.ids, draft.parents), sentence)) == set(expected)


# ---- samples


def test_a_token_drawn_through_a_draft_has_the_verifiers_distribution():
    """Leviathan et al. 2023, appendix A.1, by enumeration of a grid of random numbers."""
    grid = torch.arange(50) / 50 + 0.01
    numbers = torch.cartesian_prod(grid, grid, grid)[:, None]
    torch.manual_seed(4)
    for _ in range(4):
        p, q = torch.randn(2, 5).mul(1.5).log_softmax(1)
        ids = pick(q.exp().expand(len(numbers), -1), numbers[:, 0, 0])
        rows = len(numbers), 1, -1
        slots = torch.zeros((len(numbers), 1), dtype=torch.int64)
        found = verify_by_rejection_sampling(p.expand(*rows), ids[:, None], q.expand(*rows), numbers, slots)
        tokens = torch.where(found.accepted, ids[:, None], found.own)
        assert found.accepted.double().mean() == pytest.approx(torch.minimum(p.exp(), q.exp()).sum().item(), abs=0.02)
        frequencies = torch.bincount(tokens[:, 0], minlength=5) / len(tokens)
        assert frequencies.tolist() == pytest.approx(p.exp().tolist(), abs=0.02)


def test_samples_follow_the_verifier_with_a_draft_model():
    """Drafts are drawn at the temperature of the search."""
    decoder = decoder_of(AggressiveDecoder, "near")
    source, rows = [8, 9, 10], [list(row) for row in itertools.product(range(7, 19), repeat=3)]
    prepared = decoder.prepare([source] * len(rows))._replace(rows=rows)  # one source, and random numbers of many
    limits = OutputLimits(max_extra_tokens=12, max_tokens=2)
    how = drafting("near", strategy="sample", output_limits=limits, sampling=Sampling(temperature=2.0))
    found = [ranked[0] for ranked in decoder.decode(prepared, how)]
    seconds = [one.ids[1] if len(one.ids) > 1 else EOS for one in found]
    frequencies = np.bincount(seconds, minlength=23) / len(rows)
    assert 0.5 * np.abs(frequencies - _second_token(VERIFIER, source)).sum() < 0.06
    assert 0 < decoder.record.accepted < decoder.record.drafted


def test_a_sample_with_the_verifier_as_draft_model_accepts_every_draft():
    decoder = decoder_of(AggressiveDecoder, "itself")
    found = run(decoder, sources(12), drafting("itself", strategy="sample", sampling=Sampling(temperature=0.7)))
    assert sum(one.statistics["drafted"] for one in found) > 20
    assert all(one.statistics["accepted"] >= one.statistics["drafted"] - 1 for one in found), "only rounding rejects a draft"


# ---- refusals


def test_networks_that_cannot_draft():
    config = BLOCK.config
    assert can_draft(VERIFIER.config, config)
    assert can_draft(MODELS["small"][2].config, config)
    assert not can_draft(verifier_of(order="interleaved").config, config)
    assert not can_draft(verifier_of(max_positions=64).config, config)
    assert not can_draft(dataclasses.replace(VERIFIER.config, begin_vectors=True, embedding_norm=True), config)


@pytest.mark.parametrize("make", [frozen, AggressiveDecoder])
def test_searches_that_do_not_fit_are_refused(make):
    alone, model, head = make(BLOCK, VERIFIER), decoder_of(make, "near"), decoder_of(make, "head")
    for decoder, how, message in (
        (
            alone,
            search(drafter="draft_model"),
            "drafter: expected network, lookup or jacobi for a system without a `drafter_system`",
        ),
        (alone, search(drafter="jacobi", strategy="sample"), "drafter: expected another than jacobi for sampling"),
        (alone, search(drafter="jacobi", tree_nodes=3), "tree_nodes: expected 0 with drafter: jacobi"),
        (alone, search(drafter="jacobi", confidence=0.3), "confidence: expected 0 for a drafter that fills blocks at once"),
        (alone, search(drafter="jacobi", draft_precision="int8"), "draft_precision: expected float32 for sampling, and where no"),
        (model, drafting("near", tree_nodes=3, confidence=0.3), "confidence: expected 0 with tree_nodes"),
        (head, search(tree_nodes=3, tree_branches=512, draft_width=5), "tree_branches: expected at most 409 with draft_width 5"),
    ):
        with pytest.raises(ValueError, match=message):
            run(decoder, [[8]], how)


def test_a_drafter_that_gains_too_little_is_named(caplog):
    for kind, how, cause in (
        ("small", drafting("small", min_tokens_per_pass=9.0), "the draft model writes other tokens than the verifier"),
        ("near", search(drafter="jacobi", min_tokens_per_pass=9.0), "the verifier changes most of its own guesses"),
    ):
        caplog.clear()
        run(decoder_of(frozen, kind), sources(30), how)
        assert cause in caplog.text


def test_drafts_without_a_pass_of_their_own_stop_at_a_lower_limit():
    for drafter, least in (("jacobi", 1.5), ("draft_model", 1.5), ("network", 1.5)):
        assert AggressiveSearch(drafter=drafter).with_fallback(BLOCK.config).min_tokens_per_pass == least
