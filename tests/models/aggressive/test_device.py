"""Drafting and verification in buffers of fixed shapes: the results of shrinking batches, and no pass waits for the host."""

import dataclasses
from unittest.mock import patch

import pytest
import torch

from fewstep.config.options import OutputLimits, Shortlist
from fewstep.decoding import decode_batch
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.sources import max_output_lengths
from models.aggressive.decode import AggressiveDecoder
from models.aggressive.device.precision import Pair
from models.aggressive.device.program import DraftAndVerify
from models.aggressive.device.run import DeviceSearch
from models.common.device_batch import Size, buffers
from models.common.inference import inference_mode
from tests.models.aggressive.networks import drafter_of, head_of, heads_of, sharing, sources, verifier_of
from tests.models.aggressive.test_decode import links
from tests.models.common.device_alone import DeviceAlone

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
}


def device_search(drafter, verifier, lexicon=None):
    return DeviceSearch(Pair(drafter, verifier, frozen=True), lexicon)


def compare(kind, search, device, decoder, rows):
    """Compare a batch with the loop of shrinking batches, to the last statistic."""
    prepared = decoder.prepare(rows)
    limits = max_output_lengths(search.output_limits, prepared.lengths, decoder.model.config.max_positions)
    with inference_mode(decoder.model), inference_mode(decoder.verifier):
        found = device.decode(prepared, search, limits)
    expected = decoder.engines["torch"].decode(prepared, search, limits, []).hypotheses
    for one, other in zip(found, expected, strict=True):
        assert one.ids == other.ids, kind
        assert one.steps == other.steps
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.statistics.pop("margin") == pytest.approx(other.statistics.pop("margin"), abs=1e-4)
        assert one.statistics == other.statistics


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(SEARCHES))
def test_outputs_and_statistics_are_those_of_shrinking_batches(kind, name):
    """One program serves batches of several sizes and forgets the one before."""
    search = SEARCHES[name]
    if kind == "head" and search.tree_nodes:
        pytest.skip("a drafter that writes token after token has no trees")
    verifier, drafter = networks(kind)
    decoder, device = AggressiveDecoder(drafter, verifier), device_search(drafter, verifier)
    for count, seed in ((4, 3), (3, 1), (1, 2), (4, 5)):
        compare(kind, search, device, decoder, sources(count, seed=seed))


def test_a_shortlist_and_a_confidence_have_programs_too():
    verifier, drafter = networks("head")
    linked = links(verifier.sizes.target)
    decoder, device = AggressiveDecoder(drafter, verifier, lexicon=linked), device_search(drafter, verifier, linked)
    search = dataclasses.replace(CHAIN, confidence=0.3, shortlist=Shortlist(tokens=9, links=3))
    compare("head", search, device, decoder, sources(6, seed=4))


def test_searches_that_need_the_host_have_no_program():
    device = device_search(*reversed(networks("separate")))
    assert all(device.supports(search) for search in SEARCHES.values())
    for options in ({"strategy": "sample"}, {"strategy": "draft"}, {"drafter": "lookup"}, {"draft_shortlist": Shortlist(tokens=9)}):
        assert not device.supports(dataclasses.replace(CHAIN, **options))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["greedy", "chain", "gad++", "adaptive", "tree"])
