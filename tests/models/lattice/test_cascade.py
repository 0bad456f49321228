"""Cascaded decoding against an ordinary decoder over whole segments, and against the enumeration of all texts."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fewstep import CandidateTables
from fewstep.families.lattice import decoder as runtime
from fewstep.families.lattice.config import LatticeSearch
from fewstep.translation import Hypothesis
from fewstep.vocabulary import BOS, EOS, PAD, RESERVED
from models.common.engines import native_arrays
from models.common.layers.attention import Memory
from models.common.layers.embeddings import embed
from models.lattice.decode import LatticeDecoder
from models.lattice.loss import loss
from models.lattice.model import LatticeModel, after_self_attention
from models.training.batch import collate
from tests.models.lattice.made import SIZE, counted, network, usual_pairs

SOURCES = [[7, 8, 9], [12], [16, 15, 14, 13], [9, 9], []]


def markov(**changes: Any) -> LatticeModel:
    """Return a network whose segments begin with BOS."""
    return network(**{"segment_start": "bos", "segment_length": 5, "decoder_layers": 2, "dropout": 0.0, **changes})


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> CandidateTables:
    return counted(tmp_path_factory.mktemp("tables") / "tables.bin", usual_pairs())


@torch.no_grad()
def last(model: LatticeModel, source: Sequence[int], carried: Sequence[int], position: int) -> Tensor:
    """Return log-probabilities [V] after the tokens that one segment carries from `position` on, by ordinary masked attention."""
    memories = model.encode(torch.tensor([[*source, EOS]]), torch.tensor([len(source) + 1]))
    codes = model.position_codes(position + len(carried))[position:]
    x = decode(model, embed(torch.tensor([carried]), model.target_embedding) + codes, memories)
    return (x[0, -1] @ model.target_embedding.weight.t()).log_softmax(0)


def decode(model: LatticeModel, x: Tensor, memories: list[Memory]) -> Tensor:
    for layer, memory in zip(model.scorer, memories, strict=True):
        x = layer.attention_residual(x, lambda rows, layer=layer: layer.attention(rows, causal=True))
        x = after_self_attention(layer, x, memory)
    return model.decoder.norm(x)


def unigrams(model: LatticeModel, source: Sequence[int], slot: int) -> Tensor:
    return last(model, source, [BOS], slot)


def score_of(model: LatticeModel, source: Sequence[int], words: Sequence[int]) -> float:
    """Return the log-probability of a text and EOS: the first token as a unigram, all others as bigrams after BOS."""
    found = float(unigrams(model, source, 0)[(*words, EOS)[0]])
    for slot, (before, word) in enumerate(itertools.pairwise((*words, EOS))):
        found += float(last(model, source, [BOS, before], slot)[word])
    return found


def candidates(model: LatticeModel, source: Sequence[int], count: int, least: int, most: int, window: int) -> Iterator[list[int]]:
    """Yield the words of each slot by the rules of the authors' code, with the lengths of outputs without EOS."""
    for slot in range(most):
        scores = dict(enumerate(unigrams(model, source, slot).tolist()))
        scores = {word: score for word, score in scores.items() if word >= len(RESERVED) or (word == EOS and window)}
        scores |= {EOS: 0.0} if slot >= least else {}
        scores |= {PAD: 0.0} if slot > least else {}
        ranked = sorted(scores, key=lambda word: -scores[word])[:count]
        yield [word for word in ranked if word >= len(RESERVED)]


def outputs(decoder: LatticeDecoder, sources: Sequence[Sequence[int]] = SOURCES, **search: Any) -> list[list[Hypothesis]]:
    chosen = LatticeSearch(**{"strategy": "cascade", "candidates": 4, **search})
    return decoder.decode(decoder.prepare(sources, chosen), chosen)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("layers", [1, 3])
def test_texts_score_as_bigrams_after_the_row_of_bos(norm: str, layers: int) -> None:
    model = markov(norm=norm, decoder_layers=layers)
    texts = [[9, 12, 8], [], [16, 7]]
    found = LatticeDecoder(model).score(SOURCES[:3], texts)
    expected = [score_of(model, source, words) for source, words in zip(SOURCES, texts, strict=False)]
    assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("window", [0, 1])
@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("eager", [0.0, 8.0])
def test_the_output_is_the_best_of_all_texts_of_the_candidates(
    window: int, count: int, eager: float, tables: CandidateTables
) -> None:
    """`eager`: how much EOS is liked, which takes a place of the K in slots before the shortest output's end too."""
    model = markov()
    with torch.no_grad():
        model.decoder.norm.bias[0] = 1.0
        model.target_embedding.weight[EOS, 0] += eager
    found = outputs(LatticeDecoder(model, tables), candidates=count, length_window=window)
    compared = displaced = 0
    for source, (best,) in zip(SOURCES[:-1], found, strict=False):
        least, most = tables.length_range(len(source), window)
        columns = list(candidates(model, source, count, least, most, window))
        displaced += sum(len(words) < count for words in columns[:least])
        texts = [text for length in range(least, most + 1) for text in itertools.product(*columns[:length])]
        scores = LatticeDecoder(model).score([source] * len(texts), texts)
        assert best.score == pytest.approx(max(scores), abs=1e-4)
        assert score_of(model, source, best.ids) == pytest.approx(best.score, abs=1e-4)
        compared += len(texts)
    assert compared > 30
    assert displaced or not (eager and window)
    assert found[-1] == [Hypothesis([], 0.0, 0)]


