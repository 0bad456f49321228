"""Drafting and verification in buffers of rounded sizes, and by heads on a verifier: the results of native code."""

import copy
import dataclasses
import functools
from functools import partial
from unittest.mock import patch

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from fewstep import Lexicon
from fewstep.config.options import OutputLimits, Shortlist
from fewstep.decoding import decode_batch
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.sources import max_output_lengths
from models.aggressive import on_verifier
from models.aggressive.decode import AggressiveDecoder, DraftDecoder
from models.aggressive.family import FAMILY
from models.aggressive.on_verifier import medusa_loss
from models.aggressive.precision import Pair
from models.aggressive.run import TorchDecoder
from models.aggressive.search import DraftAndVerify, DraftOnly
from models.common.buffers import Size
from models.stepwise.decode import StepwiseDecoder
from models.training.batch import collate
from tests.models.aggressive.networks import drafter_of, head_of, heads_of, sharing, sources, verifier_of
from tests.models.aggressive.test_decode import links
from tests.models.common.device_alone import DeviceAlone, buffers_of_a_gpu

# ---- drafting and verification in buffers of rounded sizes: the results of native code, and no pass waits for the host


LIMITS = OutputLimits(max_extra_tokens=12)
CHAIN = AggressiveSearch(min_tokens_per_pass=0.0, output_limits=LIMITS)
TREE = dataclasses.replace(CHAIN, tree_nodes=7, tree_branches=3)


@functools.cache
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
OTHER_DRAFTS = {
    "sample": dataclasses.replace(CHAIN, strategy="sample"),
    "model": dataclasses.replace(CHAIN, drafter="draft_model"),
    "model tree": dataclasses.replace(TREE, drafter="draft_model"),
    "model sample": dataclasses.replace(CHAIN, strategy="sample", drafter="draft_model"),
    "jacobi": dataclasses.replace(CHAIN, drafter="jacobi"),
}
NEAR = 1e-4


def possible(kind, search):
    """Heads read the verifier's states."""
    return not (kind == "medusa" and search.strategy == "draft")


@given(st.sampled_from(KINDS), st.sampled_from(sorted(SEARCHES)))
def test_outputs_and_statistics_are_those_of_native_code(kind, name):
    """The buffers serve batches of several sizes and forget the one before."""
    search = SEARCHES[name]
    assume(possible(kind, search))
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


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, name) for kind in KINDS for name in ("chain", "tree") if possible(kind, SEARCHES[name])),
        *(("separate", name) for name in ("greedy", "gad++", "adaptive", "draft", "lookup", *OTHER_DRAFTS)),
    ],
)
def test_neither_start_nor_pass_waits_for_the_host(kind, name):
    search = (SEARCHES | OTHER_DRAFTS)[name]
    search = dataclasses.replace(search, shortlist=Shortlist(tokens=9), draft_shortlist=Shortlist(tokens=9, links=0))
    size = Size(sentences=4, source=16, slots=32)
    verifier, drafter = (copy.deepcopy(network).to("meta") for network in networks(kind))
    with torch.no_grad():
        runner = TorchDecoder(drafter, verifier, None, copy.deepcopy(verifier))._runner((search, size, 16))
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
    by_token = kind == "head" or search.drafter == "draft_model"
    chain, tree = (2000, 2500) if by_token else (850, 1300)
    assert counts[-1] < (tree if search.tree_nodes else chain)


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
    drafter = copy.deepcopy(drafter)
    drafter.words.counts += 100_001
    half = dataclasses.replace(CHAIN, engine="torch", draft_precision="float16", verifier_precision="bfloat16")
    pair = Pair(drafter, verifier, frozen=True)
    assert [problem.path for problem in pair.problems(half)] == [("draft_precision",), ("verifier_precision",)]
    assert pair.drafter(half).words.counts.tolist() == drafter.words.counts.tolist()
    assert pair.drafter(half).target_embedding.weight.dtype == torch.float16
    assert pair.verifier(half).target_embedding.weight.dtype == torch.bfloat16
    moved = Pair(drafter.to("meta"), copy.deepcopy(verifier).to("meta"), frozen=True)
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


