"""N-gram models agree with the slow estimator, with lmplz and with KenLM's queries, whatever the threads and the file."""

import gzip
import math
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import NgramModel
from kernels.reference import ngram as reference
from tests.public_data import public_data

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FALLBACK = (0.5, 1.0, 1.5)
LN10 = math.log(10)

WORDS = st.sampled_from(["a", "b", "c", "d", "ä", "\x0b"])
CORPORA = st.lists(st.lists(WORDS, max_size=7), min_size=1, max_size=12)
ORDERS = st.integers(1, 6)


def arpa(model: NgramModel) -> reference.Model:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.arpa"
        model.write_arpa(path)
        return reference.read_arpa(path.read_text(encoding="utf-8").split("\n"))


def saved(model: NgramModel) -> bytes:
    with TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.ngram")
        return (Path(folder) / "model.ngram").read_bytes()


def assert_alike(ours: reference.Model, theirs: reference.Model, tolerance: float) -> None:
    assert ours.keys() == theirs.keys()
    for ngram, values in theirs.items():
        assert ours[ngram] == pytest.approx(values, abs=tolerance), ngram


@given(CORPORA, ORDERS, st.booleans())
def test_estimates_equal_the_slow_ones(corpus: list[list[str]], order: int, interpolate: bool) -> None:
    model = NgramModel.estimate(corpus, order, discount_fallback=FALLBACK, interpolate_unigrams=interpolate)
    assert model.order == order
    assert_alike(arpa(model), reference.estimate(corpus, order, (), FALLBACK, interpolate), 1e-5)
    assert model.estimation is not None
    assert model.estimation.sentences == len(corpus)
    assert model.estimation.tokens == sum(map(len, corpus))


@given(CORPORA, ORDERS, st.lists(st.integers(0, 3), min_size=1, max_size=6).map(sorted))
def test_pruned_estimates_equal_the_slow_ones(corpus: list[list[str]], order: int, prune: list[int]) -> None:
    model = NgramModel.estimate(corpus, order, prune=prune, discount_fallback=FALLBACK)
    assert_alike(arpa(model), reference.estimate(corpus, order, prune, FALLBACK), 1e-5)


@given(CORPORA, ORDERS, st.sampled_from([(0,), (0, 1), (1,)]))
def test_every_context_gives_a_distribution(corpus: list[list[str]], order: int, prune: tuple[int, ...]) -> None:
    model = NgramModel.estimate(corpus, order, prune=prune, discount_fallback=FALLBACK)
    predicted = [word for word, text in enumerate(model.words) if text != "<s>"]
    states, fresh = {0, model.native.begin()}, {0, model.native.begin()}
    while fresh:
        fresh = {model.native.step(state, word)[1] for state in fresh for word in predicted} - states
        states |= fresh
    for state in states:
        assert sum(math.exp(model.native.step(state, word)[0]) for word in predicted) == pytest.approx(1, abs=1e-5)


def ask(model: NgramModel, known: reference.Model, sentence: Sequence[str]) -> None:
    for bos, eos in ((True, True), (False, False), (True, False), (False, True)):
        expected = reference.score(known, sentence, model.order, bos, eos) * LN10
        assert model.score(sentence, bos, eos) == pytest.approx(expected, abs=1e-4 * (2 + len(sentence)))


@given(CORPORA, st.lists(st.sampled_from(["a", "b", "c", "unseen", "<s>", "<unk>"]), max_size=8), ORDERS, st.booleans())
def test_queries_back_off_as_arpa_says(corpus: list[list[str]], sentence: list[str], order: int, pruned: bool) -> None:
    model = NgramModel.estimate(corpus, order, prune=(0, 1) if pruned else (0,), discount_fallback=FALLBACK)
    ask(model, arpa(model), sentence)


@st.composite
def sparse_models(draw: st.DrawFn) -> tuple[int, reference.Model]:
    """Draw an ARPA file: n-grams whose contexts and ends are missing, some with back-offs."""
    order = draw(st.integers(1, 5))
    model: reference.Model = {(word,): (0.0, 0.0) for word in ("<unk>", "<s>", "</s>", "a", "b")}
    for n in range(2, order + 1):
        for ngram in draw(st.sets(st.tuples(*[st.sampled_from(["a", "b", "<s>", "</s>", "<unk>"])] * n), max_size=6)):
            model[ngram] = (0.0, 0.0)
    values = st.integers(-24, 0).map(lambda value: value / 8)
    backoffs = st.integers(-16, 4).map(lambda value: max(value, -12) / 8)
    return order, {ngram: (draw(values), draw(backoffs) if len(ngram) < order else 0.0) for ngram in model}


