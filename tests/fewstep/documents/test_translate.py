"""Documents that are translated in place: what changes, what stays, and what is marked."""

from __future__ import annotations

import html.parser
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fewstep.documents.document import DocumentError, Edit, edited
from fewstep.documents.translate import FORMATS, Outcome, read_document, translate_document
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.text.placeholders import placeholders
from tests.shared import public_data


class Echo:
    """A system that changes sentences by a function, and has further hypotheses where its search has a beam."""

    task, source_language, target_language = "translation", "en", "fr"

    def __init__(self, *functions: Callable[[str], str], beam_size: int = 1, target: str = "fr") -> None:
        self.functions, self.beam_size, self.target_language = functions or (str,), beam_size, target
        self.sentences = list[str]()
        self.cut = 0

    def chosen_search(self, search: Any) -> StepwiseSearch:
        return StepwiseSearch(strategy="beam" if self.beam_size > 1 else "greedy", beam_size=self.beam_size)

    def wider_searches(self, search: StepwiseSearch) -> Iterator[StepwiseSearch]:
        if self.beam_size > 1:
            yield replace(search, n_best=self.beam_size)

    def hypotheses(self, texts: Sequence[str], n_best: None, search: Any, **options: Any) -> list[list[Any]]:
        assert options["one_sentence_per_line"]
        count = 1 if search is None else search.n_best
        self.sentences += texts if count == 1 else []
        return [
            [SimpleNamespace(text=function(text), put_back=0, cut=self.cut) for function in self.functions[:count]]
            for text in texts
        ]


def translated(text: str, kind: str, system: Echo, **options: Any) -> Outcome:
    document = read_document(text.encode(), kind, f"f.{kind}", ("en", "fr"))
    return translate_document(document, system, **options)  # type: ignore[arg-type]


MARKDOWN = """\
---
title: stays
---
# A title #

First *sentence* here. The second `x = "a. b"`
goes on [there](https://a.org "t. t") and
ends. Third!

> quoted text
> on two lines

- item one
  goes on
- `code alone`

| a cell | other |
|--------|-------|
| 12     | text  |

```python
code = "stays"
```

    indented code

<div>block</div>

[there]: https://b.org
"""
HTML = """\
<!DOCTYPE html>
<html lang="en"><head><title>A &amp; b</title><style>p {x: "y"}</style><script>var x = "<p>no</p>";</script></head>
<body class="x">
<p>One <b class="y">bold</b> thing.  Next one<br>After&nbsp;<code>x &lt; y</code> <img src="a>b"> end.</p>
<p><b>All bold</b></p> <pre>stays  here</pre><!-- stays -->
<div translate="no">stays</div><ul><li>Item <i>one</i></ul> tail é 日
</body></html>
"""


@pytest.mark.parametrize(("kind", "text"), [("md", MARKDOWN), ("html", HTML), ("txt", "  a b. C d!\r\n\n\t- e\n12\nlast")])
def test_what_is_not_translated_does_not_change(kind: str, text: str) -> None:
    found = translated(text, kind, Echo())
    assert found.data.decode() == text
    assert (found.marked, found.kept) == (0, 0)
    assert found.translated > 2


def upper(text: str) -> str:
    """Return a text in capitals, but for its placeholders and tags."""
    parts, position = list[str](), 0
    for one in placeholders(text):
        parts += [text[position : one.start()].upper(), one[0]]
        position = one.end()
    return "".join([*parts, text[position:].upper()])


def test_the_text_of_markdown_is_translated_by_sentences() -> None:
    system = Echo(upper)
    found = translated(MARKDOWN, "md", system)
    assert system.sentences == [
        "A title",
        "First *sentence* here.",
        'The second `x = "a. b"` goes on [there](https://a.org "t. t") and ends.',
        "Third!",
        "quoted text on two lines",
        "item one goes on",
        "a cell",
        "other",
        "text",
    ]
    lines = found.data.decode().split("\n")
    assert lines[:4] == ["---", "title: stays", "---", "# A TITLE #"]
    assert lines[5] == 'FIRST *SENTENCE* HERE. THE SECOND `x = "a. b"` GOES ON [THERE](https://a.org "T. T") AND ENDS. THIRD!'
    assert lines[7] == "> QUOTED TEXT ON TWO LINES"
    assert lines[9:11] == ["- ITEM ONE GOES ON", "- `code alone`"]
    assert lines[12:15] == ["| A CELL | OTHER |", "|--------|-------|", "| 12     | TEXT  |"]
    assert lines[15:] == MARKDOWN.split("\n")[19:]
    assert found.marked == 1  # the title of the link


