"""Filters of pairs, and those that need optional packages."""

import json
import re
import sys
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep.text.subwords import join_subwords
from stages.artifacts import ExternalFile
from stages.corpus import CorpusConfig, CorpusInputs, FilterCommand, Filters, TextFiles, duplicates
from stages.corpus.filters import Cleaner, check_split, comparison_keys, usual_ratio
from stages.corpus.ledger import SAMPLES, Ledger
from stages.corpus.run import run
from stages.corpus.similarity import band_hashes
from stages.errors import DataError, StageError
from stages.shared.normalise import normalise
from stages.shared.shards import read_shards
from tests.stages.steps import context_in

# ---- filters


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SMALL_TEXT = st.text("aB ß.1", max_size=4)


def strings(*texts: str) -> pa.StringArray:
    return pa.array(texts, pa.string())


def pairs(*rows: tuple[str, str]) -> pa.Table:
    return pa.table([pa.array(side, pa.string()) for side in zip(*rows, strict=True)] if rows else [[], []], ["source", "target"])


def clean(
    *tables: pa.Table,
    excluded: tuple[str, ...] = (),
    languages: tuple[str, str] = ("en", "de"),
    usual: float | None = None,
    **filters: Any,
) -> tuple[Ledger, list[tuple[str, str]]]:
    """Return the ledger of a text and the pairs that are left. `usual` replaces the text's own ratio of lengths."""
    ratio = usual_ratio(tables) if usual is None else usual
    cleaner = Cleaner(Filters(**filters), *languages, comparison_keys(strings(*excluded)), ratio)
    ledger, kept = Ledger(), list[tuple[str, str]]()
    for table in tables:
        mask = ledger.enter(table, cleaner.masks(table), ledger.pairs_in)
        kept += [(row["source"], row["target"]) for row in table.filter(pa.array(mask)).to_pylist()]
    return ledger, kept


@pytest.mark.parametrize(
    ("filters", "pair", "reason"),
    [
        ({}, ("A man sleeps.", "Ein Mann schläft."), None), ({}, ("", "Ein Mann."), "empty"), ({}, ("A man.", ""), "empty"),
        ({"min_length": 2}, ("One", "Eins zwei"), "length"), ({"min_length": 2}, ("One two", "Eins zwei"), None),
        ({"max_length": 3}, ("one two three four", "eins zwei"), "length"),
        ({"max_length": 3}, ("one two three", "eins zwei drei"), None),
        ({"max_word_characters": 4}, ("abcde f", "ab cd"), "word"), ({"max_word_characters": 4}, ("abcd e f", "ab cd"), None),
        ({"max_ratio": 2.0}, ("abcd", "abcdefghi"), "ratio"), ({"max_ratio": 2.0}, ("abcd", "abcdefgh"), None),
        ({"max_ratio": 2.0}, ("über" * 2, "ub" * 2), None),
        ({"max_ratio": 1.0, "ratio": "target"}, ("a long document" * 20, "short"), None),
        ({"max_ratio": 1.0, "ratio": "target"}, ("as long as", "this is it"), None),
        ({"max_ratio": 1.0, "ratio": "target"}, ("a document", "more than it"), "ratio"),
        ({"max_ratio": 1.0, "ratio": "target"}, ("a document", ""), "empty"), ({"min_letters": 0.5}, ("ab 12", "gut so"), None),
        ({"min_letters": 0.5}, ("ab 123", "gut so"), "letters"), ({"min_letters": 0.5}, ("gut so", "- ! ? x"), "letters"),
        ({"min_letters": 1.0}, ("हिन्दी में", "auf Hindi"), None), ({}, ("Same text", "Same text"), "identical"),
        ({}, ("Same text", "same text"), None), ({"drop_identical": False}, ("Same text", "Same text"), None),
        ({}, ("It is: a TEST!", "anders"), "overlap"), ({}, ("anders", "it is a test"), "overlap"),
        ({}, ("Die STRASSE ist lang", "etwas anderes"), "overlap"), ({}, ("it is a testament", "anders gesagt hier"), None),
    ],
)  # fmt: skip
def test_reasons(filters: dict[str, Any], pair: tuple[str, str], reason: str | None) -> None:
    ledger, kept = clean(pairs(pair), excluded=("it is a test", "die Straße ist lang."), usual=1.0, **filters)
    assert {name: count for name, count in ledger.dropped.items() if count} == ({reason: 1} if reason else {})
    assert kept == ([] if reason else [pair])


