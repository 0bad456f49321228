"""Draft and verify against greedy decoding, in torch and native."""

import dataclasses
import itertools
from functools import partial

import fewstep_native
import numpy as np
import pytest
import torch

from fewstep import Lexicon
from fewstep.config.options import OutputLimits, Sampling, Shortlist
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.aggressive.decoder import DraftSystem
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.translation import Hypothesis
from fewstep.vocabulary import EOS, PAD
from models.aggressive.decode import AggressiveDecoder, DraftDecoder
from models.aggressive.on_verifier import DraftHead
from models.stepwise import decode as stepwise
from tests.models.aggressive.networks import drafter_of, head_of, sharing, sources, verifier_of

frozen = partial(AggressiveDecoder, frozen=True)
"""A decoder of finished networks."""

NEAR = 1e-4


def search(strategy="gad", **options):
    return AggressiveSearch(
        strategy=strategy, **{"output_limits": OutputLimits(max_extra_tokens=12), "min_tokens_per_pass": 0.0, **options}
    )


def suited(how, drafter):
    """The search without what only drafters have that write token after token."""
    return how if isinstance(drafter, DraftHead) else dataclasses.replace(how, confidence=0.0)


def run(decoder, inputs, how):
    how = suited(how, decoder.model) if isinstance(how, AggressiveSearch) else how
    return [ranked[0] for ranked in decoder.decode(decoder.prepare(inputs), how)]


def greedy(verifier, inputs, **options):
    """Return the output of the verifier alone, decoded natively."""
    decoder = stepwise.StepwiseDecoder(verifier, frozen=True)
    return run(decoder, inputs, StepwiseSearch(**{"output_limits": OutputLimits(max_extra_tokens=12), **options}))


def pairs():
    """Return verifiers and drafters of all kinds."""
    pre = verifier_of()
    yield pre, drafter_of()
    yield pre, drafter_of(decoder_layers=3, prefix_attention="causal", layer_positions=False)
    yield pre, drafter_of(decoder_layers=2, soft_copy=False)
    yield pre, drafter_of(copy_scale=False)
    yield pre, sharing(pre)
    yield pre, sharing(pre, decoder_layers=2, prefix_attention="causal")
    yield pre, sharing(pre, decoder_layers=1, prefix_attention="causal", feed_last_token=True)
    post = verifier_of(joint=False, norm="post", positions="learned")
    yield post, drafter_of(joint=False, norm="post", positions="learned", width=16, encoder_layers=1)
    yield post, sharing(post, norm="post", positions="learned")
    yield pre, head_of(pre)
    yield post, head_of(post, norm="post", positions="learned")


def links(count=23):
    """Reserved and some other words, and what words of a source are linked to: up to five words each, in random order."""
    draw = torch.Generator().manual_seed(3)
    found = torch.full((23, 32), -1)
    for word in range(23):
        some = 7 + torch.randperm(count - 7, generator=draw)[: word % 6]
        found[word, : len(some)] = some
    return Lexicon(np.array([*range(7), 12, 9, 17, 15]), found.numpy())


PAIRS = list(pairs())
KINDS = [
    "separate",
    "deep",
    "masks",
    "unscaled",
    "shared",
    "shared-prefix",
    "last-token",
    "post",
    "post-shared",
    "head",
    "post-head",
]


@pytest.mark.parametrize("pair", PAIRS, ids=KINDS)
def test_a_verifier_in_8_bits_writes_what_its_greedy_search_in_8_bits_does(pair):
    verifier, drafter = pair
    inputs, decoder = sources(24), frozen(drafter, verifier)
    expected = greedy(verifier, inputs, precision="int8")
    assert [one.score for one in expected] != [one.score for one in greedy(verifier, inputs)]
    for options in ({}, {"draft_precision": "int8"}, {"strategy": "greedy"}, {"drafter": "lookup"}):
        found = run(decoder, inputs, search(**options, verifier_precision="int8"))
        assert [one.ids for one in found] == [one.ids for one in expected]
        assert [one.score for one in found] == [one.score for one in expected]
    for refusing, how in ((AggressiveDecoder(drafter, verifier), search()), (decoder, search("sample"))):
        with pytest.raises(ValueError, match="verifier_precision: expected float32 "):
            run(refusing, inputs, dataclasses.replace(how, verifier_precision="int8"))


