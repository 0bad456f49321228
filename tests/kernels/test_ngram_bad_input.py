"""Malformed text, ARPA files and model files: a documented rule or a clear error, never a crash or NaN."""

import gzip
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels import NgramModel

FALLBACK = (0.5, 1.0, 1.5)

ARPA = """\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-1.5\t<unk>
-99\t<s>\t-0.25
-0.5\t</s>
-0.25\ta\t-0.5

\\2-grams:
-0.125\t<s> a
-0.5\ta </s>

\\end\\
"""


def load(folder: Path, text: str | bytes) -> NgramModel:
    path = folder / "m.arpa"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return NgramModel.load(path)


def log10(model: NgramModel, *words: str, bos: bool = True, eos: bool = True) -> float:
    return model.score(words, bos, eos) / math.log(10)


def test_an_arpa_file_as_it_should_be(tmp_path: Path) -> None:
    model = load(tmp_path, ARPA)
    assert log10(model, "a") == pytest.approx(-0.625)
    assert log10(model, "a", "x") == pytest.approx(-0.125 - 0.5 - 1.5 - 0.5)
    assert log10(model) == pytest.approx(-0.25 - 0.5)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.replace("\n", "\r\n"),
        lambda t: "a line before\n\n" + t,
        lambda t: t.replace("\t", " "),
        lambda t: t.replace("ngram 1=4", "ngram  1 = 4 "),
        lambda t: t.replace("<unk>", "<UNK>"),
        lambda t: t + "\nwhat stands after the end",
        lambda t: t.replace("\ta </s>", "\ta </s>\t0"),
        lambda t: t.replace("-0.5\t</s>\n-0.25\ta\t-0.5\n", "-0.25\ta\t-0.5\n-0.5\t</s>\n"),
        lambda t: t.rstrip("\n"),
    ],
)
def test_arpa_files_are_read_as_others_write_them(tmp_path: Path, change: Callable[[str], str]) -> None:
    expected, got = load(tmp_path, ARPA), load(tmp_path, change(ARPA))
    for words in (["a"], ["a", "a"], ["x"], []):
        assert log10(got, *words) == log10(expected, *words)


def test_a_missing_unk_and_a_missing_backoff_follow_the_rule(tmp_path: Path) -> None:
    without = load(tmp_path, ARPA.replace("-1.5\t<unk>\n", "").replace("1=4", "1=3").replace("\ta\t-0.5", "\ta"))
    assert log10(without, "a", "x", eos=False) == pytest.approx(-0.125 - 100)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1=4", "1=5", r"\\1-grams: expected 5 n-grams, as the header says, got 4"),
        ("2=2", "2=1", r"\\2-grams: expected 1 n-grams, as the header says, got 2"),
        ("2=2", "2=99999999999999999999", r"line 3: expected ngram 2=COUNT, got 'ngram 2=99999999999999999999'"),
        ("2=2", "2=-2", r"line 3: expected ngram 2=COUNT"),
        ("ngram 2=2", "ngram 3=2", r"line 3: expected ngram 2=COUNT, got 'ngram 3=2'"),
        ("ngram 1=4\nngram 2=2\n", "", r"expected ngram 1=COUNT"),
        ("\\data\\", "\\dota\\", r"expected \\data\\, which begins an ARPA file, got the end"),
        ("\\end\\", "", r"expected \\end\\ at the end of the file, got the end"),
        ("\\2-grams:", "\\3-grams:", r"line 11: expected \\2-grams:, got '\\3-grams:'"),
        ("-0.5\ta </s>", "-0.5\ta b", r"line 13: expected words of the unigrams alone, got '-0.5\ta b'"),
        ("-0.5\ta </s>", "-0.5\t<s> a", r"expected each n-gram once, got '<s> a' twice"),
        ("-0.5\t</s>", "-0.5\ta", r"line 9: expected each word once"),
        ("<UNK>", "<unk>", r"expected each word once"),
        ("-0.5\ta </s>", "0.5\ta </s>", r"line 13: expected a log-probability of at most 0"),
        ("-0.5\ta </s>", "nan\ta </s>", r"line 13: expected finite numbers"),
        ("-0.5\ta </s>", "-inf\ta </s>", r"line 13: expected finite numbers \(-99 stands for no probability\), got '-inf"),
        ("-0.5\ta </s>", "-1e999\ta </s>", r"line 13: expected finite numbers"),
        ("-0.5\ta </s>", "-0,5\ta </s>", r"line 13: expected finite numbers"),
        ("\ta\t-0.5", "\ta\tinf", r"line 9: expected finite numbers"),
        ("\ta\t-0.5", "\ta\t1e39", r"line 9: expected finite numbers"),
        ("-0.5\ta </s>", "-0.5\ta", r"line 13: expected a log-probability, 2 words and perhaps a back-off, got '-0.5\ta'"),
        ("-0.5\ta </s>", "-0.5\ta a a a", r"line 13: expected a log-probability, 2 words"),
        ("-0.5\t</s>", "-0.5\tend", r"\\2-grams|words of the unigrams|expected </s> in this section"),
        ("-99\t<s>\t-0.25\n", "", r"\\1-grams: expected 4 n-grams, as the header says, got 3"),
        ("-99\t<s>", "-99\tstart", r"\\1-grams: expected <s> in this section, got none"),
    ],
)
def test_arpa_files_that_contradict_themselves_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = ARPA.replace("-99\t<s>", "-99\t<UNK>") if old == "<UNK>" else ARPA.replace(old, new)
    assert text != ARPA
    with pytest.raises(ValueError, match=message) as caught:
        load(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "m.arpa") + ": ")