# ---- heads on a verifier: their objective, their drafts, and drafts in chains and trees by native code


frozen = partial(AggressiveDecoder, frozen=True)
VERIFIER, POST = verifier_of(), verifier_of(joint=False, norm="post", positions="learned")
DRAFTERS = {
    "medusa": (VERIFIER, heads_of(VERIFIER)),
    "post": (POST, heads_of(POST, norm="post", positions="learned", draft_width=6)),
    "block": (VERIFIER, drafter_of(decoder_layers=2)),
    "prefix": (VERIFIER, sharing(VERIFIER, decoder_layers=2, prefix_attention="causal")),
}
LINKS = torch.randint(7, 19, (23, 4), generator=torch.Generator().manual_seed(1)).sort(1).values
"""Translations of each source token, distinct in a row."""
LINKS[:, 1:][LINKS[:, 1:] == LINKS[:, :-1]] = -1


def short_search(**options):
    return AggressiveSearch(**{"output_limits": LIMITS, "min_tokens_per_pass": 0.0, **options})


def run(decoder, inputs, how):
    return [ranked[0] for ranked in decoder.decode(decoder.prepare(inputs), how)]


def batch_of(count, length):
    rows = [source or [8] for source in sources(count, length)]
    return collate(range(count), rows, rows[::-1])