@pytest.mark.parametrize("pair", PAIRS, ids=KINDS)
def test_a_verifier_with_a_list_writes_what_its_greedy_search_with_that_list_does(pair):
    verifier, drafter = pair
    inputs, words = sources(24), links(verifier.sizes.target)
    decoder, how = frozen(drafter, verifier, None, words), {"shortlist": Shortlist(tokens=9, links=1)}
    alone = stepwise.StepwiseDecoder(verifier, frozen=True, lexicon=words)
    for precision in ("float32", "int8"):
        expected = run(alone, inputs, StepwiseSearch(output_limits=OutputLimits(max_extra_tokens=12), precision=precision, **how))
        assert sum(one.ids != other.ids for one, other in zip(expected, greedy(verifier, inputs), strict=True)) > 10
        ways = (
            {},
            {"draft_precision": "int8"},
            {"strategy": "greedy"},
            {"drafter": "lookup"},
            {"draft_shortlist": Shortlist(tokens=8, links=3)},
        )
        for options in ways:
            found = run(decoder, inputs, search(**options, verifier_precision=precision, **how))
            assert [one.ids for one in found] == [one.ids for one in expected]
            assert [one.score for one in found] == [one.score for one in expected]
    with pytest.raises(ValueError, match="shortlist: expected none for a system without candidate tables"):
        run(frozen(drafter, verifier), inputs, search(**how))


@pytest.mark.parametrize("pair", PAIRS, ids=KINDS)
def test_drafts_in_8_bits_are_nearly_those_in_floats(pair):
    decoder, inputs = frozen(pair[1], pair[0]), sources(24)
    alone = {"draft_width": 1, "output_limits": OutputLimits(max_extra_tokens=12, max_tokens=3)}
    whole = run(decoder, inputs, search("draft", **alone))
    narrow = run(decoder, inputs, search("draft", draft_precision="int8", **alone))
    same = [(one.score, other.score) for one, other in zip(whole, narrow, strict=True) if one.ids == other.ids]
    assert len(same) >= 22
    # Without VNNI values have 7 bits, whose rounding errors are twice as large.
    most = 0.1 if fewstep_native.LEVEL in ("x86-64-v2", "x86-64-v3", "x86-64-v4") else 0.05
    assert all(one == pytest.approx(other, abs=most) for one, other in same)
    assert all(one != other for one, other in same)


@pytest.mark.parametrize("pair", PAIRS, ids=KINDS)
@pytest.mark.parametrize(
    "how",
    [
        search(),
        search(mode="fast", draft_width=7),
        search("gad++"),
        search("gad++", top_k=5, max_logprob_gap=3.0, require_top1_eos=False),
        search("draft"),
        search("draft", draft_width=3, output_limits=OutputLimits(max_extra_tokens=12, min_tokens=3)),
        search("greedy"),
        search(adaptive=True, min_tokens_per_pass=1.5),
        search(drafter="lookup", output_limits=OutputLimits(max_extra_tokens=12, allow_unknown=True)),
        search(confidence=0.4, draft_shortlist=Shortlist(tokens=12, links=0), draft_width=6),
        search(draft_shortlist=Shortlist(tokens=8, links=2)),
        search(confidence=0.4, draft_shortlist=Shortlist(tokens=9, links=32), draft_width=6),
        search(output_limits=OutputLimits(max_extra_tokens=0)),
        search(output_limits=OutputLimits(max_extra_tokens=12, max_tokens=1)),
        search(shortlist=Shortlist(tokens=9, links=3)),
        search("gad++", top_k=4, max_logprob_gap=2.0, shortlist=Shortlist(tokens=10, links=2)),
    ],
    ids=lambda how: f"{how.label}-{how.mode}",
)
def test_torch_and_native_code_find_the_same(pair, how):
    verifier, drafter = pair
    inputs = sources(12)
    linked = links(verifier.sizes.target)
    slow, fast = AggressiveDecoder(drafter, verifier, None, linked), frozen(drafter, verifier, None, linked)
    near = 0
    for one, other in zip(run(slow, inputs, how), run(fast, inputs, how), strict=True):
        if min(one.statistics["margin"], other.statistics["margin"]) < NEAR:
            near += 1
            continue
        assert one.ids == other.ids
        assert one.steps == other.steps
        assert one.score == pytest.approx(other.score, abs=1e-4)
        for name in ("drafted", "accepted", "fell_back"):
            assert one.statistics[name] == other.statistics[name]
    assert near <= 2
    if near == 0:
        assert slow.record.proposed_at[:1] == fast.record.proposed_at[:1]
        assert sum(slow.record.accepted_at) == sum(fast.record.accepted_at)


