"""Translation memories and XLIFF: what is read of them, what is written, and documents that are refused."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep.documents import elements, tmx, xliff
from fewstep.documents.document import DocumentError, Segment, Unit, edited
from fewstep.documents.markup import Inline, ShortTags

LANGUAGES = ("en", "fr")
PROLOGUE = '<?xml version="1.0" encoding="UTF-8"?>\n'
TMX = PROLOGUE + '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header srclang="en"/><body>\n{}\n</body></tmx>\n'
XLIFF1 = (
    PROLOGUE + '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n'
    '<file original="a" source-language="en-US" target-language="fr"><body>\n{}\n</body></file></xliff>\n'
)
XLIFF2 = (
    PROLOGUE + '<xliff version="2.1" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="fr-FR">\n'
    '<file id="f">\n{}\n</file></xliff>\n'
)
Read = Callable[..., Iterator[Unit]]


def read(units: Read, text: str | bytes, languages: tuple[str, str] | None = LANGUAGES, block: int = 11) -> list[Unit]:
    data = text.encode() if isinstance(text, str) else text
    return list(units([data[start : start + block] for start in range(0, len(data), block)], "f.xml", languages))


def tuv(language: str, text: str) -> str:
    return f'<tuv xml:lang="{language}"><prop type="x">1</prop><seg>{text}</seg></tuv>'


def test_units_of_a_memory_by_their_rules() -> None:
    text = TMX.format(
        "\n".join(
            [
                f"<tu>{tuv('en-GB', 'colour &lt;x&gt;')}{tuv('fr', 'couleur')}{tuv('de', 'Farbe')}</tu>",
                f"<tu tuid='1'>{tuv('en-US', 'a <ph x=&quot;1&quot;/>'.replace('&quot;', chr(34)))}{tuv('FR_ca', 'b')}</tu>",
                f"<tu tuid='1'>{tuv('en', 'only')}{tuv('de', 'nur')}</tu>",
                f"<tu>{tuv('en', 'empty')}{tuv('fr', ' ')}</tu>",
                f"<tu>{tuv('en-US', 'first')}{tuv('en', 'exact')}{tuv('fr', 'le même')}</tu>",
                "<tu><tuv xml:lang='en'><seg>two\nlines</seg></tuv><tuv lang='fr'><seg><![CDATA[<deux>]]></seg></tuv></tu>",
                f"<tu>{tuv('en', 'nothing')}<tuv xml:lang='fr'><seg/></tuv></tu>",
            ]
        )
    )
    found = read(tmx.units, text)
    assert [unit[1:] for unit in found] == [
        ("colour <x>", "couleur", ""),
        ('a <ph x="1"/>', "b", ""),
        ("only", "", "no_language"),
        ("empty", " ", "untranslated"),
        ("exact", "le même", ""),
        ("two\nlines", "<deux>", ""),
        ("nothing", "", "untranslated"),
    ]
    assert [unit.line for unit in found] == [4, 5, 6, 7, 8, 9, 11]
    assert [unit.skipped for unit in read(tmx.units, text, ("en-US", "fr"))].count("") == 2
    assert tmx.languages_of([text.encode()], "f.tmx") == ["en-GB", "fr", "de", "en-US", "FR_ca", "en"]


def test_units_of_xliff_1_by_their_rules() -> None:
    def unit(number: int, inner: str, more: str = "") -> str:
        return f'<trans-unit id="{number}"{more}>\n  <source>text {number}</source>{inner}\n</trans-unit>'

    text = XLIFF1.format(
        "\n".join(
            [
                unit(1, "<target>texte</target>"),
                unit(2, '<target state="needs-review-translation">texte</target>'),
                unit(3, '<target state="new">text 3</target>'),
                unit(4, ""),
                unit(5, "<target/>"),
                unit(6, "<target>texte</target>", ' translate="no"'),
                unit(1, "<target>autre</target>"),
                unit(7, "<alt-trans><source>x</source><target>y</target></alt-trans>"),
                unit(
                    8,
                    '<seg-source><mrk mtype="seg" mid="1">text 8</mrk></seg-source>'
                    '<target><mrk mtype="seg" mid="1">a</mrk></target>',
                ),
                f'<group translate="no">{unit(9, "<target>z</target>")}</group>',
            ]
        )
    )
    found = read(xliff.units, text)
    assert [unit[2:] for unit in found] == [
        ("texte", ""),
        ("texte", "fuzzy"),
        ("text 3", "untranslated"),
        ("", "untranslated"),
        ("", "untranslated"),
        ("texte", "not_for_translation"),
        ("autre", "repeated_id"),
        ("", "untranslated"),
        ("a", ""),
        ("z", "not_for_translation"),
    ]
    assert found[0].line == 4
    assert read(xliff.units, text, ("fr", "en"))[0][1:3] == ("texte", "text 1")
    assert xliff.languages_of([text.encode()], "f.xlf") == ["en-US", "fr"]


def test_segments_of_xliff_2_by_their_rules() -> None:
    text = XLIFF2.format(
        '<unit id="1"><notes><note>n</note></notes><segment><source>a <pc id="1">b</pc></source><target>c</target></segment>'
        '<ignorable><source> </source></ignorable><segment state="initial"><source>d</source><target>e</target></segment>'
        '<segment state="final"><source>f</source></segment></unit>\n'
        '<unit id="2" translate="no"><segment><source>g</source><target>h</target></segment></unit>'
        '<unit id="1"><segment><source>i</source><target>j</target></segment></unit>'
    )
    assert [unit[1:] for unit in read(xliff.units, text)] == [
        ('a <pc id="1">b</pc>', "c", ""),
        ("d", "e", "fuzzy"),
        ("f", "", "untranslated"),
        ("g", "h", "not_for_translation"),
        ("i", "j", "repeated_id"),
    ]
    prefixed = text.replace("<", "<x:").replace("<x:/", "</x:").replace("<x:?", "<?")
    assert [unit[2:] for unit in read(xliff.units, prefixed)][1:] == [unit[2:] for unit in read(xliff.units, text)][1:]


BOMB = '<!DOCTYPE tmx [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]>\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            TMX.format("<tu>").partition("</body>")[0],
            "line 5: expected well-formed XML, got: no element found; the file may be cut off",
        ),
        (TMX.format("")[:70], "line 2: expected well-formed XML, got: unclosed token; the file may be cut off"),
        (TMX.format("<tu></tuv>"), "line 4: expected well-formed XML, got: mismatched tag; repair the file"),
        (BOMB + "<tmx><tu>&b;</tu></tmx>", "line 1: expected no declarations of entities, got that of 'a'"),
        ('<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n<tmx/>', "line 1: expected no declarations of entities"),
        ('<!DOCTYPE tmx [<!ENTITY % x SYSTEM "http://localhost/">%x;]>\n<tmx/>', "expected no declarations of entities"),
        (
            TMX.format("<tu><tuv xml:lang='en'><seg>&nbsp;</seg></tuv></tu>"),
            "line 4: expected no entities but those of XML, got &nbsp;",
        ),
        ("<tmx>&nbsp;</tmx>", "line 1: expected well-formed XML, got: undefined entity"),
        (TMX.encode()[:120] + b"\xff", "line 3: expected text in the encoding of the document, got an invalid byte"),
        (TMX.replace("UTF-8", "ISO-8859-1"), "line 1: expected UTF-8 or UTF-16, got encoding iso-8859-1; convert it first"),
        ("<html/>", "line 1: expected the element tmx, got html; it is no TMX file"),
        (TMX.format("<tu><tuv><seg>a</seg></tuv></tu>"), "line 4: expected a tuv with xml:lang, got one without"),
        (
            TMX.format(f"<tu>{tuv('en', 'a')}{tuv('de', 'b')}</tu>"),
            "f.xml: expected units in en and fr, got en, de; leave the file out",
        ),
        ("<tmx>" + "<a>" * 300 + "</a>" * 300 + "</tmx>", "line 1: expected at most 256 elements inside each other, got more"),
        ("", "line 1: expected well-formed XML, got: no element found"),
    ],
)
def test_what_is_no_memory_is_refused_with_its_line(text: str | bytes, message: str) -> None:
    with pytest.raises(DocumentError) as error:
        read(tmx.units, text)
    assert str(error.value).startswith("f.xml")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<tmx/>", "line 1: expected the element xliff, got tmx; it is no XLIFF file"),
        (XLIFF1.replace('"1.2"', '"3.0"'), "line 2: expected XLIFF 1.2 or 2.x, got version 3.0"),
        (XLIFF1.replace('"fr"', '"de"'), "line 3: expected a file in en and fr, got en-US and de"),
        (XLIFF2.format("<unit>")[:-10], "expected well-formed XML, got:"),
        (
            XLIFF1.format('<trans-unit id="1"><source>a</source><target>b</target>\n<target>c</target></trans-unit>'),
            "line 5: expected one target in a unit, got another one",
        ),
    ],
)
def test_what_is_no_xliff_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(DocumentError) as error:
        read(xliff.units, text)
    assert message in str(error.value)


def test_a_memory_in_utf_16_is_read() -> None:
    text = TMX.replace("UTF-8", "UTF-16").format(f"<tu>{tuv('en', 'a 日𝄞')}{tuv('fr', 'é')}</tu>")
    assert read(tmx.units, text.encode("utf-16"))[0][1:3] == ("a 日𝄞", "é")


def test_units_without_end_are_refused_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "MAX_UNIT_BYTES", 10_000)
    text = TMX.format(f"<tu>{'<!-- x -->' * 5_000}{tuv('en', 'a' * 100_000)}{tuv('fr', 'b')}</tu>")
    with pytest.raises(DocumentError, match="line 4: expected units of at most 10,000 bytes"):
        read(tmx.units, text, block=4096)
    monkeypatch.undo()
    assert len(read(tmx.units, text, block=4096)[0].source) == 100_000


def written(
    segments: list[Segment], data: bytes, translate: Callable[[str], str], problem: str = "", *, every: bool = False
) -> str:
    edits = [edit for one in segments if every or not one.translated for edit in one.write(translate(one.text), problem)]
    return edited(data, edits).decode()


PH = 'a &amp; <ph x="1"/>'


def test_translations_are_written_into_a_memory() -> None:
    text = TMX.format(
        f"<tu>\n  {tuv('en', PH)}\n</tu>\n<tu>{tuv('en', 'b')}{tuv('fr-FR', '')}</tu>\n<tu>{tuv('en', 'c')}{tuv('fr-FR', 'C')}</tu>"
    )
    data = text.encode()
    segments = tmx.segments(data, "f.tmx", LANGUAGES)
    assert [(segment.text, segment.translated) for segment in segments] == [('a & <ph x="1"/>', False), ("b", False), ("c", True)]
    assert written(segments, data, lambda text: f"<é> {text}") == text.replace(
        "/></seg></tuv>\n</tu>", '/></seg></tuv>\n  <tuv xml:lang="fr-FR"><seg>&lt;é&gt; a &amp; <ph x="1"/></seg></tuv>\n</tu>'
    ).replace("<seg></seg>", "<seg>&lt;é&gt; b</seg>")
    assert "<note>fewstep: lacks</note><seg>x</seg>" in written(segments, data, lambda _: "x", "lacks")


def test_translations_are_written_into_xliff_1() -> None:
    text = XLIFF1.format(
        '<trans-unit id="1">\r\n  <source>a <g id="1">b</g></source>\r\n</trans-unit>\n'
        '<trans-unit id="2"><source>c</source><target state="needs-translation" x="y"/></trans-unit>\n'
        '<trans-unit id="3"><source>d</source><target>D</target></trans-unit>'
    )
    data = text.encode()
    segments = xliff.segments(data, "f.xlf", LANGUAGES)
    assert written(segments, data, str.upper) == text.replace(
        "</g></source>\r\n", '</g></source>\r\n  <target>A &lt;G ID="1"&gt;B&lt;/G&gt;</target>\r\n'
    ).replace('<target state="needs-translation" x="y"/>', '<target state="translated" x="y">C</target>')
    marked = written(segments, data, lambda text: text, "lacks <g>")
    assert (
        '<target state="needs-review-translation">a <g id="1">b</g></target>\r\n  <note from="fewstep">lacks &lt;g&gt;</note>'
        in marked
    )
    assert '<target state="needs-review-translation" x="y">c</target><note from="fewstep">' in marked


@pytest.mark.parametrize(
    ("source", "target", "pair"),
    [
        (
            '<bpt i="0" x="1">&lt;b&gt;</bpt>a<ept i="0">&lt;/b&gt;</ept> <ph x="2">%s</ph>',
            '<ph x="2">%s</ph> <bpt i="1" x="1">&lt;b&gt;</bpt>A<ept i="1">&lt;/b&gt;</ept>',
            ("<x1/>a<x2/> <x3/>", "<x3/> <x1/>A<x2/>"),
        ),
        ("<ph>1</ph>a<ph>1</ph>", '<ph>1</ph>A<ph i="0">1</ph><ph>2</ph>', ("<x1/>a<x1/>", "<x1/>A<x2/><x3/>")),
        ('<ph i="0">1</ph><ph i="1">1</ph>', '<ph i="2">1</ph><ph i="1">1</ph>', ("<x1/><x2/>", "<x1/><x2/>")),
        ('<ph i="0">1</ph>', "&lt;x1/&gt; A", ("<xx1/>", "<x1/> A")),
        ('&lt;x&gt; <ph x="0"/><ph>%d</ph>', "A", ('<x> <ph x="0"/><xx1/>', "A")),
        ('a<g id="1"></g>', '<g id="1"></g> <g id="2">A</g>', ("a<x1/>", '<x1/> <g id="2">A</g>')),
    ],
)
def test_an_element_with_content_is_one_placeholder_of_a_pair(source: str, target: str, pair: tuple[str, str]) -> None:
    memory = TMX.format(f"<tu>{tuv('en', source)}{tuv('fr', target)}</tu>")
    assert read(tmx.units, memory)[0][1:3] == pair
    unit = f'<trans-unit id="1"><source>{source}</source><target>{target}</target></trans-unit>'
    assert read(xliff.units, XLIFF1.format(unit))[0][1:3] == pair
    opposite = XLIFF1.format(unit).replace("en-US", "fr").replace('target-language="fr"', 'target-language="en"')
    assert read(xliff.units, opposite)[0].target == read(tmx.units, memory, ("fr", "en"))[0].target


def mrk(mid: int, text: str) -> str:
    return f'<mrk mtype="seg" mid="{mid}">{text}</mrk>'


DIVIDED = (
    '<trans-unit id="{}"><source>First. <g id="1">Second.</g></source>\n'
    f'  <seg-source>{mrk(0, "First.")} <g id="1">{mrk(1, "Second.")}</g>{mrk(2, " ")}</seg-source>{{}}</trans-unit>'
)
WRITTEN = f'{mrk(0, "FIRST.")} <g id="1">{mrk(1, "SECOND.")}</g>{mrk(2, " ")}</target>'


@pytest.mark.parametrize(
    ("before", "after", "states"),
    [
        ("", f"<target>{WRITTEN}", ["untranslated", "untranslated"]),
        ('<target xml:lang="fr" />', f'<target xml:lang="fr">{WRITTEN}', ["untranslated", "untranslated"]),
        ('<target state="new">First.</target>', f'<target state="translated">{WRITTEN}', ["untranslated"]),
        (
            f'<target>{mrk(0, "Un.")} <g id="1"><mrk mtype="seg" mid="1" /></g></target>',
            f'<target>{mrk(0, "Un.")} <g id="1">{mrk(1, "SECOND.")}</g></target>',
            ["", "untranslated"],
        ),
        (f"<target>{mrk(0, 'Un.')}</target>", f"<target>{mrk(0, 'Un.')} {mrk(1, 'SECOND.')}</target>", ["", "untranslated"]),
        (f"<target>{mrk(1, 'Deux.')}</target>", f"<target>{mrk(0, 'FIRST.')} {mrk(1, 'Deux.')}</target>", ["untranslated", ""]),
        ("<target>Un. Deux.</target>", "<target>Un. Deux.</target>", [""]),
        (f"<target>{mrk(7, 'Un. Deux.')}</target>", f"<target>{mrk(7, 'Un. Deux.')}</target>", [""]),
    ],
)
def test_targets_have_the_marks_of_their_segments(before: str, after: str, states: list[str]) -> None:
    """CAT tools find a translation by the mark that has the `mid` of its source."""
    data = XLIFF1.format(DIVIDED.format(1, before)).encode()
    segments = xliff.segments(data, "f.xlf", LANGUAGES)
    assert [one.text for one in segments] == ["First.", "Second."]
    changed = written(segments, data, str.upper)
    assert changed == XLIFF1.format(DIVIDED.format(1, after))
    assert all(one.translated for one in xliff.segments(changed.encode(), "f.xlf", LANGUAGES))
    assert [unit.skipped for unit in read(xliff.units, data)] == states
    whole = written(segments, data, str.upper, every=True)
    assert [unit[2:] for unit in read(xliff.units, whole)] == [("FIRST.", ""), ("SECOND.", "")]
    ET.fromstring(whole)


def test_a_unit_is_reviewed_if_one_of_its_segments_is() -> None:
    data = XLIFF1.format(DIVIDED.format(1, '<target state="new"/>')).encode()
    for first, second in (("lacks", ""), ("", "lacks")):
        one, other = xliff.segments(data, "f.xlf", LANGUAGES)
        changed = edited(data, [*one.write("a", first), *other.write("b", second)]).decode()
        assert changed.count('<target state="needs-review-translation"><mrk') == 1
        assert changed.count('</target><note from="fewstep">lacks</note></trans-unit>') == 1


def test_what_tools_state_of_segments() -> None:
    text = XLIFF1.replace("<xliff", '<xliff xmlns:sdl="s" xmlns:mq="q" xmlns:m="m"').format(
        DIVIDED.format(1, f"<target>{mrk(0, 'Un.')}{mrk(1, 'Deux.')}</target>").replace(
            "</trans-unit>",
            '<sdl:seg-defs><sdl:seg id="0" conf="Draft"/><sdl:seg id="1" conf="Translated" /></sdl:seg-defs></trans-unit>',
        )
        + '<trans-unit id="2" mq:status="PreTranslated"><source>a</source><target>b</target></trans-unit>'
        + '<trans-unit id="3" m:confirmed="0" status="Rejected"><source>c</source><target>d</target></trans-unit>'
        + '<trans-unit id="4" m:confirmed="1" m:locked="true"><source>e</source><target>f</target></trans-unit>'
    )
    assert [unit.skipped for unit in read(xliff.units, text)] == ["fuzzy", "", "fuzzy", "fuzzy", ""]
    segments = xliff.segments(text.encode(), "f.xlf", LANGUAGES)
    assert [one.text for one in segments] == ["First.", "Second.", "a", "c"], "what is locked stays"
    changed = written(segments[1:2], text.encode(), str.upper, every=True)
    assert changed == text.replace("Deux.", "SECOND.").replace('conf="Translated"', 'conf="Draft"')


def test_translations_are_written_into_xliff_2() -> None:
    text = XLIFF2.format(
        '<unit id="1">\n  <segment state="initial">\n    <source>a</source>\n  </segment>'
        "<segment><source>b</source></segment></unit>\n"
        '<unit id="2"><notes><note>n</note></notes><segment><source>c</source><target>C</target></segment></unit>'
    )
    data = text.encode()
    segments = xliff.segments(data, "f.xlf", LANGUAGES)
    assert written(segments, data, str.upper) == text.replace('state="initial"', 'state="translated"').replace(
        "<source>a</source>", "<source>a</source>\n    <target>A</target>"
    ).replace("<source>b</source>", "<source>b</source><target>B</target>")
    marked = written(segments, data, str.upper, "lacks", every=True)
    note = '<note category="fewstep">lacks</note>'
    review = '<segment state="translated" subState="fewstep:needs-review-translation">'
    assert f'<unit id="1">\n  <notes>{note}</notes>\n  {review}' in marked
    assert f"<note>n</note>{note}</notes>" in marked
    ET.fromstring(marked)
    both = [edit for number, one in enumerate(segments[:2]) for edit in one.write("x", f"problem {number}")]
    notes = "".join(f'<note category="fewstep">problem {number}</note>' for number in range(2))
    assert f"<notes>{notes}</notes>" in edited(data, both).decode()


@given(
    st.recursive(
        st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]) | st.sampled_from("<>&\"' "), max_size=5).map(
            lambda text: text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        )
        | st.sampled_from(
            ['<x id="1"/>', "<x id='a>b' />", "<![CDATA[<&]]>", "<!-- c -->", '<ph id="2">&lt;br&gt;</ph>', "&#233;", "<?p i?>"]
        ),
        lambda inner: (
            st.lists(inner, max_size=3).map("".join)
            | inner.map(lambda one: f'<g id="3">{one}</g>')
            | inner.map(lambda one: f'<bpt id="4">&lt;i&gt;<sub>{one}</sub></bpt>')
        ),
        max_leaves=6,
    )
)
def test_inline_elements_survive_a_translation_that_keeps_them(raw: str) -> None:
    """A source that is written as its target reads as before, and so does one whose other text was changed."""
    text = XLIFF1.format(f'<trans-unit id="1"><source>{raw}</source></trans-unit>')
    data = text.encode()
    (segment,) = xliff.segments(data, "f.xlf", LANGUAGES)
    assert written([segment], data, lambda text: text) == text.replace("</source>", f"</source><target>{raw}</target>")
    changed = written([segment], data, lambda text: f"{text} & <more>")
    (unit,) = read(xliff.units, changed, block=1 << 20)
    given = Inline(segment.text, segment.tags)
    assert unit.source == ShortTags(given).shortened(given).text, "pairs have the placeholders of documents"
    assert unit.target == f"{unit.source} & <more>"

    def tags(name: str) -> list[tuple[str, str | None]]:
        found = ET.fromstring(changed).find(f".//{{*}}{name}")
        assert found is not None
        return [(one.tag, one.get("id")) for one in found.iter()][1:]

    assert tags("target") == tags("source")


@given(st.lists(st.sampled_from(['<g id="1">', "</g>", '<x id="2"/>', "word ", "<b>"]), max_size=6).map("".join))
def test_whatever_a_translation_does_to_the_tags_the_document_stays_well_formed(translation: str) -> None:
    data = XLIFF1.format('<trans-unit id="1"><source>a <g id="1">b <x id="2"/></g></source></trans-unit>').encode()
    changed = written(xliff.segments(data, "f.xlf", LANGUAGES), data, lambda _: translation)
    target = ET.fromstring(changed).find(".//{*}target")
    assert target is not None
    assert "".join(target.itertext()).count("word ") == translation.count("word ")
