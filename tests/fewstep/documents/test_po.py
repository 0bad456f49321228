"""Messages of gettext: what is read of them, and files that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep.documents import po
from fewstep.documents.document import DocumentError, Unit, edited
from tests.shared import public_data

polib = pytest.importorskip("polib")

HEADER = 'msgid ""\nmsgstr ""\n"Language: fr\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
LANGUAGES = ("en", "fr")


def units(text: str | bytes, languages: tuple[str, str] | None = LANGUAGES, block: int = 7) -> list[Unit]:
    data = text.encode() if isinstance(text, str) else text
    return list(po.units((data[start : start + block] for start in range(0, len(data), block)), "f.po", languages))


def test_entries_by_their_rules() -> None:
    text = f"""# A title

{HEADER}#: a.c:1
#, c-format
msgid "one %s"
msgstr "un %s"

# by hand
#, c-format, fuzzy
#| msgid "old"
msgid "two"
msgstr "deux"

msgid "three"
msgstr ""

#~ msgid "four"
#~ msgstr "quatre"

msgctxt "menu"
msgid "one %s"
msgstr "autre"
msgid "one %s"
msgstr "encore"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d fichier"
msgstr[1] "%d quelques"
msgstr[2] "%d fichiers"

msgid ""
"several\\n"
"lines \\"x\\" \\303\\251 \\x41"
msgstr "plusieurs\\tlignes"
"""
    assert [unit[1:] for unit in units(text)] == [
        ("one %s", "un %s", ""),
        ("two", "deux", "fuzzy"),
        ("three", "", "untranslated"),
        ("four", "quatre", "obsolete"),
        ("one %s", "autre", ""),
        ("one %s", "encore", "repeated_id"),
        ("%d file", "%d fichier", ""),
        ("%d files", "%d fichiers", ""),
        ('several\nlines "x" é A', "plusieurs\tlignes", ""),
    ]
    lines = text.split("\n")
    assert [lines[unit.line - 1].partition(" ")[0] for unit in units(text)].count("msgid") == 7


def test_a_language_with_one_form_of_the_plural() -> None:
    text = 'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d ファイル"\n'
    assert [unit[1:3] for unit in units(text, None)] == [("%d file", "%d ファイル"), ("%d files", "%d ファイル")]


def test_a_file_of_the_opposite_direction_is_exchanged() -> None:
    text = HEADER + 'msgid "one"\nmsgstr "un"\n'
    assert units(text, ("fr", "en"))[0][1:3] == ("un", "one")
    assert units(text.replace("Language: fr", "Language: fr_CA.UTF-8"))[0][1:3] == ("one", "un")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + 'msgid "one"\n', "line 6: expected an entry with msgstr, got one with msgid; the file may be cut off"),
        (HEADER + 'msgid "one"\nmsgstr "u', "line 7: expected a comment, or a keyword"),
        (
            'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=n>1;\\n"\n\nmsgid "a"\nmsgid_plural "b"\nmsgstr[0] "c"\n',
            "line 6: expected an entry with 2 forms of its plural, got 1; the file may be cut off",
        ),
        (HEADER + "<html>", "line 6: expected a comment, or a keyword"),
        (HEADER + '"lost"\n', "line 6: expected msgid in front of the first string"),
        (HEADER + 'msgid "a"\nmsgstr "b"\nmsgstr "c"\n', "line 8: expected each keyword once in an entry, got msgstr again"),
        (HEADER + 'msgid "a"\nmsgid_plural "b"\nmsgstr "c"\n', "expected an entry with msgstr[0]"),
        (HEADER.replace("UTF-8", "ISO-8859-1"), "line 1: expected charset=UTF-8, got charset=ISO-8859-1; convert it (msgconv"),
        (HEADER.encode() + b'msgid "caf\xe9"\nmsgstr "x"\n', "line 6: expected UTF-8, got the byte 0xe9 in msgid"),
        (HEADER.replace("fr", "de"), "line 1: expected translations into fr, got Language: de"),
    ],
)
def test_what_is_no_file_of_messages_is_refused_with_its_line(text: str | bytes, message: str) -> None:
    with pytest.raises(DocumentError) as error:
        units(text)
    assert str(error.value).startswith("f.po, ")
    assert message in str(error.value)


def test_long_segments_are_read_and_entries_without_end_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "word " * 20_000
    assert units(f'msgid "{long}"\nmsgstr "{long}"\n', None, block=1 << 16)[0].source == long
    monkeypatch.setattr(po, "MAX_UNIT_BYTES", 10_000)
    with pytest.raises(DocumentError, match="line 1: expected an entry of at most 10,000 bytes"):
        units(f'msgid "{long}"\nmsgstr "{long}"\n', None, block=1 << 16)


def oracle(text: str) -> list[tuple[str, str]]:
    """Return the pairs of a file as polib reads it."""
    found = []
    for entry in polib.pofile(text):
        if entry.fuzzy or entry.obsolete:
            continue
        forms = [entry.msgstr_plural[key] for key in sorted(entry.msgstr_plural)]
        sides = [(entry.msgid, forms[0]), (entry.msgid_plural, forms[-1])] if forms else [(entry.msgid, entry.msgstr)]
        found += [pair for pair in sides if pair[1].strip()]
    return found


def pairs(text: str) -> list[tuple[str, str]]:
    return [(unit.source, unit.target) for unit in units(text, None, block=1 << 16) if not unit.skipped]


def test_real_files_are_read_as_by_polib() -> None:
    for path in sorted(public_data("po-fr").rglob("*.po")):
        assert pairs(path.read_text(encoding="utf-8")) == oracle(str(path)), path


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]) | st.sampled_from('\n\t"\\é'), max_size=30)


@given(st.lists(st.tuples(TEXT.filter(str.strip), TEXT), max_size=4, unique_by=lambda pair: pair[0]), st.booleans())
def test_written_messages_are_read_by_polib(given: list[tuple[str, str]], windows: bool) -> None:
    """Translations are written into a file that polib has made, and polib reads them."""
    file = polib.POFile(wrapwidth=40)
    file.metadata = {"Content-Type": "text/plain; charset=utf-8"}
    file.extend(polib.POEntry(msgid=source) for source, _ in given)
    data = str(file).encode().replace(b"\n", b"\r\n" if windows else b"\n")
    segments = po.segments(data, "f.po", LANGUAGES)
    assert [segment.text for segment in segments] == [source for source, _ in given]
    edits = [edit for segment, (_, target) in zip(segments, given, strict=True) for edit in segment.write(target, "")]
    written = edited(data, edits)
    assert [(entry.msgid, entry.msgstr) for entry in polib.pofile(written.decode().replace("\r\n", "\n"))] == given
    assert pairs(written.decode()) == [pair for pair in given if pair[1].strip()]
    without = b"".join(line for line in written.splitlines(keepends=True) if line in data)
    assert without.startswith(data.split(b"msgstr")[0])


def test_translations_are_wrapped_as_by_gettext() -> None:
    data = b'msgid "x"\nmsgstr ""\n'
    (segment,) = po.segments(data, "f.po", LANGUAGES)
    assert edited(data, segment.write("Un.\nDeux " + "mot " * 30, "")).decode() == (
        'msgid "x"\nmsgstr ""\n"Un.\\n"\n"Deux ' + "mot " * 17 + '"\n"' + "mot " * 13 + '"\n'
    )


def test_what_is_to_be_reviewed_is_fuzzy_with_the_reason() -> None:
    data = (
        b'# note\n#, c-format\nmsgid "x %s"\nmsgstr ""\n\nmsgid "y"\nmsgstr ""\n\n'
        b'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[1] ""\nmsgstr[2] ""\n'
    )
    segments = po.segments(data, "f.po", LANGUAGES)
    edits = [edit for segment in segments for edit in segment.write("z", "it lacks %s" if segment.text != "b" else "")]
    assert edited(data, edits).decode() == (
        '# fewstep: it lacks %s\n# note\n#, fuzzy, c-format\nmsgid "x %s"\nmsgstr "z"\n\n'
        '# fewstep: it lacks %s\n#, fuzzy\nmsgid "y"\nmsgstr "z"\n\n'
        "# fewstep: it lacks %s\n# fewstep: the forms 1 to 2 of the plural have one translation\n#, fuzzy\n"
        'msgid "a"\nmsgid_plural "b"\nmsgstr[0] "z"\nmsgstr[1] "z"\nmsgstr[2] "z"\n'
    )


def test_header_states_the_language() -> None:
    assert po.languages_of([HEADER.encode()], "f.po") == ["fr"]
    assert po.languages_of([b'msgid "a"\nmsgstr "b"\n'], "f.po") == []


def test_public_files_are_unchanged_by_no_edits() -> None:
    data = Path(public_data("po-fr") / "glossary.po").read_bytes()
    assert edited(data, []) == data