def drafts_of(pair, lexicon, **options):
    """Return the numbers of tokens that were drafted and accepted for each source."""
    found = run(frozen(pair[1], pair[0], None, lexicon), sources(24), search(draft_width=6, **options))
    return [(one.statistics["drafted"], one.statistics["accepted"]) for one in found]


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_shortlists_choose_as_longer_ones_with_the_same_tokens_do(precision):
    """Words that are linked to a source stand in for common ones; a source without links has the common ones alone."""
    nothing, differ = torch.full((23, 32), -1), 0
    for pair in PAIRS:
        everything = pair[1].words.most_common(23)
        rest = nothing.clone()
        rest[:, : len(everything) - 9] = everything[9:]
        how = {"draft_precision": precision}
        lexicons = [Lexicon(np.arange(7), linked.numpy()) for linked in (rest, nothing)]
        with_rest, without = (
            drafts_of(pair, lexicon, draft_shortlist=Shortlist(tokens=9, links=32), **how) for lexicon in lexicons
        )
        assert with_rest == drafts_of(pair, None, draft_shortlist=Shortlist(tokens=23, links=0), **how)
        assert without == drafts_of(pair, None, draft_shortlist=Shortlist(tokens=9, links=0), **how)
        differ += with_rest != without
    assert differ >= 5


@pytest.mark.parametrize("strategy", ["gad", "gad++", "draft", "greedy"])
@pytest.mark.parametrize("pair", [PAIRS[1], PAIRS[10]], ids=[KINDS[1], KINDS[10]])
def test_an_output_does_not_depend_on_company(pair, strategy):
    verifier, drafter = pair
    inputs = sources(16)
    decoder = frozen(drafter, verifier)
    together = run(decoder, inputs, search(strategy))
    assert run(decoder, inputs[::-1], search(strategy))[::-1] == together
    assert [run(decoder, [one], search(strategy))[0] for one in inputs] == together
    torch.set_num_threads(3)
    assert run(decoder, inputs, search(strategy)) == together


def test_only_banned_tokens_drafted_is_nothing_drafted():
    """The other system writes only pads, BOS, unknown tokens and masks."""
    verifier, drafter = PAIRS[0]
    inputs = sources(8)

    class Specials:
        def prepare(self, rows, how=None, threads=None):
            return rows

        def decode(self, rows, how, threads=None):
            return [[Hypothesis([0, 1, 3, 4, 5, 6] * 3, 0.0, 0)] for _ in rows]

    for kind in (frozen, AggressiveDecoder):
        found = run(kind(drafter, verifier, DraftSystem(Specials(), None, 99)), inputs, search(drafter="system", ngram=1))
        assert [one.ids for one in found] == [one.ids for one in greedy(verifier, inputs)]


@pytest.mark.parametrize("kind", [frozen, AggressiveDecoder])
def test_sources_are_cut_for_a_draft_system_of_shorter_ones_alone(kind):
    verifier, drafter = PAIRS[0]
    inputs, seen = sources(8), []

    class Copier:
        def prepare(self, rows, how=None, threads=None):
            seen.extend(rows)
            return rows

        def decode(self, rows, how, threads=None):
            return [[Hypothesis(list(row), 0.0, 0)] for row in rows]

    found = run(kind(drafter, verifier, DraftSystem(Copier(), None, 3)), inputs, search(drafter="system", ngram=1))
    assert [list(row) for row in seen] == [row[:3] for row in inputs]
    assert max(map(len, inputs)) > 3
    assert [one.ids for one in found] == [one.ids for one in greedy(verifier, inputs)]


