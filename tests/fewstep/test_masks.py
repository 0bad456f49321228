"""Masks of placeholders: what they stand for, in pairs and in the vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

import fewstep
from fewstep.system import system as of_systems
from fewstep.text.masks import COUNT, KINDS, complete, kinds_of, mask, mask_pair, restored, settle, symbols
from fewstep.text.placeholders import changes, placeholders
from stages.shared.decoding.text import hypothesis_table
from stages.vocabulary import VocabularyConfig
from stages.vocabulary.run import train_pieces

PARTS = [
    "%s",
    "%(a)d",
    "{0}",
    "`x`",
    "``y z``",
    "https://a.b/c",
    "<b>",
    "</b>",
    ":ref:`x`",
    "&nbsp;",
    "12",
    "1,5",
    "⟦code1⟧",
    "word",
    "x%",
]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=12).map(" ".join)


@pytest.mark.parametrize(
    ("text", "kinds", "masked"),
    [
        ("a %s b `x` %s {0}", KINDS, "a ⟦directive1⟧ b ⟦code1⟧ ⟦directive1⟧ ⟦directive2⟧"),
        ("see :py:func:`len` at https://a.b.", KINDS, "see ⟦reference1⟧ at ⟦url1⟧."),
        ("a :term:`list` of :ref:`some text`", KINDS, "a ⟦role1⟧`list` of ⟦role2⟧`some text`"),
        ("12 or 1,234.5 not v2 or 3rd", KINDS, "⟦number1⟧ or ⟦number2⟧ not v2 or 3rd"),
        ("12 `x` <b>", ["tag"], "12 `x` ⟦tag1⟧"),
        ("`%s` 5 %", ["directive", "number"], "`%s` ⟦number1⟧ %"),
        ("a ⟦code1⟧ `x`", KINDS, "a ⟦code1⟧ ⟦code2⟧"),
        ("nothing", KINDS, "nothing"),
        ("%s", [], "%s"),
        ("参照：https://a.b/を、%s個の`x`と:ref:`y`。", KINDS, "参照：⟦url1⟧を、⟦directive1⟧個の⟦code1⟧と⟦reference1⟧。"),
        ("a`x` é:ref:`y` %sé https://a.b/é", KINDS, "a`x` é:ref:`y` %sé ⟦url1⟧"),
    ],
)
def test_masks_have_the_kind_and_the_number_of_their_placeholder(text: str, kinds: list[str], masked: str) -> None:
    found = mask(text, kinds)
    assert found.text == masked
    assert restored(found.text, found.values) == text


def test_further_placeholders_of_a_kind_stay() -> None:
    text = " ".join(f"`x{number}`" for number in range(COUNT + 2))
    found = mask(text, KINDS)
    assert found.text.endswith(f"⟦code{COUNT}⟧ `x{COUNT}` `x{COUNT + 1}`")
    assert restored(found.text, found.values) == text


@given(TEXTS)
def test_a_masked_text_is_restored(text: str) -> None:
    found = mask(text, KINDS)
    assert restored(found.text, found.values) == text
    assert len(set(found.values.values())) == len(found.values)


def test_an_output_in_another_order_is_restored_and_invented_masks_are_left_out() -> None:
    found = mask("put %s into `x`", KINDS)
    assert restored("dans ⟦code1⟧ ⟦directive1⟧ ⟦url1⟧.", found.values) == "dans `x` %s ."


@given(TEXTS, TEXTS)
def test_pairs_have_masks_for_what_both_sides_have_equally_often(source: str, target: str) -> None:
    masked, other = mask_pair(source, target, KINDS)
    assert restored(masked.text, masked.values) == source
    assert restored(other, masked.values) == target
    names = [
        Counter(name for name in symbols(KINDS) for _ in range(text.count(name) - side.count(name)))
        for text, side in ((masked.text, source), (other, target))
    ]
    assert names[0] == names[1]


def test_a_vocabulary_states_the_kinds_of_its_masks() -> None:
    lines = [f"some words here {number}" for number in range(200)]
    config = VocabularyConfig(size=60, placeholders=("code", "url"))
    pieces = SentencePieceProcessor(model_proto=train_pieces(iter(lines), config))
    assert kinds_of(pieces) == ("code", "url")
    text = "some ⟦code1⟧ here⟦url2⟧words"
    assert pieces.decode(pieces.encode(text)) == text
    assert {"⟦code1⟧", "⟦url2⟧"} <= set(pieces.encode(text, out_type=str))
    plain = SentencePieceProcessor(model_proto=train_pieces(iter(lines), VocabularyConfig(size=44)))
    assert kinds_of(plain) == ()


def test_changes_name_what_is_lost_and_what_is_new() -> None:
    counts = [Counter(one[0] for one in placeholders(text)) for text in ("%s %s `x`", "%s `y`")]
    assert changes(*counts) == "the translation lacks %s, `x` and has `y` in addition"
    assert changes(counts[0], counts[0]) == ""


@pytest.fixture(scope="module")
def masking(systems: dict[str, Path]) -> fewstep.System:
    """A system whose vocabulary has masks, and whose network copies its source backwards."""
    config = VocabularyConfig(size=60, placeholders=("code", "directive"))
    pieces = SentencePieceProcessor(model_proto=train_pieces((f"some words here {n}" for n in range(200)), config))
    system = fewstep.load(systems["autoregressive"])
    return replace(system, source_pieces=pieces, target_pieces=pieces, masks=kinds_of(pieces), max_source_tokens=99)


def test_a_system_translates_masks_and_returns_placeholders(masking: fewstep.System, monkeypatch: pytest.MonkeyPatch) -> None:
    def backwards(_: object, sources: Sequence[Sequence[int]], *__: object, **___: object) -> list[list[fewstep.Hypothesis]]:
        return [[fewstep.Hypothesis(list(reversed(ids)), 0.0, 1)] for ids in sources]

    monkeypatch.setattr(of_systems, "decode_sentences", backwards)
    lines = ["some %s words", "here `x` %d `y`", "words"]
    assert masking.translate(lines) == ["sdrow %s emos ", "`y` %d `x` ereh ", "sdrow "]
    ids = masking.encode(lines)
    read = [masking.source_pieces.decode(one) for one in ids]
    assert read == ["some ⟦directive1⟧ words", "here ⟦code1⟧ ⟦directive1⟧ ⟦code2⟧", "words"]
    table = hypothesis_table(masking, [3, 5, 7], lines, ids, masking.decode(ids))
    assert table["text"].to_pylist() == masking.translate(lines)
    assert masking.decode_ids(ids)[0] == "some ⟦directive1⟧ words"


def test_a_system_without_masks_reads_its_text_as_it_is(systems: dict[str, Path]) -> None:
    system = fewstep.load(systems["autoregressive"])
    assert system.masks == ()
    assert system.encode(["ein %s hund"]) == [system.source_pieces.encode("ein %s hund")]


def test_thousands_of_lost_placeholders_are_counted_and_not_put_back() -> None:
    """Putting them back takes cubic time: 400 take 5 s."""
    source = " ".join(f"{{a{number}}}" for number in range(3000))
    assert settle(source, "a dog", KINDS, spaced=True) == ("a dog", 3000)
    text, missing = complete("⟦code1⟧ " * 3000, "a dog", spaced=True)
    assert (text.count("⟦code1⟧"), missing) == (100, 3000)