def test_line_ends_between_sentences_stay_with_the_marks_of_their_block() -> None:
    found = translated("> One.\n> Two goes\n> on.\n>\n> Three\n\n* One.\r\n  Two.\r\n", "md", Echo(str.upper))
    assert found.data.decode() == "> ONE.\n> TWO GOES ON.\n>\n> THREE\n\n* ONE.\r\n  TWO.\r\n"


@pytest.mark.parametrize(
    ("translation", "written"),
    [("# x", r"\# x"), ("1. x", r"1\. x"), ("- x", r"\- x"), ("a | b", r"a \| b"), ("2024 x", "2024 x"), ("> x", r"\> x")],
)
def test_a_translation_begins_no_other_block(translation: str, written: str) -> None:
    assert translated("word\n", "md", Echo(lambda _: translation)).data.decode() == f"{written}\n"


def test_the_text_of_html_is_translated_with_its_inline_tags() -> None:
    system = Echo(lambda text: text.replace("One", "Un <&>").replace("bold", "gras"))
    found = translated(HTML, "html", system)
    assert system.sentences == [
        "A & b",
        'One <b class="y">bold</b> thing.',
        "Next one",
        "After\N{NO-BREAK SPACE}<x1/> <x2/> end.",
        "All bold",
        "Item <i>one</i>",
        "tail é 日",
    ]
    assert found.data.decode() == HTML.replace('One <b class="y">bold', 'Un &lt;&amp;&gt; <b class="y">gras').replace(
        "All bold", "All gras"
    )