@pytest.mark.parametrize("kind", [frozen, AggressiveDecoder])
@pytest.mark.parametrize("make", [drafter_of, lambda: head_of(verifier_of())], ids=["parallel", "head"])
@pytest.mark.parametrize("words", [None, 9])
def test_a_drafter_that_would_always_write_a_pad_is_passed_over_to_its_next_word(kind, make, words):
    verifier, inputs, drafter = verifier_of(), sources(8), make()
    towards = drafter.target_embedding.weight[PAD].detach()
    last = "head" if isinstance(drafter, DraftHead) else "decoder"
    drafter.get_parameter(f"{last}.norm.bias").data.add_(100 * towards / towards.norm())
    found = run(
        kind(drafter, verifier),
        inputs,
        search(
            draft_shortlist=words and Shortlist(tokens=words, links=0),
            output_limits=OutputLimits(max_extra_tokens=12, min_tokens=30),
        ),
    )
    assert sum(one.statistics["drafted"] for one in found) > sum(one.steps for one in found), "no block is cut at its first slot"
    assert [one.ids for one in found] == [
        one.ids for one in greedy(verifier, inputs, output_limits=OutputLimits(max_extra_tokens=12, min_tokens=30))
    ]


@pytest.mark.parametrize("drafter", ["lookup", "system"])
def test_who_drafts_is_nothing_to_searches_that_look_nothing_up(drafter):
    verifier, network = PAIRS[0]
    draft_system = DraftSystem(frozen(network, verifier), search(), 99) if drafter == "system" else None
    for kind, strategy in itertools.product((frozen, AggressiveDecoder), ("draft", "greedy")):
        decoder = kind(network, verifier, draft_system)
        expected = run(decoder, sources(6), search(strategy))
        assert run(decoder, sources(6), search(strategy, drafter=drafter)) == expected


def test_an_untrained_drafter_falls_back_and_says_so(caplog):
    verifier, drafter = PAIRS[0]
    decoder = frozen(drafter, verifier)
    inputs = sources(30)
    found = run(decoder, inputs, AggressiveSearch(output_limits=OutputLimits(max_extra_tokens=12)))
    assert [one.ids for one in found] == [one.ids for one in greedy(verifier, inputs)]
    assert 2 * decoder.record.fell_back > 30
    assert "drafting was given up" in caplog.text
    assert "the drafter is untrained" in caplog.text


def test_a_text_that_repeats_nothing_is_not_called_an_untrained_drafter(caplog):
    verifier, drafter = PAIRS[0]
    decoder = frozen(drafter, verifier)
    limits = OutputLimits(max_extra_tokens=12)
    run(decoder, sources(30), AggressiveSearch(drafter="lookup", min_tokens_per_pass=9.0, output_limits=limits))
    assert "few n-grams of their outputs stand in the text that is looked up" in caplog.text
    assert "untrained" not in caplog.text


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_the_first_pass_does_not_count_towards_the_fallback(engine):
    """Drafting stops after the fourth pass at the earliest, so that outputs of up to four passes never fall back."""
    verifier, drafter = PAIRS[0]
    decoder = frozen(drafter, verifier)
    limits = OutputLimits(max_extra_tokens=12)
    search = AggressiveSearch(engine=engine, min_tokens_per_pass=99.0, output_limits=limits)
    found = [(one.steps, one.statistics["fell_back"]) for one in run(decoder, sources(30), search)]
    assert {fell_back for steps, fell_back in found if steps < 4} <= {False}
    assert {fell_back for steps, fell_back in found if steps > 4} == {True}


def test_an_empty_source_and_an_empty_batch():
    verifier, drafter = PAIRS[4]
    for decoder in (frozen(drafter, verifier), AggressiveDecoder(drafter, verifier)):
        assert run(decoder, [], search()) == []
        assert [one.ids for one in run(decoder, [[]], search())] == [one.ids for one in greedy(verifier, [[]])]


