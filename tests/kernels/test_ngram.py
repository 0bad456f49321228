"""N-gram models agree with the slow estimator, with lmplz and with KenLM's queries, whatever the threads and the file."""

import gzip
import math
import struct
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import NgramModel
from kernels.ngram import CountedText, count_ngrams, open_counts, read_counts, text_words
from kernels.reference import ngram as reference
from tests.shared import public_data

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
    compare_with_lmplz(model, GOLDEN / "lmplz.pruned.arpa.gz")
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


# ---- a text that is counted in parts gives the bytes of one that is counted whole, and damaged counts are refused


MARKED_CORPORA = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "d", "ä", "\x0b", "<s>", "<unk>"]), max_size=7), min_size=1, max_size=12
)

LINES = ["a b c", "b c", "", "a b a b c d"]


def text_of(lines: Sequence[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def all_words(parts: Sequence[bytes]) -> bytes:
    """Return the words of all parts in order of first appearance."""
    found = dict.fromkeys(word for part in parts for word in text_words(part, skip_special=True).split(b"\n") if word)
    return b"".join(word + b"\n" for word in found)


def counted(parts: Sequence[bytes], folder: Path, order: int, threads: int = 1) -> list[Path]:
    """Count parts of a text, the last one first."""
    words, paths = all_words(parts), [folder / f"{number}.run" for number in range(len(parts))]
    for part, path in reversed([*zip(parts, paths, strict=True)]):
        count_ngrams(part, words, path, order=order, skip_special=True, threads=threads)
    return paths


def merged(parts: Sequence[bytes], order: int, threads: int, **options: Any) -> NgramModel:
    with TemporaryDirectory() as folder:
        paths = counted(parts, Path(folder), order, threads)
        return NgramModel.from_counts(open_counts(paths[::-1], all_words(parts)), order, threads=threads, **options)


@given(
    MARKED_CORPORA,
    st.lists(st.integers(0, 12), max_size=5).map(sorted),
    ORDERS,
    st.lists(st.integers(0, 3), min_size=1, max_size=6).map(sorted),
    st.booleans(),
    st.sampled_from([1, 3]),
)
def test_any_parts_give_the_model_of_the_whole_text(
    corpus: list[list[str]], cuts: list[int], order: int, prune: list[int], interpolate: bool, threads: int
) -> None:
    lines = [" ".join(words) for words in corpus]
    parts = [text_of(lines[start:end]) for start, end in zip([0, *cuts], [*cuts, len(lines)], strict=True)]
    assert b"".join(parts) == text_of(lines)
    with TemporaryDirectory() as folder:
        (Path(folder) / "text").write_bytes(text_of(lines))
        whole = NgramModel.estimate(
            Path(folder) / "text",
            order,
            prune=prune,
            discount_fallback=FALLBACK,
            interpolate_unigrams=interpolate,
            skip_special=True,
        )
    model = merged(parts, order, threads, prune=prune, discount_fallback=FALLBACK, interpolate_unigrams=interpolate)
    assert saved(model) == saved(whole)
    assert model.estimation == whole.estimation


def test_blocks_and_ranges_do_not_show(tmp_path: Path) -> None:
    """Runs of more records than a block, of which one part has all words and another only a few."""
    lines = [" ".join(f"w{(number * 7919 + place * place) % 3001}" for place in range(9)) for number in range(3000)]
    parts = [text_of(lines[:2500]), text_of(["w1 w2"]), text_of(lines[2500:])]
    (tmp_path / "text").write_bytes(b"".join(parts))
    whole = saved(NgramModel.estimate(tmp_path / "text", 3, discount_fallback=FALLBACK))
    assert all(saved(merged(parts, 3, threads, discount_fallback=FALLBACK)) == whole for threads in (1, 2))


def split_evenly(path: Path, parts: int) -> list[bytes]:
    lines = path.read_bytes().splitlines(keepends=True)
    size = -(-len(lines) // parts)
    return [b"".join(lines[start : start + size]) for start in range(0, len(lines), size)]


def test_lmplz_estimates_the_same_from_counts() -> None:
    parts = split_evenly(public_data("golden/lmplz.input.txt"), 5)
    compare_with_lmplz(merged(parts, 3, 2), public_data("golden/lmplz.order3.arpa.gz"))


def test_lmplz_prunes_the_same_from_counts() -> None:
    parts = split_evenly(GOLDEN / "lmplz.pruned.txt", 7)
    compare_with_lmplz(merged(parts, 4, 1, prune=(0, 0, 1), discount_fallback=FALLBACK), GOLDEN / "lmplz.pruned.arpa.gz")


def test_counts_do_not_depend_on_threads(tmp_path: Path) -> None:
    parts = [text_of(LINES * 50), text_of(["d d d", "c"])]
    runs = []
    for threads in (1, 2, 5):
        (tmp_path / str(threads)).mkdir()
        runs.append([path.read_bytes() for path in counted(parts, tmp_path / str(threads), 4, threads)])
    assert runs[0] == runs[1] == runs[2]
    assert read_counts(tmp_path / "1" / "0.run") == CountedText(order=4, sentences=200, tokens=550, skipped=0)


def test_words_are_those_of_the_whole_text(tmp_path: Path) -> None:
    text = text_of(LINES)
    assert text_words(text) == b"a\nb\nc\nd\n"
    with pytest.raises(ValueError, match=r"expected the words of the whole text, got none for d"):
        count_ngrams(text, b"a\nb\nc\n", tmp_path / "run")
    for words, line in ((b"a\nb\nc\nd\na\n", 5), (b"a b\n", 1), (b"a\n\nb\n", 2), (b"a\n</s>\n", 2)):
        with pytest.raises(ValueError, match=f"line {line}: expected a word that is on no other line"):
            count_ngrams(text, words, tmp_path / "run")
    with pytest.raises(ValueError, match="order: expected 1 to 6, got 7"):
        count_ngrams(text, text_words(text), tmp_path / "run", order=7)
    with pytest.raises(ValueError, match="expected words other than <s>"):
        text_words(b"a <s>\n")
    assert not list(tmp_path.iterdir())


def test_counts_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    text, words = text_of(LINES), text_words(text_of(LINES))
    count_ngrams(text, words, tmp_path / "a", order=3)
    count_ngrams(text, words, tmp_path / "b", order=2)
    count_ngrams(text, b"b\na\nc\nd\n", tmp_path / "c", order=3)
    for other, given_words in (("b", words), ("c", words), ("a", words + b"e\n")):
        with pytest.raises(ValueError, match=r"expected counts of order 3 of a text with these \d words.*count all parts alike"):
            open_counts([tmp_path / "a", tmp_path / other], given_words)
    with pytest.raises(ValueError, match="at least one part"):
        open_counts([], words)
    with pytest.raises(FileNotFoundError):
        open_counts([tmp_path / "missing"], words)
    with pytest.raises(ValueError, match=r"order: expected that of the counts|prune: expected a threshold"):
        NgramModel.from_counts(open_counts([tmp_path / "a"], words), 2)
    with pytest.raises(MemoryError, match=r"n-grams needs up to .* more than the limit"):
        NgramModel.from_counts(open_counts([tmp_path / "a"], words), 3, memory_gib=1e-7)


def test_a_part_that_is_left_out_is_noticed(tmp_path: Path) -> None:
    parts = [text_of(["a b"]), text_of(["c"])]
    paths = counted(parts, tmp_path, 2)
    with pytest.raises(RuntimeError, match="expected those of all parts of a text, got none of word 5"):
        NgramModel.from_counts(open_counts(paths[:1], all_words(parts)), 2, discount_fallback=FALLBACK)
    empty = counted([b"", b""], tmp_path, 2)
    with pytest.raises(ValueError, match="expected at least one sentence, got an empty text"):
        NgramModel.from_counts(open_counts(empty, b""), 2)


def run_of(tmp_path: Path) -> tuple[Path, bytes]:
    path = tmp_path / "run"
    count_ngrams(text_of(LINES), text_words(text_of(LINES)), path, order=2)
    return path, path.read_bytes()


def test_every_altered_byte_is_noticed(tmp_path: Path) -> None:
    path, data = run_of(tmp_path)
    assert len(data) == 80 + 9 * 12
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        with pytest.raises(ValueError, match=r"expected the n-gram counts of a part of a text, got .*; count it again"):
            read_counts(path)


def test_files_that_are_no_counts_are_refused(tmp_path: Path) -> None:
    path, data = run_of(tmp_path)
    for content in (b"", data[:50], data[:-1], data[:-12], data + b"\0" * 12, b"text" * 100):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"expected the n-gram counts of a part of a text, got .*; count it again"):
            read_counts(path)
    with pytest.raises(IsADirectoryError):
        read_counts(tmp_path)


def checksum(data: bytes) -> int:
    """FNV-1a over words of 8 bytes, as the kernels compute it, of at most one block."""
    value = 14695981039346656037
    for start in range(0, len(data), 8):
        value = ((value ^ int.from_bytes(data[start : start + 8], "little")) * 1099511628211) % 2**64
    return value


def forged(data: bytes, records: Sequence[Sequence[int]], order: int = 2, sentences: int | None = None) -> bytes:
    """Return a run with these records, whose checksums and sizes agree."""
    body = b"".join(struct.pack(f"<{len(record)}I", *record) for record in records)
    ends = sum(record[-1] for record in records if record[0] == 2) if sentences is None else sentences
    counted = sum(record[-1] for record in records)
    header = data[:16] + struct.pack("<I", order) + data[20:32]
    header += struct.pack("<QQQQQ", ends, max(0, counted - ends), 0, len(records), checksum(body))
    return header + struct.pack("<Q", checksum(header)) + body


def test_impossible_records_are_refused(tmp_path: Path) -> None:
    path, data = run_of(tmp_path)
    whole = [(2, 3, 1), (3, 1, 1), (4, 3, 1), (5, 3, 1), (6, 3, 1)]
    path.write_bytes(forged(data, whole))
    assert read_counts(path).tokens == 4
    wrong = {
        "out of order": [whole[1], whole[0]],
        "twice": [whole[0], whole[0]],
        "no count": [(2, 3, 0)],
        "<unk>": [(2, 0, 1)],
        "<s> at the end": [(1, 1, 1)],
        "</s> before the end": [(3, 2, 1)],
        "outside the words": [(3, 7, 1)],
        "outside the words, at the end": [(7, 3, 1)],
    }
    for records in wrong.values():
        path.write_bytes(forged(data, records))
        with pytest.raises(ValueError, match="got impossible records"):
            read_counts(path)
    path.write_bytes(forged(data, [(3, 1, 3, 1)], order=3))
    with pytest.raises(ValueError, match="got impossible records"):
        read_counts(path)
    for records, sentences in (([(2, 3, 2**32 - 1), (3, 1, 2**32 - 1)], None), (whole, 2)):
        path.write_bytes(forged(data, records, sentences=sentences))
        with pytest.raises(ValueError, match=r"got impossible (counts|numbers of words)"):
            read_counts(path)


def test_sums_beyond_32_bits_are_refused(tmp_path: Path) -> None:
    path, data = run_of(tmp_path)
    path.write_bytes(forged(data, [(2, 3, 2**30), (3, 1, 2**30)]))
    assert read_counts(path).sentences == 2**30
    with pytest.raises(MemoryError, match="has more than 32 bits can number"):
        open_counts([path, path], text_words(text_of(LINES)))


def test_ngrams_without_their_contexts_are_refused(tmp_path: Path) -> None:
    path, data = run_of(tmp_path)
    ends = [(word, 1, 1, 1) for word in (3, 4, 5, 6)]
    path.write_bytes(forged(data, [(2, 3, 4, 1), *ends], order=3))
    with pytest.raises(RuntimeError, match="got an n-gram without its context"):
        NgramModel.from_counts(open_counts([path], text_words(text_of(LINES))), 3, discount_fallback=FALLBACK)
    path.write_bytes(forged(data, [(2, 3, 1, 5), *ends], order=3))
    with pytest.raises(RuntimeError, match="got an n-gram more often than its context"):
        NgramModel.from_counts(open_counts([path], text_words(text_of(LINES))), 3, prune=(2,), discount_fallback=FALLBACK)