def test_numbers_are_compared_without_their_separators() -> None:
    same = [
        ("It costs 1,000.50 today.", "Es kostet heute 1.000,50."), ("On 3 May", "Am 3. Mai"), ("٣ books", "3 Bücher"),
        ("Call 5 and 7.", "Ruf 7 und 5."), ("none", "keine"),
    ]  # fmt: skip
    other = [("In 1999 he came.", "1998 kam er."), ("two of 2", "zwei"), ("5 and 5", "nur 5")]
    ledger, kept = clean(pairs(*same, *other), same_numbers=True, usual=1.0, max_ratio=100.0)
    assert kept == same
    assert ledger.dropped["numbers"] == len(other)


def test_urls_are_compared() -> None:
    same = [("See https://a.example/b.", "Siehe https://a.example/b.")]
    other = [("See https://a.example/b.", "Siehe https://a.example/c."), ("See http://x.example", "Siehe dort")]
    ledger, kept = clean(pairs(*same, *other), same_urls=True, usual=1.0, max_ratio=100.0)
    assert kept == same
    assert ledger.dropped["urls"] == 2


PROGRAM = """
import sys
for number, line in enumerate(sys.stdin):
    source, target = line.rstrip("\\n").split("\\t")
    {}
"""


def command(body: str, **options: Any) -> FilterCommand:
    return FilterCommand(command=(sys.executable, "-c", PROGRAM.format(body)), version="1", **options)


GOOD, BAD = [("good one", "gut eins"), ("good two", "gut zwei")], [("bad one", "böse"), ("bad two", "böse")]


@pytest.mark.parametrize(
    "judge",
    [
        command("print(source, target, 0.9 if 'good' in source else 0.1, sep='\\t')", min_score=0.5),
        command("print(0.5 if 'good' in source else float('-inf'))", min_score=0.5),
        command("if 'good' in source: print(source, target, sep='\\t')"),
    ],
)
def test_a_program_judges_pairs(judge: FilterCommand) -> None:
    rows = [BAD[0], GOOD[0], ("", "leer"), BAD[1], GOOD[1]]
    ledger, kept = clean(pairs(*rows), commands=(judge,), usual=1.0)
    assert kept == GOOD
    assert (ledger.dropped["command"], ledger.dropped["empty"]) == (2, 1), "it does not see what other filters drop"


@pytest.mark.parametrize(
    ("judge", "error", "message"),
    [
        (command("print(1) if number else None", min_score=0.5), DataError, "expected 4 lines with a score, got 3"),
        (command("print('x')", min_score=0.5), DataError, "expected a number in the last column, got 'x'"),
        (command("print(source, target)"), DataError, "expected lines of the input, in their order, got 'good one gut eins'"),
        (command("sys.exit('no model')"), StageError, "expected status 0, got 1; its last messages: no model"),
        (FilterCommand(command=("no-such-program",), version="1"), StageError, "no-such-program: could not be run"),
    ],
)
def test_programs_that_do_something_else_are_named(judge: FilterCommand, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        clean(pairs(*GOOD, *BAD), commands=(judge,), usual=1.0)


def test_lengths_are_in_characters_for_languages_without_spaces() -> None:
    pair = ("I like it very much", "我非常喜欢它")
    for language in ("zh", "zh_CN", "zho"):
        assert clean(pairs(pair), languages=("en", language), min_length=5, max_ratio=4.0)[1] == [pair]
    assert clean(pairs(pair), languages=("en", "de"), min_length=5, max_ratio=4.0)[1] == []


def test_the_ratio_is_relative_to_the_median_of_the_text() -> None:
    english, chinese = "a sentence of some thirty letters", "\u53e5\u5b50" * 4  # a quarter of the characters
    rows = [(f"{english} {number}", f"{chinese}{number}") for number in range(1000)]
    unequal = [(english, chinese * 4), (english * 4, chinese)]  # four times the usual ratio, and a quarter of it
    tables = (pairs(*rows[:600]), pairs(*rows[600:], *unequal))
    ledger, kept = clean(*tables, languages=("en", "zh"), max_ratio=3.0)
    assert kept == rows
    assert ledger.dropped["ratio"] == 2
    assert 0.2 < usual_ratio(tables) < 0.35


@pytest.mark.parametrize("count", [1, 40])
def test_a_few_pairs_in_two_scripts_are_kept(count: int) -> None:
    rows = [(f"some words and {n} more of them", f"{n}" + "\u53e5\u5b50" * 3) for n in range(100, 100 + count)]
    assert clean(pairs(*rows), languages=("en", "zh"), max_ratio=3.0)[1] == rows


def test_words_without_end_are_dropped() -> None:
    good, word = ("A link: " + "x" * 1000, "Ein Verweis"), "x" * 1001
    ledger, kept = clean(pairs(good, (f"A key {word}", f"Ein Wort {word}!")), max_ratio=200.0, min_letters=0.1, usual=1.0)
    assert (ledger.dropped["word"], kept) == (1, [good])
    japanese = ("A document. " * 60, "\u53e5" * 1500)
    assert clean(pairs(japanese), languages=("en", "ja"), max_length=2000)[1] == [japanese]


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("Hello, world!", "hello world", True), ("HELLO world", "“hello” – world…", True), ("E-Mail", "email", True),
        ("Ⅻ", "ⅻ", True), ("Straße", "STRASSE", True), ("ΟΔΥΣΣΕΥΣ", "Οδυσσευς", True), ("e\u0301", "É", True),
        ("room 12", "room 13", False), ("haben", "häben", False), ("...", "!", False), ("...", "...", True),
        ("हिन्दी", "हिन्द", False),
    ],
)  # fmt: skip
def test_equal_comparison_keys(one: str, other: str, equal: bool) -> None:
    first, second = comparison_keys(normalise(strings(one, other))).to_pylist()
    assert (first == second) is equal