def spelled(order: int, model: reference.Model) -> str:
    lines = ["\\data\\", *(f"ngram {n}={sum(len(g) == n for g in model)}" for n in range(1, order + 1))]
    for n in range(1, order + 1):
        lines += ["", f"\\{n}-grams:"]
        for ngram, (log_prob, backoff) in model.items():
            if len(ngram) == n:
                lines.append(f"{log_prob}\t{' '.join(ngram)}" + (f"\t{backoff}" if backoff else ""))
    return "\n".join([*lines, "", "\\end\\", ""])


@given(sparse_models(), st.lists(st.sampled_from(["a", "b", "unseen"]), max_size=8))
def test_any_arpa_file_is_understood(given_model: tuple[int, reference.Model], sentence: list[str]) -> None:
    order, known = given_model
    with TemporaryDirectory() as folder:
        path = Path(folder) / "any.arpa"
        path.write_text(spelled(order, known), encoding="utf-8")
        model = NgramModel.load(path)
    ask(model, known, sentence)
    found = arpa(model)
    assert found.keys() >= known.keys()  # missing contexts were added, with what backing off gives them
    for ngram, (log_prob, backoff) in found.items():
        expected = reference.log_prob(known, ngram[:-1], ngram[-1])
        assert (log_prob, backoff) == pytest.approx((expected, known.get(ngram, (0.0, 0.0))[1]), abs=1e-5)


@given(CORPORA, ORDERS)
def test_files_keep_the_model(corpus: list[list[str]], order: int) -> None:
    model = NgramModel.estimate(corpus, order, discount_fallback=FALLBACK)
    with TemporaryDirectory() as folder:
        binary, text, packed = (Path(folder) / name for name in ("m.ngram", "m.arpa", "m.arpa.gz"))
        model.save(binary)
        model.write_arpa(text)
        packed.write_bytes(gzip.compress(text.read_bytes()))
        for path in (binary, text, packed):
            loaded = NgramModel.load(path)
            assert saved(loaded) == binary.read_bytes()
            assert (loaded.order, loaded.counts, loaded.words) == (model.order, model.counts, model.words)
            assert loaded.vocabulary_digest == model.vocabulary_digest
            assert loaded.score(["a", "x", "b"]) == model.score(["a", "x", "b"])
        assert sorted(path.name for path in Path(folder).iterdir()) == ["m.arpa", "m.arpa.gz", "m.ngram"]


def test_a_file_is_mapped_and_outlives_its_name(tmp_path: Path) -> None:
    NgramModel.estimate([["a", "b"]], 3, discount_fallback=FALLBACK).save(tmp_path / "m")
    model = NgramModel.load(tmp_path / "m")
    expected = model.score(["a", "b"])
    NgramModel.estimate([["c"]], 2, discount_fallback=FALLBACK).save(tmp_path / "m")  # renamed over it, not written into it
    assert model.score(["a", "b"]) == expected


@given(
    st.lists(st.lists(st.integers(0, 40).map(str), max_size=9), min_size=1, max_size=300), ORDERS, st.sampled_from([(0,), (0, 1)])
)
def test_threads_change_nothing(corpus: list[list[str]], order: int, prune: tuple[int, ...]) -> None:
    models = [NgramModel.estimate(corpus, order, prune=prune, discount_fallback=FALLBACK, threads=n) for n in (1, 2, 3, 8)]
    assert len({saved(model) for model in models}) == 1
    assert len({str(model.perplexity(corpus, threads=n)) for n, model in enumerate(models, 1)}) == 1


def test_a_text_of_several_parts_is_one_text(tmp_path: Path) -> None:
    """Parts of some MiB are read apart: words keep the order of their first appearance, and no line is torn."""
    block, times = ["a b c", "", "b d", "late a"], 450_000
    lines = [*block[:3] * times, block[3]]
    (tmp_path / "text").write_text("\n".join(lines), encoding="utf-8")
    assert (tmp_path / "text").stat().st_size > 4 << 20
    models = [NgramModel.estimate(tmp_path / "text", 2, discount_fallback=FALLBACK, threads=n) for n in (1, 2)]
    assert saved(models[0]) == saved(models[1])
    assert models[0].words == ["<unk>", "<s>", "</s>", "a", "b", "c", "d", "late"]
    assert models[0].estimation is not None
    assert (models[0].estimation.sentences, models[0].estimation.tokens) == (3 * times + 1, 5 * times + 2)
    small = reference.estimate([line.split() for line in block], 2)
    assert models[0].counts == [len([g for g in small if len(g) == n]) for n in (1, 2)]


def compare_with_lmplz(model: NgramModel, golden: Path) -> None:
    text = gzip.decompress(golden.read_bytes()) if golden.suffix == ".gz" else golden.read_bytes()
    assert_alike(arpa(model), reference.read_arpa(text.decode().split("\n")), 2e-6)