def test_a_sentence_is_decoded_alike_in_any_company(tables: CandidateTables, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = LatticeDecoder(markov(), tables)
    together = outputs(decoder, n_best=2, confidences=True)
    monkeypatch.setattr("models.lattice.run.CPU_ROWS", 40)
    for found in (outputs(decoder, n_best=2), [outputs(decoder, [source], n_best=2)[0] for source in SOURCES]):
        assert [[one.ids for one in ranked] for ranked in found] == [[one.ids for one in ranked] for ranked in together]
        assert [ranked[0].score for ranked in found] == pytest.approx([ranked[0].score for ranked in together], abs=1e-4)


def test_candidates_may_be_more_than_the_vocabulary(tables: CandidateTables) -> None:
    decoder = LatticeDecoder(markov(), tables)
    assert outputs(decoder, candidates=SIZE + 9)[0][0].ids == outputs(decoder, candidates=SIZE)[0][0].ids


@torch.no_grad()
def test_training_sees_none_to_all_tokens_of_a_segment_and_bos_in_place_of_the_first() -> None:
    model = markov()
    words, seen = [9, 12, 8, 16, 11, 10, 14], set()
    batch = collate([0], [[7, 8]], [words])
    carried = [BOS, *words]
    expected = {}
    for offset in range(5):
        starts = sorted({0, *range(offset, 8, 5)})
        begins = [max(start for start in starts if start <= slot) for slot in range(8)]
        rows = [[BOS, *carried[begin + 1 : slot + 1]] for slot, begin in enumerate(begins)]
        total = sum(last(model, [7, 8], row, begin)[word] for row, begin, word in zip(rows, begins, [*words, EOS], strict=True))
        expected[offset] = round(-float(total), 3)
    model.train()
    for seed in range(30):
        torch.manual_seed(seed)
        seen.add(round(loss(model, batch, 1, 0.0).total.item(), 3))
    assert len(seen) == 5
    assert sorted(seen) == pytest.approx(sorted(expected.values()), abs=2e-3)


@torch.no_grad()
def test_texts_that_are_shorter_than_a_segment_are_trained_on() -> None:
    model = markov().train()
    (found,) = {round(loss(model, collate([0], [[7, 8]], [[]]), update, 0.0).total.item(), 4) for update in range(5)}
    assert found == pytest.approx(-float(unigrams(model.eval(), [7, 8], 0)[EOS]), abs=1e-3)


def test_training_has_gradients_for_every_weight() -> None:
    model = markov().train()
    loss(model, collate([0], [[7, 8]], [[9, 12, 8, 16, 11, 10]]), 1, 0.1).total.backward()
    assert all(
        weight.grad is not None and weight.grad.abs().sum() > 0 for name, weight in model.named_parameters() if "bias" not in name
    )


@pytest.mark.parametrize(
    ("model", "search", "expected"),
    [
        ({}, {"strategy": "viterbi"}, "cascade or lookup for a network with segment_start bos"),
        ({"segment_start": "token", "segment_length": 2}, {}, "viterbi or lookup for a network with segment_start token"),
        ({}, {"normalizer": "union"}, "full with cascade"),
        ({}, {"count_weight": 1.0}, "0 with cascade"),
        ({}, {"candidate_threshold": 1.0}, "none with cascade"),
    ],
)
def test_options_of_counted_candidates_are_refused(
    model: dict[str, Any], search: dict[str, Any], expected: str, tables: CandidateTables
) -> None:
    with pytest.raises(ValueError, match=expected):
        outputs(LatticeDecoder(markov(**model), tables), **search)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"segment_length": 1}, "segment_length"),
        ({"segment_length": 3, "segment_start": "token"}, "segment_length"),
        ({"word_dropout": 0.1}, "word_dropout"),
    ],
)
def test_segments_that_do_not_fit_their_start_are_refused(changes: dict[str, Any], key: str) -> None:
    config = markov().config
    found = list(type(config)(**{**vars(config), **changes}).problems())
    assert [problem.path for problem in found] == [(key,)]


def test_native_code_refuses_a_network_that_attends_to_bos(tables: CandidateTables) -> None:
    model = markov()
    with pytest.raises(ValueError, match="segment_start bos"):
        runtime.NativeDecoder(model.config, native_arrays(model), tables)
    assert outputs(LatticeDecoder(model, tables, frozen=True)) == outputs(LatticeDecoder(model, tables))


def test_a_network_is_validated_with_the_search_that_it_is_for() -> None:
    assert LatticeSearch.for_network(markov().config) == LatticeSearch(strategy="cascade", candidates=16)
    assert LatticeSearch.for_network(network().config) == LatticeSearch()


def test_a_lookup_does_not_need_the_network(tables: CandidateTables) -> None:
    found = [outputs(LatticeDecoder(model, tables), strategy="lookup") for model in (markov(), network())]
    assert found[0] == found[1]


def test_no_reserved_token_is_written(tables: CandidateTables, tmp_path: Path) -> None:
    model = markov()
    with torch.no_grad():
        model.target_embedding.weight[: len(RESERVED)] *= 20.0
    for found in outputs(LatticeDecoder(model, tables), candidates=9, n_best=3):
        assert all(word >= len(RESERVED) for one in found for word in one.ids)