def test_keys_ignore_the_case_of_every_letter() -> None:
    letters = [chr(code) for code in range(0x250) if chr(code).isalpha()] + [chr(code) for code in range(0x370, 0x590)]
    letters = [c for c in letters if unicodedata.normalize("NFC", c) == c and c.isalpha()]
    plain, upper, folded = (comparison_keys(normalise(strings(*(f(c) for c in letters)))) for f in (str, str.upper, str.casefold))
    assert [c for c, a, b in zip(letters, plain.to_pylist(), folded.to_pylist(), strict=True) if a != b] == []
    # The dotless i is the one letter whose capital folds to another letter.
    assert [c for c, a, b in zip(letters, plain.to_pylist(), upper.to_pylist(), strict=True) if a != b] in ([], ["ı"])


def test_samples_are_the_first_ones() -> None:
    ledger, _ = clean(pairs(*[("", f"x{i}") for i in range(3)]), pairs(*[("", f"x{i}") for i in range(3, 9)]))
    assert [sample["target"] for sample in ledger.samples["empty"]] == [f"x{i}" for i in range(SAMPLES)]
    assert [sample["pair"] for sample in ledger.samples["empty"]] == [1, 2, 3, 4, 5]


@given(st.permutations(range(6)))
def test_ledgers_of_parts_add_up_in_any_order(order: list[int]) -> None:
    rows = [("" if i % 2 else "one of the words", f"eines {i}") for i in range(30)]
    tables = [pairs(*rows[start : start + 5]) for start in range(0, 30, 5)]
    cleaner, whole = Cleaner(Filters(), "en", "de", comparison_keys(strings()), 1.0), Ledger()
    for number in order:
        part = Ledger()
        part.enter(tables[number], cleaner.masks(tables[number]), 5 * number)
        whole.add(part)
    assert whole == clean(*tables)[0]


# ---- optional packages


FOX = "the quick brown fox that jumped over the lazy dog went on to the old farm behind the hill and slept there until noon"
LONG = FOX.split()


