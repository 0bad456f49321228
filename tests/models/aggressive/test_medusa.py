"""Heads on a verifier: their objective, their drafts, and drafts in chains and trees by native code."""

import dataclasses
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep import Lexicon
from fewstep.config.options import OutputLimits, Shortlist
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.families.stepwise.config import StepwiseSearch
from models.aggressive import medusa_loss
from models.aggressive.decode import AggressiveDecoder, DraftDecoder
from models.aggressive.family import FAMILY
from models.aggressive.medusa_loss import loss
from models.stepwise.decode import StepwiseDecoder
from models.training.batch import collate
from tests.models.aggressive.networks import drafter_of, head_of, heads_of, sharing, sources, verifier_of

frozen = partial(AggressiveDecoder, frozen=True)
LIMITS = OutputLimits(max_extra_tokens=12)
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


def search(**options):
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
    how = search(draft_width=width, tree_nodes=nodes, tree_branches=branches, verifier_precision=precision, **options)
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
    for one, other in zip(run(slow, inputs, search(**options)), run(fast, inputs, search(**options)), strict=True):
        if min(one.statistics["margin"], other.statistics["margin"]) < 1e-4:
            continue
        assert (one.ids, one.steps) == (other.ids, other.steps)
        for name in ("drafted", "accepted", "proposed_at", "accepted_at"):
            assert one.statistics[name] == other.statistics[name]
    assert fast.record.accepted > 0 or kind == "block"


def test_an_output_does_not_depend_on_company_or_threads():
    verifier, drafter = DRAFTERS["medusa"]
    inputs, decoder, how = sources(16), frozen(drafter, verifier), search(tree_nodes=8)
    together = run(decoder, inputs, how)
    assert [run(decoder, [one], how)[0] for one in inputs] == together
    prepared = decoder.prepare(inputs[::-1])
    assert [one for (one,) in decoder.decode(prepared, how, threads=3)][::-1] == together


def test_a_tree_is_accepted_at_least_as_far_as_its_own_chain():
    """A tree that contains the most probable path accepts what the chain accepts, or more, in every first block."""
    verifier, drafter = DRAFTERS["medusa"]
    inputs, decoder = sources(40), frozen(drafter, verifier)
    chain, tree = (run(decoder, inputs, search(tree_nodes=nodes)) for nodes in (0, 200))
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
    found = loss(model, batch, 0.0)
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
    assert 0 < count == int(loss(model, batch, 0.0).statistics["accepted"])


def test_validation_counts_tokens_that_heads_rank_among_the_best(monkeypatch):
    monkeypatch.setattr(medusa_loss, "RANKED_SLOTS", 7)
    model, batch = heads_of(VERIFIER), batch_of(30, 7)
    states = model.verifier_states(batch.target, model.encode(batch.source, batch.source_lengths))
    best = model.logits(model.drafting_states(states)).topk(3).indices
    found = loss(model, batch, 0.0).statistics
    for head in range(1, 5):
        slots = [(row, slot) for row, length in enumerate(batch.target_lengths.tolist()) for slot in range(length - head)]
        for count in (1, 3):
            ranked = sum(bool((best[row, slot, head - 1, :count] == batch.target[row, slot + head]).any()) for row, slot in slots)
            assert int(found[f"top{count}_{head}"]) == ranked
        assert int(found[f"top3_{head}"]) > int(found[f"top1_{head}"])
    assert not any(name.startswith("top3") for name in loss(model.train(), batch, 0.0).statistics)


def test_heads_begin_as_the_verifier_and_change_nothing_else_unless_asked_to():
    fresh = FAMILY.build(dataclasses.replace(heads_of(VERIFIER).config, dropout=0.5), VERIFIER.sizes)
    states = torch.randn(2, 3, 32)
    assert torch.equal(fresh.eval().drafting_states(states), states[:, :, None].expand(-1, -1, 4, -1))
    for train_verifier in (False, True):
        model = heads_of(VERIFIER, train_verifier=train_verifier, dropout=0.5).train()
        loss(model, batch_of(6, 7), 0.1).total.backward()
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
        found = run(kind(model, verifier_of(seed=1)), inputs, search(draft_width=2))
        assert [one.ids for one in found] == [one.ids for one in expected]


def test_validation_in_training_counts_passes_of_the_verifier():
    verifier, model = DRAFTERS["medusa"]
    inputs, decoder = sources(12), DraftDecoder(model, verifier)
    found = run(decoder, inputs, search())
    assert [one.ids for one in found] == [
        one.ids for one in run(AggressiveDecoder(model, verifier), inputs, search(strategy="greedy"))
    ]
    assert sum(one.steps for one in found) < sum(len(one.ids) + 1 for one in found)


def test_searches_that_heads_cannot_serve_are_refused():
    verifier, model = DRAFTERS["medusa"]
    for how, message in (
        (search(strategy="draft"), "strategy: expected a strategy that verifies for drafting: medusa"),
        (search(draft_width=5), "draft_width: expected at most the drafter's 4 heads, got 5"),
        (search(confidence=0.5), "confidence: expected 0 for a drafter that fills blocks at once"),
    ):
        for kind in (frozen, AggressiveDecoder):
            with pytest.raises(ValueError, match=message):
                run(kind(model, verifier), [[8]], how)
    with pytest.raises(ValueError, match="strategy: expected one that verifies"):
        run(DraftDecoder(model), [[8]], search())


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
        outputs = run(engine(heads, VERIFIER), inputs, search(min_tokens_per_pass=stated))
        found[stated] = [(one.ids, one.steps) for one in outputs]
    assert found[None] == found[1.2]
    assert found[None] != found[1.5]
    assert [ids for ids, _ in found[None]] == [ids for ids, _ in found[1.5]] == [ids for ids, _ in found[0.0]]
    steps = {stated: sum(count for _, count in outputs) for stated, outputs in found.items()}
    assert steps[0.0] <= steps[1.2] < steps[1.5], "sentences between the limits go on with drafts"
