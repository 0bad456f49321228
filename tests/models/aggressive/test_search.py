"""Drafting and verification in buffers of rounded sizes: the results of native code, and no pass waits for the host."""

import dataclasses
from unittest.mock import patch

import pytest
import torch

from fewstep.config.options import OutputLimits, Shortlist
from fewstep.decoding import decode_batch
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.sources import max_output_lengths
from models.aggressive.decode import AggressiveDecoder
from models.aggressive.draft_only import DraftOnly
from models.aggressive.precision import Pair
from models.aggressive.run import TorchDecoder
from models.aggressive.search import DraftAndVerify
from models.common.buffers import Size
from tests.models.aggressive.networks import drafter_of, head_of, heads_of, sharing, sources, verifier_of
from tests.models.aggressive.test_decode import links
from tests.models.common.device_alone import DeviceAlone, buffers_of_a_gpu

LIMITS = OutputLimits(max_extra_tokens=12)
CHAIN = AggressiveSearch(min_tokens_per_pass=0.0, output_limits=LIMITS)
TREE = dataclasses.replace(CHAIN, tree_nodes=7, tree_branches=3)


def networks(kind):
    """Return a verifier and a drafter."""
    verifier = verifier_of(joint=kind != "learned", **({"norm": "post", "positions": "learned"} if kind == "learned" else {}))
    made = {
        "separate": lambda: drafter_of(),
        "causal": lambda: drafter_of(decoder_layers=2, prefix_attention="causal", feed_last_token=True, soft_copy=False),
        "shared": lambda: sharing(verifier),
        "learned": lambda: sharing(verifier, norm="post", positions="learned"),
        "head": lambda: head_of(verifier),
        "medusa": lambda: heads_of(verifier),
    }
    return verifier, made[kind]()


KINDS = ["separate", "causal", "shared", "learned", "head", "medusa"]
SEARCHES = {
    "greedy": dataclasses.replace(CHAIN, strategy="greedy"),
    "chain": CHAIN,
    "fast": dataclasses.replace(CHAIN, mode="fast", output_limits=OutputLimits(min_tokens=3, max_extra_tokens=2)),
    "gad++": dataclasses.replace(CHAIN, strategy="gad++", max_logprob_gap=3.0),
    "adaptive": dataclasses.replace(CHAIN, adaptive=True),
    "fallback": dataclasses.replace(CHAIN, min_tokens_per_pass=1.5),
    "tree": TREE,
    "tree fallback": dataclasses.replace(TREE, min_tokens_per_pass=1.5, output_limits=OutputLimits(max_extra_tokens=3)),
    "draft": dataclasses.replace(CHAIN, strategy="draft"),
    "lookup": dataclasses.replace(CHAIN, drafter="lookup", ngram=2),
    "listed": dataclasses.replace(CHAIN, draft_shortlist=Shortlist(tokens=8, links=2), shortlist=Shortlist(tokens=9, links=3)),
}
NEAR = 1e-4


def skip_impossible(kind, search):
    if kind == "head" and search.tree_nodes:
        pytest.skip("a drafter that writes token after token has no trees")
    if kind == "medusa" and search.strategy == "draft":
        pytest.skip("heads read the verifier's states")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(SEARCHES))
def test_outputs_and_statistics_are_those_of_native_code(kind, name):
    """The buffers serve batches of several sizes and forget the one before."""
    search = SEARCHES[name]
    skip_impossible(kind, search)
    verifier, drafter = networks(kind)
    linked, near = links(verifier.sizes.target), 0
    native = AggressiveDecoder(drafter, verifier, lexicon=linked, frozen=True)
    with buffers_of_a_gpu():
        rounded = AggressiveDecoder(drafter, verifier, lexicon=linked)
    for count, seed in ((4, 3), (3, 1), (1, 2)):
        rows = sources(count, seed=seed)
        with buffers_of_a_gpu():
            found = rounded.decode(rounded.prepare(rows), search)
        for (one,), (other,) in zip(found, native.decode(native.prepare(rows), search), strict=True):
            if min(one.statistics["margin"], other.statistics["margin"]) < NEAR:
                near += 1
                continue
            assert (one.ids, one.steps) == (other.ids, other.steps)
            assert one.score == pytest.approx(other.score, abs=1e-4)
            for statistic in ("drafted", "accepted", "fell_back"):
                assert one.statistics[statistic] == other.statistics[statistic]
    assert near <= 1


def test_samples_are_those_of_exact_buffers():
    verifier, drafter = networks("head")
    search = dataclasses.replace(CHAIN, strategy="sample", confidence=0.3)
    exact = AggressiveDecoder(drafter, verifier)
    with buffers_of_a_gpu():
        rounded = AggressiveDecoder(drafter, verifier)
    for rows in (sources(6, seed=4), sources(3, seed=2)):
        expected = exact.decode(exact.prepare(rows), search)
        with buffers_of_a_gpu():
            found = rounded.decode(rounded.prepare(rows), search)
        assert [one.ids for (one,) in found] == [one.ids for (one,) in expected]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["greedy", "chain", "gad++", "adaptive", "tree", "draft", "lookup", "sample"])