def test_pairs_that_do_not_go_together_are_refused():
    verifier = verifier_of()
    with pytest.raises(ValueError, match="expected vocabularies"):
        AggressiveDecoder(drafter_of(joint=False), verifier)
    with pytest.raises(ValueError, match="expected the one that the drafter was trained on"):
        AggressiveDecoder(drafter_of(encoder="shared"), verifier)
    other, started = verifier_of(), verifier_of(start="shared")
    other.decoder.layers[1].feed_forward.narrow.weight.data.add_(1.0)
    with pytest.raises(ValueError, match=r"trained on, but 1 of \d+ .*, first decoder\.layers\.1\.feed_forward\.narrow"):
        AggressiveDecoder(head_of(verifier), other)
    with pytest.raises(ValueError, match="expected slots with position codes only"):
        AggressiveDecoder(head_of(started), started)
    with pytest.raises(ValueError, match="one token per step from left to right"):
        AggressiveDecoder(drafter_of(), verifier_of(order="interleaved"))
    with pytest.raises(ValueError, match="expected max_positions 64 as the drafter has, got 40"):
        AggressiveDecoder(drafter_of(max_positions=64), verifier)
    for kind in (AggressiveDecoder, frozen):
        with pytest.raises(ValueError, match="top_k: expected at most the vocabulary's 23, got 24"):
            run(kind(drafter_of(), verifier), [[8]], search("gad++", top_k=24))
    with pytest.raises(ValueError, match="drafter_system"):
        run(AggressiveDecoder(drafter_of(), verifier), [[8]], search(drafter="system"))
    with pytest.raises(ValueError, match=r"draft_shortlist\.links: expected 0 for a system without candidate tables, got 2"):
        run(AggressiveDecoder(drafter_of(), verifier), [[8]], search(draft_shortlist=Shortlist(tokens=8, links=2)))
    with pytest.raises(ValueError, match="confidence: expected 0 for a drafter that fills blocks at once"):
        AggressiveDecoder(drafter_of(), verifier).decode(None, search(confidence=0.2))


def test_the_drafter_alone_writes_to_its_end():
    decoder = DraftDecoder(drafter_of())
    found = run(decoder, sources(20), search("gad"))
    assert found == run(decoder, sources(20), search("draft"))
    assert all(one.steps == max(1, -(-(len(one.ids) + 1) // 4)) for one in found if len(one.ids) < 12)


@pytest.mark.parametrize(("drafts", "pair"), [("network", PAIRS[0]), ("lookup", PAIRS[0]), ("network", PAIRS[9])])
def test_samples_follow_the_verifier_whatever_is_drafted(drafts, pair):
    """The distribution of the second token, which blocks are drafted for, is the verifier's own."""
    verifier, drafter = pair
    decoder = AggressiveDecoder(drafter, verifier)
    source, rows = [8, 9, 10], [list(row) for row in itertools.product(range(7, 19), repeat=3)]
    prepared = decoder.prepare([source] * len(rows))._replace(rows=rows)  # one source, and random numbers of many
    limits = OutputLimits(max_extra_tokens=12, max_tokens=2)
    how = search("sample", drafter=drafts, output_limits=limits, sampling=Sampling(temperature=2.0), confidence=0.2)
    found = decoder.decode(prepared, suited(how, drafter))
    seconds = [ranked[0].ids[1] if len(ranked[0].ids) > 1 else EOS for ranked in found]
    frequencies = np.bincount(seconds, minlength=23) / len(rows)
    assert 0.5 * np.abs(frequencies - _second_token(verifier, source)).sum() < 0.06
    assert decoder.record.accepted > 0


def test_a_sample_depends_on_its_sentence_and_seed_alone():
    decoder = AggressiveDecoder(PAIRS[0][1], PAIRS[0][0])
    inputs = sources(6)
    together = run(decoder, inputs, search("sample", sampling=Sampling(seed=3)))
    assert [run(decoder, [one], search("sample", sampling=Sampling(seed=3)))[0].ids for one in inputs] == [
        one.ids for one in together
    ]
    assert [one.ids for one in run(decoder, inputs, search("sample", sampling=Sampling(seed=4)))] != [one.ids for one in together]


def _second_token(verifier, source):
    """P(second token), temperature 2, by summing over all first ones."""
    ids, lengths = torch.tensor([[*source, EOS]]), torch.tensor([len(source) + 1])

    def following(prefix):
        with torch.no_grad():
            target = torch.tensor([[*prefix, EOS]])
            predictions = verifier(ids, lengths, target, torch.tensor([len(prefix) + 1]))
            logits = (predictions.states @ predictions.weight.t())[len(prefix)] / 2.0
        logits[[0, 1, 3, 4, 5, 6]] = -torch.inf
        if not prefix:
            logits[EOS] = -torch.inf
        return logits.softmax(0).double()

    first = following([])
    return sum(first[token] * following([token]) for token in range(23) if first[token] > 0).numpy()