def test_lmplz_estimates_the_same() -> None:
    model = NgramModel.estimate(public_data("golden/lmplz.input.txt"), 3, threads=2)
    assert model.counts == [5977, 23963, 40363]
    compare_with_lmplz(model, public_data("golden/lmplz.order3.arpa.gz"))


def test_lmplz_prunes_the_same() -> None:
    """`lmplz -o 4 --prune 0 0 1 --discount_fallback`, of KenLM 0.3.0."""
    text = GOLDEN / "lmplz.pruned.txt"
    model = NgramModel.estimate(text, 4, prune=(0, 0, 1), discount_fallback=FALLBACK)
    compare_with_lmplz(model, GOLDEN / "lmplz.pruned.arpa")
    assert model.estimation is not None
    assert model.estimation.fallback == (True, False, False, False)
    assert all(found > kept for found, kept in zip(model.estimation.distinct[2:], model.counts[2:], strict=True))


@pytest.mark.parametrize("text", ["golden/lmplz.input.txt", None])
def test_kenlm_answers_the_same(tmp_path: Path, text: str | None) -> None:
    import kenlm

    source = public_data(text) if text else GOLDEN / "lmplz.pruned.txt"
    model = NgramModel.estimate(source, 3, prune=(0, 1), discount_fallback=FALLBACK)
    model.write_arpa(tmp_path / "m.arpa")
    theirs = kenlm.Model(str(tmp_path / "m.arpa"))
    lines = source.read_text(encoding="utf-8").split("\n")[:300]
    sentences = [line.split()[::step] for line in lines for step in (1, -1)] + [["unseen", "w1", "."], []]
    for words in sentences:
        for bos, eos in ((True, True), (False, False), (True, False), (False, True)):
            expected = theirs.score(" ".join(words), bos=bos, eos=eos) * LN10
            assert model.score(words, bos, eos) == pytest.approx(expected, abs=1e-4 * (1 + len(words)))
    found = model.perplexity([words for words in sentences if words])
    assert found.perplexity == pytest.approx(
        10 ** (-sum(theirs.score(" ".join(words)) for words in sentences if words) / found.words), rel=1e-4
    )


def test_perplexity_distinguishes_unknown_words() -> None:
    model = NgramModel.estimate([["a", "b"], ["a"]], 2, discount_fallback=FALLBACK)
    found = model.perplexity([["a", "x"], ["y"]])
    assert (found.sentences, found.words, found.unknown, found.unknown_rate) == (2, 5, 2, 0.4)
    assert found.log_prob == pytest.approx(model.score(["a", "x"]) + model.score(["y"]))
    assert found.perplexity == pytest.approx(math.exp(-found.log_prob / 5))
    assert found.known_perplexity == pytest.approx(math.exp(-(found.log_prob - found.unknown_log_prob) / 3))
    assert model.perplexity([["x"]], eos=False).known_perplexity == math.inf
    with pytest.raises(ValueError, match="expected at least one word"):
        model.perplexity([], eos=True)


def test_a_scorer_goes_by_the_ids_of_a_vocabulary() -> None:
    model = NgramModel.estimate([["▁a", "b"], ["b"]], 3, discount_fallback=FALLBACK)
    pieces = ["<pad>", "<s>", "</s>", "<unk>", "<mask>", "b", "never", "▁a"]
    scorer = model.for_vocabulary(pieces)
    assert (len(scorer), scorer.unknown) == (8, 3)
    total, state = 0.0, scorer.begin
    for piece in (7, 5, 6, 2):
        log_prob, state = scorer.step(state, piece)
        total += log_prob
    assert total == pytest.approx(model.score(["▁a", "b", "never"]))
    with pytest.raises(ValueError, match="expected an id below 8"):
        scorer.step(scorer.begin, 8)
    with pytest.raises(ValueError, match="a state and a word of this model"):
        scorer.step(99, 0)
    with pytest.raises(ValueError, match="got a model without any of them"):
        model.for_vocabulary(["<pad>", "<s>", "</s>", "<unk>", "other"])


def test_states_hold_no_more_than_matters() -> None:
    """Prefixes with the same continuations have the same state."""
    model = NgramModel.estimate([["a", "b", "c"], ["d", "b", "c"]], 5, discount_fallback=FALLBACK)
    scorer = model.for_vocabulary(model.words)

    def state(*words: str) -> int:
        at = scorer.begin
        for word in words:
            at = scorer.step(at, model.words.index(word))[1]
        return at

    assert state("a", "b", "c", "<unk>") == state("<unk>") == 0
    assert state("<unk>", "b") == state("c", "b")
    assert state("a", "b") != state("d", "b")