def test_neither_start_nor_pass_waits_for_the_host(kind, name):
    search = dataclasses.replace(CHAIN, strategy="sample") if name == "sample" else SEARCHES[name]
    search = dataclasses.replace(search, shortlist=Shortlist(tokens=9), draft_shortlist=Shortlist(tokens=9, links=0))
    skip_impossible(kind, search)
    size = Size(sentences=4, source=16, slots=32)
    verifier, drafter = (network.to("meta") for network in networks(kind))
    with torch.no_grad():
        runner = TorchDecoder(drafter, verifier, None)._runner((search, size, 16))
        with DeviceAlone():
            runner.search.start(runner.inputs)
        counts = []
        for step in runner.search.passes:
            with DeviceAlone() as calls:
                step()
            counts.append(calls.calls)
    assert runner.search.state.tokens.shape == (4, 33)
    assert len(counts) == (1 if name in ("greedy", "draft") else 2)
    assert counts[0] < 450
    assert counts[-1] < (1300 if search.tree_nodes else {"head": 2000}.get(kind, 850))


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize(("kind", "limit"), [("separate", None), *((kind, 99.0) for kind in KINDS)])
def test_passes_have_no_drafter_after_drafting_is_given_up(kind, limit, mode):
    """The limit is that of the drafter where the search states none. A host notices after four passes of a GPU."""
    verifier, drafter = networks(kind)
    lengths = OutputLimits(min_tokens=40, max_tokens=40)
    search = dataclasses.replace(CHAIN, mode=mode, min_tokens_per_pass=limit, output_limits=lengths)
    verify, draft_and_verify = DraftAndVerify.verify, DraftAndVerify.draft_and_verify
    with (
        buffers_of_a_gpu(),
        patch.object(DraftAndVerify, "verify", autospec=True, side_effect=verify) as alone,
        patch.object(DraftAndVerify, "draft_and_verify", autospec=True, side_effect=draft_and_verify) as drafted,
    ):
        decoder = AggressiveDecoder(drafter, verifier)
        decoder.decode(decoder.prepare(sources(3, seed=1)), search)
    assert drafted.call_count == 4
    assert alone.call_count > 10


@pytest.mark.parametrize(("kind", "precision"), [*((kind, "bfloat16") for kind in KINDS), ("separate", "float16")])
def test_half_precision_is_near_float32(kind, precision):
    """Drafts in half precision do not change the output; a verifier in half precision writes nearly the same."""
    verifier, drafter = networks(kind)
    decoder, engine = AggressiveDecoder(drafter, verifier), TorchDecoder(drafter, verifier, None, frozen=True)
    prepared, (greedy, chain) = decoder.prepare(sources(12, seed=2)), (SEARCHES["greedy"], CHAIN)
    limits = max_output_lengths(LIMITS, prepared.lengths, drafter.config.max_positions)

    def decoded(search, **options):
        return engine.search(prepared, dataclasses.replace(search, **options), limits, [], 1).hypotheses

    whole = decoded(greedy)
    drafted = decoded(chain, draft_precision=precision)
    assert [one.ids for one in drafted] == [one.ids for one in whole]
    half, both = (
        decoded(greedy, verifier_precision=precision),
        decoded(chain, verifier_precision=precision, draft_precision=precision),
    )
    for found in (half, both):
        equal = [(one, other) for one, other in zip(found, whole, strict=True) if one.ids == other.ids]
        assert len(equal) >= 8
        assert [one.score for one, _ in equal] == pytest.approx([other.score for _, other in equal], abs=0.3)
        assert [one.score for one, _ in equal] != [other.score for _, other in equal]


def test_half_precision_needs_a_gpu_and_keeps_counts_of_tokens():
    verifier, drafter = networks("shared")
    drafter.words.counts += 100_001
    half = dataclasses.replace(CHAIN, engine="torch", draft_precision="float16", verifier_precision="bfloat16")
    pair = Pair(drafter, verifier, frozen=True)
    assert [problem.path for problem in pair.problems(half)] == [("draft_precision",), ("verifier_precision",)]
    assert pair.drafter(half).words.counts.tolist() == drafter.words.counts.tolist()
    assert pair.drafter(half).target_embedding.weight.dtype == torch.float16
    assert pair.verifier(half).target_embedding.weight.dtype == torch.bfloat16
    moved = Pair(drafter.to("meta"), verifier.to("meta"), frozen=True)
    assert not list(moved.problems(half))
    assert not list(moved.problems(dataclasses.replace(CHAIN, draft_precision="int8")))


@pytest.mark.parametrize(("search", "kind"), [(CHAIN, DraftAndVerify), (SEARCHES["draft"], DraftOnly)])
def test_a_batch_that_does_not_fit_is_decoded_in_halves(search, kind, monkeypatch):
    """The output is that of a batch that fits."""
    verifier, drafter = networks("shared")
    rows, counts, start = sources(8, seed=6), [], kind.start

    def limited(made, inputs):
        counts.append(len(inputs.source))
        if len(inputs.source) > 2:
            raise torch.OutOfMemoryError("no memory")
        start(made, inputs)

    with buffers_of_a_gpu():
        decoder = AggressiveDecoder(drafter, verifier)
        expected = decoder.decode(decoder.prepare(rows), search)
        monkeypatch.setattr(kind, "start", limited)
        assert [one.ids for (one,) in decode_batch(decoder, rows, search)] == [one.ids for (one,) in expected]
    assert counts == [8, 4, 2, 2, 4, 2, 2]