@given(
    st.sampled_from(sorted(DRAFTERS)),
    st.integers(1, 4),
    st.sampled_from([0, 0, 1, 2, 5, 12]),
    st.sampled_from([1, 2, 5, 60]),
    st.integers(1, 12),
    st.sampled_from(
        [{}, {"draft_precision": "int8"}, {"draft_shortlist": Shortlist(tokens=9, links=3)}, {"min_tokens_per_pass": 1.5}]
    ),
    st.sampled_from(["float32", "int8"]),
)
def test_native_drafts_leave_greedy_decoding_as_it_is_to_the_last_bit(kind, width, nodes, branches, count, options, precision):
    """Chains and trees of heads and of block drafters, at drawn depths, sizes, branches, batches and precisions."""
    verifier, drafter = DRAFTERS[kind]
    inputs, lexicon = sources(count, seed=count), Lexicon(torch.arange(7).numpy(), LINKS.numpy())
    expected = run(StepwiseDecoder(verifier, frozen=True), inputs, StepwiseSearch(output_limits=LIMITS, precision=precision))
    how = short_search(draft_width=width, tree_nodes=nodes, tree_branches=branches, verifier_precision=precision, **options)
    found = run(frozen(drafter, verifier, None, lexicon), inputs, how)
    for name in ("ids", "score"):
        assert [getattr(one, name) for one in found] == [getattr(one, name) for one in expected]
    assert [one.statistics["margin"] for one in found] == [one.statistics["margin"] for one in expected]
    assert all(one.steps <= other.steps for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("kind", sorted(DRAFTERS))
@pytest.mark.parametrize("options", [{}, {"tree_nodes": 7}, {"tree_nodes": 12, "tree_branches": 30}, {"strategy": "gad++"}])
def test_torch_and_native_code_find_the_same(kind, options):
    verifier, drafter = DRAFTERS[kind]
    inputs = sources(24)
    fast, slow = frozen(drafter, verifier), AggressiveDecoder(drafter, verifier)
    for one, other in zip(run(slow, inputs, short_search(**options)), run(fast, inputs, short_search(**options)), strict=True):
        if min(one.statistics["margin"], other.statistics["margin"]) < 1e-4:
            continue
        assert (one.ids, one.steps) == (other.ids, other.steps)
        for name in ("drafted", "accepted", "proposed_at", "accepted_at"):
            assert one.statistics[name] == other.statistics[name]
    assert fast.record.accepted > 0 or kind == "block"


def test_an_output_does_not_depend_on_company_or_threads():
    verifier, drafter = DRAFTERS["medusa"]
    inputs, decoder, how = sources(16), frozen(drafter, verifier), short_search(tree_nodes=8)
    together = run(decoder, inputs, how)
    assert [run(decoder, [one], how)[0] for one in inputs] == together
    prepared = decoder.prepare(inputs[::-1])
    assert [one for (one,) in decoder.decode(prepared, how, threads=3)][::-1] == together


def test_a_tree_is_accepted_at_least_as_far_as_its_own_chain():
    """A tree that contains the most probable path accepts what the chain accepts, or more, in every first block."""
    verifier, drafter = DRAFTERS["medusa"]
    inputs, decoder = sources(40), frozen(drafter, verifier)
    chain, tree = (run(decoder, inputs, short_search(tree_nodes=nodes)) for nodes in (0, 200))
    assert sum(one.steps for one in tree) < sum(one.steps for one in chain)


@pytest.mark.parametrize("decay", [0.8, 0.5])
def test_the_loss_is_the_decayed_sum_of_the_heads(decay):
    model, batch = heads_of(VERIFIER, head_loss_decay=decay), batch_of(6, 7)
    states = model.verifier_states(batch.target, model.encode(batch.source, batch.source_lengths))
    log_probs = model.logits(model.drafting_states(states)).log_softmax(3)
    expected = [0.0] * 4
    for row, length in enumerate(batch.target_lengths.tolist()):
        for slot in range(length):
            for head in range(1, 5):
                if slot + head < length:
                    expected[head - 1] -= log_probs[row, slot, head - 1, batch.target[row, slot + head]].item()
    found = medusa_loss(model, batch, 0.0)
    assert found.total.item() == pytest.approx(sum(decay ** (head + 1) * nll for head, nll in enumerate(expected)), rel=1e-5)
    assert float(found.statistics["nll"]) == pytest.approx(expected[0], rel=1e-5)
    assert int(found.count) == int(batch.target_lengths.sum())


def test_accepted_counts_heads_that_are_right_with_all_before_them():
    """Where the target is what the verifier writes, a pass after each slot would accept these."""
    model, batch = heads_of(VERIFIER), batch_of(30, 7)
    states = model.verifier_states(batch.target, model.encode(batch.source, batch.source_lengths))
    best = model.logits(model.drafting_states(states)).argmax(3)
    count = 0
    for row, length in enumerate(batch.target_lengths.tolist()):
        for slot in range(length):
            for head in range(1, 5):
                if slot + head >= length or best[row, slot, head - 1] != batch.target[row, slot + head]:
                    break
                count += 1
    assert 0 < count == int(medusa_loss(model, batch, 0.0).statistics["accepted"])


def test_validation_counts_tokens_that_heads_rank_among_the_best(monkeypatch):
    monkeypatch.setattr(on_verifier, "RANKED_SLOTS", 7)
    model, batch = heads_of(VERIFIER), batch_of(30, 7)
    states = model.verifier_states(batch.target, model.encode(batch.source, batch.source_lengths))
    best = model.logits(model.drafting_states(states)).topk(3).indices
    found = medusa_loss(model, batch, 0.0).statistics
    for head in range(1, 5):
        slots = [(row, slot) for row, length in enumerate(batch.target_lengths.tolist()) for slot in range(length - head)]
        for count in (1, 3):
            ranked = sum(bool((best[row, slot, head - 1, :count] == batch.target[row, slot + head]).any()) for row, slot in slots)
            assert int(found[f"top{count}_{head}"]) == ranked
        assert int(found[f"top3_{head}"]) > int(found[f"top1_{head}"])
    assert not any(name.startswith("top3") for name in medusa_loss(model.train(), batch, 0.0).statistics)


def test_heads_begin_as_the_verifier_and_change_nothing_else_unless_asked_to():
    fresh = FAMILY.build(dataclasses.replace(heads_of(VERIFIER).config, dropout=0.5), VERIFIER.sizes)
    states = torch.randn(2, 3, 32)
    assert torch.equal(fresh.eval().drafting_states(states), states[:, :, None].expand(-1, -1, 4, -1))
    for train_verifier in (False, True):
        model = heads_of(VERIFIER, train_verifier=train_verifier, dropout=0.5).train()
        medusa_loss(model, batch_of(6, 7), 0.1).total.backward()
        learning = {name for name, weight in model.named_parameters() if weight.grad is not None}
        assert {"medusa.weight", "medusa.bias"} <= learning
        assert any(name.startswith(("encoder.", "decoder.")) for name in learning) == train_verifier
        assert model.encoder.training == train_verifier


def test_a_trained_verifier_is_the_one_that_verifies():
    other = verifier_of(seed=9)
    model = heads_of(other, train_verifier=True)
    model.load_state_dict({**model.state_dict(), **other.state_dict()})
    inputs = sources(12)
    expected = run(StepwiseDecoder(verifier_of(seed=9), frozen=True), inputs, StepwiseSearch(output_limits=LIMITS))
    for kind in (frozen, AggressiveDecoder):
        found = run(kind(model, verifier_of(seed=1)), inputs, short_search(draft_width=2))
        assert [one.ids for one in found] == [one.ids for one in expected]


def test_validation_in_training_counts_passes_of_the_verifier():
    verifier, model = DRAFTERS["medusa"]
    inputs, decoder = sources(12), DraftDecoder(model, verifier)
    found = run(decoder, inputs, short_search())
    assert [one.ids for one in found] == [
        one.ids for one in run(AggressiveDecoder(model, verifier), inputs, short_search(strategy="greedy"))
    ]
    assert sum(one.steps for one in found) < sum(len(one.ids) + 1 for one in found)


def test_searches_that_heads_cannot_serve_are_refused():
    verifier, model = DRAFTERS["medusa"]
    for how, message in (
        (short_search(strategy="draft"), "strategy: expected a strategy that verifies for drafting: medusa"),
        (short_search(draft_width=5), "draft_width: expected at most the drafter's 4 heads, got 5"),
        (short_search(confidence=0.5), "confidence: expected 0 for a drafter that fills blocks at once"),
    ):
        for kind in (frozen, AggressiveDecoder):
            with pytest.raises(ValueError, match=message):
                run(kind(model, verifier), [[8]], how)
    with pytest.raises(ValueError, match="strategy: expected one that verifies"):
        run(DraftDecoder(model), [[8]], short_search())


def test_options_that_do_not_apply_are_refused():
    sizes = {"encoder": "shared", "drafting": "medusa"}
    assert not list(AggressiveConfig(**sizes).problems())
    found = [problem.path for problem in AggressiveConfig(**sizes, soft_copy=False, glancing_ratio=0.1).problems()]
    assert found == [("soft_copy",), ("glancing_ratio",)]
    assert [problem.path for problem in AggressiveConfig(train_verifier=True).problems()] == [("train_verifier",)]


def test_drafting_stops_at_the_break_even_of_the_drafter():
    """A drafter that never guesses right brings one token a pass: it stops, and one whose search always drafts does not."""
    block, heads = drafter_of(), heads_of(VERIFIER)
    for drafter, least in ((block, 1.5), (heads, 1.2), (head_of(VERIFIER), 1.5)):
        assert AggressiveSearch().with_fallback(drafter.config).min_tokens_per_pass == least
        for stated in (0.0, 1.3):
            how = AggressiveSearch(min_tokens_per_pass=stated)
            assert how.with_fallback(drafter.config) == how
    assert AggressiveSearch(drafter="lookup").with_fallback(heads.config).min_tokens_per_pass == 1.5


@pytest.mark.parametrize("engine", [frozen, AggressiveDecoder])
def test_heads_with_a_gain_below_that_of_other_drafters_keep_drafting(engine):
    """Searches without a stated limit are those with the limit of the drafter, natively and in torch."""
    heads, inputs = heads_of(VERIFIER), sources(60, 12)
    found = {}
    for stated in (None, 0.0, 1.2, 1.5):
        outputs = run(engine(heads, VERIFIER), inputs, short_search(min_tokens_per_pass=stated))
        found[stated] = [(one.ids, one.steps) for one in outputs]
    assert found[None] == found[1.2]
    assert found[None] != found[1.5]
    assert [ids for ids, _ in found[None]] == [ids for ids, _ in found[1.5]] == [ids for ids, _ in found[0.0]]
    steps = {stated: sum(count for _, count in outputs) for stated, outputs in found.items()}
    assert steps[0.0] <= steps[1.2] < steps[1.5], "sentences between the limits go on with drafts"