class Tags(html.parser.HTMLParser):
    """The tags, comments and scripts of a document, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found, self.text = list[object](), ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.append((tag, attrs))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(tag)

    def handle_comment(self, data: str) -> None:
        self.found.append(data)

    def handle_data(self, data: str) -> None:
        self.text += data


PIECES = [
    "<p>",
    "</p>",
    "<b>",
    "</b>",
    "<i class='x'>",
    "</i>",
    "<br>",
    "word. ",
    "Next é",
    "&amp;",
    "&lt;b&gt;",
    " \n",
    "<!-- c -->",
    "<pre>",
    "</pre>",
    "12",
    "<img>",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_html_keeps_its_tags_and_its_text(text: str) -> None:
    """The identity changes nothing, and a system that appends a word adds that word alone."""
    assert translated(text, "html", Echo()).data.decode() == text
    found = Tags(translated(text, "html", Echo(lambda text: f"{text}+&")).data.decode())
    before = Tags(text)
    assert found.found == before.found
    assert found.text.replace("+&", "").replace("\n", " ") == before.text.replace("\n", " ")  # within a sentence


@given(
    st.sampled_from(sorted(set(FORMATS) - {"tmx", "xliff", "po"})),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0"), max_size=60),  # many look like UTF-16
)
@example("md", "0\r0")
@example("md", "a\rb\nc\r\nd")
def test_any_text_is_unchanged_by_the_identity(kind: str, text: str) -> None:
    assert translated(text, kind, Echo()).data.decode() == text


PO = 'msgid ""\nmsgstr "Language: fr\\n"\n\n{}msgid "See `x` at %s. Then {{0}} ends.\\n"\nmsgstr "{}"\n'


def test_a_sentence_that_loses_a_placeholder_gets_the_next_hypothesis(caplog: pytest.LogCaptureFixture) -> None:
    def without(text: str) -> str:
        return text.replace("%s", "")

    text = PO.format("", "")
    right = PO.format("", "See `x` at %s. Then {{0}} ends.\\n".replace("{{", "{").replace("}}", "}"))
    for functions in ((without, str), (str, without)):
        assert translated(text, "po", Echo(*functions, beam_size=2)) == (right.encode(), 1, 0, 0)
    found = translated(text, "po", Echo(without))
    marked = "# fewstep: the translation lacks %s\n#, fuzzy\n"
    assert found.data.decode() == PO.format(marked, "See `x` at . Then {0} ends.\\n")
    assert found[1:] == (1, 0, 1)
    assert [record.getMessage() for record in caplog.records] == ["line 4: the translation lacks %s"]


CODES = """<bpt id="1" rid="1">&lt;b&gt;</bpt>Bold <bpt id="2" rid="2">&lt;i&gt;</bpt>both<ept id="1" rid="1">&lt;/b&gt;</ept>
<ph id="3">&lt;img alt="<sub>a picture</sub>"/&gt;</ph> end<ept id="2" rid="2">&lt;/i&gt;</ept>"""
XLIFF = """<xliff version="1.2"><file source-language="en" target-language="fr" original="a" datatype="x"><body>
<trans-unit id="1"><source>{}</source></trans-unit>
</body></file></xliff>"""


def target_of(found: Outcome) -> str:
    (target,) = re.findall("<target[^>]*>(.*)</target>", found.data.decode(), re.DOTALL)
    return str(target)


def test_elements_with_content_are_one_short_tag_to_systems(caplog: pytest.LogCaptureFixture) -> None:
    """OmegaT, Trados and memoQ write codes in this way; a network loses parts of them."""
    system = Echo(upper)
    found = translated(XLIFF.format(CODES), "xliff", system)
    assert system.sentences == ["<x1/>Bold <x2/>both<x3/>", "<x4/> end<x5/>"], "the end of a line ends a sentence"
    assert (target_of(found), found.marked) == (CODES.replace("Bold", "BOLD").replace("both", "BOTH").replace(" end", " END"), 0)
    literal = 'See &lt;x1/&gt; or &lt;xx&gt;: <ph id="1">%s</ph>, <ph id="1">%s</ph>, <x id="2"/>.'
    system = Echo(upper)
    found = translated(XLIFF.format(literal), "xliff", system)
    assert system.sentences == ['See <x1/> or <xx>: <xxx1/>, <xxx1/>, <x id="2"/>.']
    assert (target_of(found), found.marked) == (literal.replace("See", "SEE").replace("or", "OR"), 0)
    lost = Echo(lambda text: text.replace("<xxx1/>, ", "", 1) + " <xxx9/>")
    found = translated(XLIFF.format(literal), "xliff", lost)
    assert found.marked == 1
    assert 'line 2: the translation lacks <ph id="1">%s</ph> and has <xxx9/> in addition' in caplog.text


def test_a_message_in_icu_format_is_to_be_reviewed(caplog: pytest.LogCaptureFixture) -> None:
    """No placeholder of a list covers its keywords, which a program needs as they are."""
    assert translated('msgid "{n, plural, one {a file} other {# files}}"\nmsgstr ""\n', "po", Echo(upper)).marked == 1
    assert "line 1: keywords of a message in ICU format" in caplog.text


def test_a_sentence_that_was_cut_is_to_be_reviewed() -> None:
    system = Echo(upper)
    system.cut = 7
    found = translated('msgid "Long."\nmsgstr ""\n', "po", system)
    assert found.marked == 1
    assert b"# fewstep: 7 tokens of a long sentence were not read\n#, fuzzy\nmsgid" in found.data


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: text.replace("%s", "%s %s"), "the translation has %s in addition"),
        (lambda text: text.replace("%s", "%d"), "the translation lacks %s and has %d in addition"),
        (lambda text: text.replace("`x`", "x"), "the translation lacks `x`"),
        (lambda text: "" if "See" in text else text, "the translation lacks `x`, %s"),
        (lambda text: text.replace("%s", "").replace("{0}", ""), "the translation lacks %s; the translation lacks {0}"),
    ],
)
def test_placeholders_are_compared_by_kind_and_number(
    change: Callable[[str], str], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert translated(PO.format("", ""), "po", Echo(change)).marked == 1
    assert caplog.records[0].getMessage() == f"line 4: {problem}"


def test_only_what_has_no_translation_is_translated() -> None:
    text = PO.format("", "Voilà %s `x` {{0}}.".replace("{{", "{").replace("}}", "}"))
    assert translated(text, "po", Echo(str.upper)) == (text.encode(), 0, 1, 0)
    assert translated(text, "po", Echo(), everything=True)[1:] == (1, 0, 0)
    fuzzy = text.replace('msgid "See', '#, fuzzy\nmsgid "See')
    assert translated(fuzzy, "po", Echo(str.upper)).data.decode() == fuzzy


def test_a_language_without_spaces_joins_its_sentences_without_them() -> None:
    assert translated("One. Two.\n", "txt", Echo(lambda text: f"{text[:2]}。", target="ja")).data.decode() == "On。Tw。\n"


def outside_of_targets(data: bytes) -> bytes:
    return re.sub(rb'^msgstr.*\n(?:".*\n)*', b"msgstr\n", data, flags=re.M)


def test_real_messages_are_filled_in_and_nothing_else_changes() -> None:
    filled = 0
    for path in sorted(public_data("po-fr").rglob("*.po"))[:20]:
        before = path.read_bytes()
        found = translate_document(read_document(before, "po", path.name, ("en", "fr")), Echo())  # type: ignore[arg-type]
        assert found.marked == 0
        assert outside_of_targets(found.data) == outside_of_targets(before)
        assert b'msgstr ""\n\n' not in found.data
        again = translate_document(read_document(found.data, "po", path.name, ("en", "fr")), Echo())  # type: ignore[arg-type]
        assert again == (found.data, 0, found.translated + found.kept, 0)
        filled += found.translated
    assert filled > 100


def test_documents_in_utf_16_stay_in_it() -> None:
    text = '<?xml version="1.0" encoding="UTF-16"?><tmx><tu><tuv xml:lang="en"><seg>a é</seg></tuv></tu></tmx>'
    document = read_document(text.encode("utf-16"), "tmx", "f.tmx", ("en", "fr"))
    found = translate_document(document, Echo(lambda _: "日"))  # type: ignore[arg-type]
    assert found.data.decode("utf-16") == text.replace("</tuv>", '</tuv><tuv xml:lang="fr"><seg>日</seg></tuv>')


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("txt", b"a\ncaf\xe9\n", "f, line 2: expected UTF-8, got the byte 0xe9; convert the file first"),
        ("txt", b"\x1f\x8b\x08", "f: expected plain text, got a gzip file; decompress it first"),
        ("md", "a".encode("utf-16"), "f: expected UTF-8, got UTF-16"),
        ("html", b"<p>a<![<![", "f: expected HTML, got a declaration that cannot be read"),
        ("po", b"<html>", "f, line 1: expected a comment, or a keyword"),
        ("po", b'msgid ""\nmsgstr "Language: en\\n"\n', "expected translations into fr, got translations into en; use a system of"),
        (
            "xliff",
            b"<xliff version='2.0' srcLang='fr' trgLang='en'><file><unit><segment><source/></segment></unit></file></xliff>",
            "got one of the opposite direction; use another system",
        ),
    ],
)
def test_documents_that_cannot_be_read_are_refused(kind: str, data: bytes, message: str) -> None:
    with pytest.raises(DocumentError) as error:
        read_document(data, kind, "f", ("en", "fr"))
    assert message in str(error.value)


def test_edits_that_overlap_are_an_error() -> None:
    assert edited(b"abc", [Edit(2, 3, b"z"), Edit(0, 0, b"y", 1), Edit(0, 0, b"x"), Edit(0, 0, b"x")]) == b"xyabz"
    with pytest.raises(ValueError, match="do not overlap"):
        edited(b"abc", [Edit(0, 2, b""), Edit(1, 3, b"")])


def test_warnings_name_no_more_than_what_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        translated("plain words. 12\n", "txt", Echo())
    assert not caplog.records