def write(folder: Path, pairs: list[tuple[str, str]], piece_rows: int = 1000, **filters: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the sources that are kept, and the ledger."""
    folder.mkdir(parents=True)
    (folder / "in").write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    config = CorpusConfig(source_language="en", target_language="de", filters=Filters(**filters), shard_rows=5)
    inputs = CorpusInputs(TextFiles(tsv=(ExternalFile(folder / "in", "in"),)))
    run(inputs, config, context_in(folder / "out"), piece_rows)
    kept = [source for table in read_shards(folder / "out") for source in table["source"].to_pylist()]
    return kept, json.loads((folder / "out" / "ledger.json").read_text())


def test_pairs_in_another_language_are_dropped(tmp_path: Path) -> None:
    pytest.importorskip("py3langid", reason="languages are identified by py3langid (pip install py3langid)")
    good = [
        ("The weather will be fine tomorrow in the whole country.", "Das Wetter wird morgen im ganzen Land schön sein."),
        ("Hello", "Hallo"),
    ]
    wrong = [
        ("Le temps sera beau demain dans tout le pays.", "Das Wetter wird morgen im ganzen Land sehr schön sein."),
        ("The weather will be very fine tomorrow in the country.", "The weather will be fine tomorrow in the whole land."),
    ]
    kept, ledger = write(tmp_path / "on", [*good, *wrong], max_other_language=0.8)
    assert kept == [source for source, _ in good]
    assert ledger["dropped"]["language"] == 2
    assert [sample["pair"] for sample in ledger["samples"]["language"]] == [3, 4]
    kept, ledger = write(tmp_path / "off", [*good, *wrong])
    assert len(kept) == 4
    assert "language" not in ledger["dropped"]


def test_a_language_that_the_package_does_not_know_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("py3langid", reason="languages are identified by py3langid (pip install py3langid)")
    config = CorpusConfig(source_language="en", target_language="tlh", filters=Filters(max_other_language=0.8))
    (tmp_path / "in").write_text("a\tb\n")
    with pytest.raises(DataError, match=r"max_other_language .* does not know the language tlh"):
        run(CorpusInputs(TextFiles(tsv=(ExternalFile(tmp_path / "in", "in"),))), config, context_in(tmp_path / "out"))


def test_near_duplicates_are_dropped_after_the_first(tmp_path: Path) -> None:
    pytest.importorskip("datasketch", reason="near-duplicates are found by datasketch (pip install datasketch)")
    first = (" ".join(LONG), " ".join(reversed(LONG)))
    almost = (f"{first[0]}.", first[1])
    other = (" ".join(LONG[::2]), " ".join(LONG[1::2]))
    kept, ledger = write(tmp_path / "on", [first, other, almost, first], max_similarity=0.7)
    assert kept == [first[0], other[0]]
    assert {reason: ledger["dropped"][reason] for reason in ("duplicate", "similar")} == {"duplicate": 1, "similar": 1}
    assert ledger["samples"]["similar"] == [{"pair": 3, "source": almost[0], "target": almost[1], "file": 1, "line": 3}]
    kept, ledger = write(tmp_path / "alone", [first, other, almost, first], max_similarity=0.7, drop_duplicates=False)
    assert kept == [first[0], other[0]]
    assert ledger["dropped"]["similar"] == 2


@given(
    edits=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 22)), min_size=1, max_size=25),
    piece_rows=st.integers(1, 30),
    partition=st.integers(1, 50),
)
def test_any_pieces_find_the_pairs_that_share_a_band(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int]], piece_rows: int, partition: int
) -> None:
    pytest.importorskip("datasketch", reason="near-duplicates are found by datasketch (pip install datasketch)")
    folder = tmp_path_factory.mktemp("similar")
    pairs = []
    for start, edit in edits:
        words = [*LONG[start * 7 :], *LONG[: start * 7]]
        words[edit] = "other" if edit % 3 else words[edit]
        pairs.append((" ".join(words), " ".join(words[::-1])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "PARTITION_KEYS", partition)
        kept, ledger = write(folder / "some", pairs, piece_rows, max_similarity=0.7, drop_duplicates=False)
    sides = [pa.array(side, pa.string()) for side in zip(*pairs, strict=True)]
    keys = band_hashes(pa.table(sides, ["source", "target"]), ("en", "de"), 0.7)
    similar = [any(np.isin(keys[row], keys[:row])) for row in range(len(pairs))]
    assert kept == [source for (source, _), dropped in zip(pairs, similar, strict=True) if not dropped]
    assert ledger["dropped"]["similar"] == sum(similar)


# ---- text that is split into tokens already

NAMES = {"source": "train.en", "target": "train.de"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("\u2581the \u2581cat", "tokens separated by spaces, without the mark \u2581 of SentencePiece"),
        ("a b un@@", "a whole word at the end of a line, without @@"),
        ("a b un@@ ", "a whole word at the end of a line, without @@"),
        ("@@", "a whole word at the end of a line, without @@"),
    ],
)
def test_other_text_is_refused_by_file_pair_and_side(line: str, expected: str) -> None:
    good = pa.table({"source": ["a@@ b", "c"], "target": ["a @@ b", ""]})
    check_split(good, 0, NAMES.__getitem__)
    bad = pa.table({"source": ["a@@ b", "c"], "target": ["a", line]})
    with pytest.raises(DataError) as raised:
        check_split(bad, 10, NAMES.__getitem__)
    assert str(raised.value).startswith(f"train.de, pair 12 (target): expected {expected}, got {line.rstrip()!r}; ")


@pytest.mark.parametrize(
    ("text", "joined"),
    [("un@@ like@@ ly .", "unlikely ."), ("a @@ b", "a b"), ("cut of@@", "cut of"), ("a@@b c", "a@@b c"), ("", "")],
)
def test_subwords_are_joined(text: str, joined: str) -> None:
    assert join_subwords(text) == joined