def test_neither_start_nor_pass_waits_for_the_host(kind, name):
    search = dataclasses.replace(SEARCHES[name], shortlist=Shortlist(tokens=9))
    if kind == "head" and search.tree_nodes:
        pytest.skip("a drafter that writes token after token has no trees")
    size = Size(sentences=4, source=16, slots=32)
    verifier, drafter = (network.to("meta") for network in networks(kind))
    with torch.no_grad():
        batch = buffers(size, drafter.sizes.target, torch.device("meta"), shortlists=True)
        program = DraftAndVerify(drafter, verifier, search, batch, size)
        with DeviceAlone():
            program.start(batch)
        counts = []
        for step in program.passes:
            with DeviceAlone() as calls:
                step()
            counts.append(calls.calls)
    assert program.state.tokens.shape == (4, 33)
    assert len(counts) == (1 if name == "greedy" else 2)
    assert counts[0] < 450
    assert counts[-1] < (1300 if search.tree_nodes else {"head": 2000}.get(kind, 850))


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize(("kind", "limit"), [("separate", None), *((kind, 99.0) for kind in KINDS)])
def test_passes_have_no_drafter_after_drafting_is_given_up(kind, limit, mode):
    """The limit is that of the drafter where the search states none. The host notices after four passes."""
    verifier, drafter = networks(kind)
    decoder, device = AggressiveDecoder(drafter, verifier), device_search(drafter, verifier)
    lengths = OutputLimits(min_tokens=40, max_tokens=40)
    search = dataclasses.replace(CHAIN, mode=mode, min_tokens_per_pass=limit, output_limits=lengths)
    verify, draft_and_verify = DraftAndVerify.verify, DraftAndVerify.draft_and_verify
    with (
        patch.object(DraftAndVerify, "verify", autospec=True, side_effect=verify) as alone,
        patch.object(DraftAndVerify, "draft_and_verify", autospec=True, side_effect=draft_and_verify) as drafted,
    ):
        compare(kind, search, device, decoder, sources(3, seed=1))
    assert drafted.call_count == 4
    assert alone.call_count > 10


@pytest.mark.parametrize(("kind", "precision"), [*((kind, "bfloat16") for kind in KINDS), ("separate", "float16")])
def test_half_precision_is_near_float32(kind, precision):
    """Drafts in half precision do not change the output; a verifier in half precision writes nearly the same."""
    verifier, drafter = networks(kind)
    decoder, device = AggressiveDecoder(drafter, verifier), device_search(drafter, verifier)
    prepared, (greedy, chain) = decoder.prepare(sources(12, seed=2)), (SEARCHES["greedy"], CHAIN)
    limits = max_output_lengths(LIMITS, prepared.lengths, drafter.config.max_positions)

    def decoded(search, **options):
        with inference_mode(drafter), inference_mode(verifier):
            return device.decode(prepared, dataclasses.replace(search, **options), limits)

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
    assert pair.networks(half)[0].words.counts.tolist() == drafter.words.counts.tolist()
    assert [network.target_embedding.weight.dtype for network in pair.networks(half)] == [torch.float16, torch.bfloat16]
    moved = Pair(drafter.to("meta"), verifier.to("meta"), frozen=True)
    assert not list(moved.problems(half))
    assert not list(moved.problems(dataclasses.replace(CHAIN, draft_precision="int8")))


def test_a_batch_that_does_not_fit_is_decoded_in_halves(monkeypatch):
    """The output is that of a batch that fits."""
    verifier, drafter = networks("shared")
    decoder, device, rows = AggressiveDecoder(drafter, verifier), device_search(drafter, verifier), sources(8, seed=6)
    sizes, start = [], DraftAndVerify.start

    def limited(program, inputs):
        sizes.append(len(inputs.source))
        if len(inputs.source) > 2:
            raise torch.OutOfMemoryError("no memory")
        start(program, inputs)

    def decode(prepared, search, threads=None):
        limits = max_output_lengths(search.output_limits, prepared.lengths, drafter.config.max_positions)
        with inference_mode(drafter), inference_mode(verifier):
            return [[one] for one in device.decode(prepared, search, limits)]

    expected = decode(decoder.prepare(rows), CHAIN)
    monkeypatch.setattr(DraftAndVerify, "start", limited)
    monkeypatch.setattr(decoder, "decode", decode)
    assert [one.ids for (one,) in decode_batch(decoder, rows, CHAIN)] == [one.ids for (one,) in expected]
    assert sizes == [8, 4, 2, 2, 4, 2, 2]