def test_an_order_beyond_six_is_refused(tmp_path: Path) -> None:
    counts = "".join(f"ngram {n}=0\n" for n in range(3, 8))
    with pytest.raises(ValueError, match="expected an order up to 6, got 7"):
        load(tmp_path, ARPA.replace("ngram 2=2\n", "ngram 2=2\n" + counts))


def test_orders_without_ngrams_need_no_section(tmp_path: Path) -> None:
    model = load(tmp_path, ARPA.replace("ngram 2=2\n", "ngram 2=2\nngram 3=0\n"))
    assert (model.order, model.counts) == (3, [4, 2, 0])
    assert log10(model, "a") == log10(load(tmp_path, ARPA), "a")
    model.write_arpa(tmp_path / "again")
    assert NgramModel.load(tmp_path / "again").counts == [4, 2, 0]


@given(st.binary(max_size=60) | st.text("\\datngrm123=-:e <s>\t\n", max_size=80).map(lambda t: t.encode()))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_crash_the_reader(tmp_path: Path, noise: bytes) -> None:
    for text in (noise, ARPA[: len(ARPA) // 2].encode() + noise, ARPA.encode().replace(b"-0.5", noise[:4])):
        try:
            model = load(tmp_path, text)
        except ValueError:
            continue
        assert not math.isnan(log10(model, "a", "a"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"expected \\data\\"),
        (b"mmap lm http://kheafield.com/code format version 5\n\0", "got KenLM's binary form"),
        (gzip.compress(ARPA.encode())[:-9], "expected a complete gzip file"),
        (b"\x1f\x8b rubbish", "expected a complete gzip file"),
        (b"FSNGRAM\n", "expected an n-gram model of version 1, got another kind of file"),
        (b"FSNGRAM\n" + b"\x02\0\0\0" + bytes(76), "got version 2; build it again"),
        (b"FSNGRAM\n" + b"\x01\0\0\0" + b"\x09\0\0\0" + bytes(72), "got order 9"),
    ],
    ids=["empty", "kenlm", "cut-gzip", "no-gzip", "header", "version", "order"],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(tmp_path, content)


def test_files_that_cannot_be_reached_say_which(tmp_path: Path) -> None:
    model = NgramModel.estimate([["a"]], 2, discount_fallback=FALLBACK)
    for action in (lambda path: NgramModel.load(path), model.save, model.write_arpa):
        with pytest.raises(FileNotFoundError, match="no/such"):
            action(tmp_path / "no" / "such")
    with pytest.raises(FileNotFoundError, match="no/such"):
        NgramModel.estimate(tmp_path / "no" / "such", 2)
    with pytest.raises(IsADirectoryError):
        NgramModel.load(tmp_path)


def test_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    model = NgramModel.estimate([["a"]], 2, discount_fallback=FALLBACK)
    for write in (model.native.write, model.native.write_arpa):
        with pytest.raises(OSError, match="No space left on device"):
            write("/dev/full")


def test_a_model_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    NgramModel.estimate([["a", "b", "c"], ["b", "c"]], 3, discount_fallback=FALLBACK).save(tmp_path / "m")
    whole = (tmp_path / "m").read_bytes()
    for size in range(8, len(whole), 7):
        with pytest.raises(ValueError, match=r"build it again"):
            load(tmp_path, whole[:size])
    with pytest.raises(ValueError, match=rf"got {len(whole) + 8} of {len(whole)} bytes"):
        load(tmp_path, whole + bytes(8))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_model_file_that_was_altered_is_refused_or_answers(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "m"
    if not path.exists():
        NgramModel.estimate([["a", "b", "c"], ["b", "c"]], 3, discount_fallback=FALLBACK).save(path)
    altered = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        altered[data.draw(st.integers(8, len(altered) - 1))] = data.draw(st.integers(0, 255))
    try:
        model = load(tmp_path, bytes(altered))
    except ValueError:
        return
    assert math.isfinite(log10(model, "a", "b", "x", "c"))
    model.write_arpa(tmp_path / "again")


@pytest.mark.parametrize("word", ["<s>", "</s>", "<unk>"])
def test_special_words_in_the_text(word: str) -> None:
    corpus = [["a"], ["a", word, "b"]]
    with pytest.raises(ValueError, match=rf"line 2: expected words other than <s>, </s> and <unk>, got {word}"):
        NgramModel.estimate(corpus, 2, discount_fallback=FALLBACK)
    skipped = NgramModel.estimate(corpus, 2, discount_fallback=FALLBACK, skip_special=True)
    plain = NgramModel.estimate([["a"], ["a", "b"]], 2, discount_fallback=FALLBACK)
    assert skipped.score(["a", "b"]) == plain.score(["a", "b"])
    assert skipped.estimation is not None
    assert skipped.estimation.skipped == 1


def test_text_files_part_words_at_spaces_tabs_returns_and_zeros(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("a b\r\n\r\n a\tb\0c  d\n\v\u00a0 x".encode() + b"\xff\xfe")
    model = NgramModel.estimate(path, 2, discount_fallback=FALLBACK)
    assert model.words[3:] == ["a", "b", "c", "d", "\v\u00a0", "x\udcff\udcfe"]
    assert model.estimation is not None
    assert (model.estimation.sentences, model.estimation.tokens) == (4, 8)  # an empty line is a sentence
    assert model.score(["x\udcff\udcfe"]) != model.score(["unseen"])
    model.write_arpa(path)
    assert NgramModel.load(path).words == model.words


def test_a_line_of_forty_thousand_words() -> None:
    long = [str(i % 999) for i in range(40_000)]
    model = NgramModel.estimate([long, ["a"]], 5, discount_fallback=FALLBACK, threads=2)
    assert model.counts == [1003, 1003, 1002, 1001, 1001]
    assert math.isfinite(model.score(long))


@pytest.mark.parametrize(
    ("sentences", "error", "message"),
    [
        (["a b"], TypeError, "sentence 0: expected a list of words, got the string 'a b'"),
        ("a b", TypeError, "expected lists of words or a Path, got a string"),
        ([["a"], ["b c"]], ValueError, r"sentence 1: expected non-empty words without white space, got \['b c'\]"),
        ([["a", ""]], ValueError, "sentence 0"),
        ([["a\n"]], ValueError, "sentence 0"),
        ([["\0"]], ValueError, "sentence 0"),
        ([], ValueError, "expected at least one sentence, got an empty text"),
    ],
)
def test_invalid_sentences_are_refused(sentences: list[list[str]], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        NgramModel.estimate(sentences, 2, discount_fallback=FALLBACK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 0}, "order: expected 1 to 6, got 0"),
        ({"order": 7}, "order: expected 1 to 6, got 7"),
        ({"threads": 0}, "threads: expected at least 1, got 0"),
        ({"prune": (2, 1)}, "prune: expected a threshold for each order, none smaller than the one before"),
        ({"prune": ()}, "prune: expected counts of at least 0"),
        ({"prune": (-1,)}, "prune: expected counts of at least 0"),
        ({"discount_fallback": (2.0, 1.0, 1.0)}, "discount_fallback: expected discounts from 0 to 1, 2 and 3, got 2"),
        ({"discount_fallback": (math.nan, 1.0, 1.0)}, "discount_fallback: expected discounts from 0"),
        ({"discount_fallback": None}, "the discounts of order 1 cannot be estimated: no n-gram has the adjusted count 2"),
    ],
)
def test_options_that_allow_no_estimate(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NgramModel.estimate([["a", "b"]], **{"order": 2, "discount_fallback": FALLBACK, **options})


def test_discounts_out_of_range_are_reported() -> None:
    words = [*"abcdefghij", *"kk", *"lll", *"mmm", *"nnn"]
    with pytest.raises(ValueError, match=r"the discounts of order 1 cannot be estimated: that of count 2 is -5\.\d+; .*fallback"):
        NgramModel.estimate([words], 1)


def test_too_little_memory_says_how_much_it_takes() -> None:
    corpus = [[str(i), str(i + 1)] for i in range(2000)]
    with pytest.raises(MemoryError, match=r"a text of 8000 words needs up to 0.01 GiB of memory.*raise the limit.*lmplz"):
        NgramModel.estimate(corpus, 3, memory_gib=0.00001)
    with pytest.raises(MemoryError, match=r"8000 words and 1\d+ n-grams needs up to 0.01 GiB of memory, more than the limit of"):
        NgramModel.estimate(corpus, 3, memory_gib=0.0002)
    NgramModel.estimate(corpus, 3, memory_gib=0.01, discount_fallback=FALLBACK)
