"""A text that is counted in parts gives the bytes of one that is counted whole, and damaged counts are refused."""

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
from tests.kernels.test_ngram import FALLBACK, GOLDEN, compare_with_lmplz, saved
from tests.public_data import public_data

WORDS = st.sampled_from(["a", "b", "c", "d", "ä", "\x0b", "<s>", "<unk>"])
CORPORA = st.lists(st.lists(WORDS, max_size=7), min_size=1, max_size=12)
ORDERS = st.integers(1, 6)

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
    CORPORA,
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
    compare_with_lmplz(merged(parts, 4, 1, prune=(0, 0, 1), discount_fallback=FALLBACK), GOLDEN / "lmplz.pruned.arpa")


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
