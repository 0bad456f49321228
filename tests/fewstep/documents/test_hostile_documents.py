"""Documents for which a reader would take quadratic time, hours for each of these, are refused or read at once."""

import pytest

from fewstep.documents import html, markdown, plain
from fewstep.documents.document import DocumentError, edited
from fewstep.documents.html import filled, pieces
from fewstep.documents.markup import _unbalanced, unescaped
from fewstep.documents.translate import read_document

LANGUAGES = ("en", "de")
MEGABYTE = 1 << 20


@pytest.mark.parametrize("part", [b"<a ", b"<a b='", b'<p title="', b"<!--", b"</p\n", b"<a\n"])
def test_html_of_tags_without_end_is_refused(part: bytes) -> None:
    with pytest.raises(DocumentError, match=r"x: expected HTML, got more than 16 (tags|comments) that do not end"):
        html.segments(part * (MEGABYTE // len(part)), "x", LANGUAGES)


def test_html_that_is_nested_deeply_is_read() -> None:
    depth = 5000
    (segment,) = html.segments(b"<b>" * depth + b"text" + b"</b>" * depth, "x", LANGUAGES)
    assert segment.text == "text"


def test_html_with_a_few_mistakes_is_read() -> None:
    texts = [one.text for one in html.segments(b"<p>a < b</p><p>c <d</p><!-- e <p>f", "x", LANGUAGES)]
    assert texts[0] == "a < b"


@pytest.mark.parametrize("part", ["[", "![", "<![", "[\n", "<a\n", "[a](b "])
def test_markdown_of_brackets_without_end_is_read(part: str) -> None:
    text = (part * (markdown.MAX_BYTES // len(part))).rstrip()
    (segment,) = markdown.segments(text.encode(), "x", LANGUAGES)
    assert segment.text == text


def test_markdown_is_bounded_since_each_line_may_be_a_table() -> None:
    whole = b"x" * markdown.MAX_BYTES
    assert len(markdown.segments(whole, "x", LANGUAGES)) == 1
    with pytest.raises(DocumentError, match=r"x: expected at most 524,288 bytes of Markdown, got 524,289"):
        markdown.segments(whole + b"x", "x", LANGUAGES)


def test_a_table_of_many_links_is_read() -> None:
    table = "| a | b |\n|---|---|\n" + "| [one](x) | [two](y) |\n" * 1010
    assert len(markdown.segments(table.encode(), "x", LANGUAGES)) == 2022


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [("txt", b"a\n", b"x"), ("html", b"<p>a</p>\n<p>", b"x</p>"), ("po", b'msgid "', b'x"\nmsgstr ""\n')],
)
def test_a_text_of_two_million_characters_is_refused(kind: str, before: bytes, after: bytes) -> None:
    data = before + b"a " * MEGABYTE + after
    with pytest.raises(DocumentError, match=r"x, line \d: expected at most 1,048,576 characters in a text, got 2,097,15\d; divide"):
        read_document(data, kind, "x", LANGUAGES)


def test_lines_of_spaces_are_no_text() -> None:
    data = b" " * MEGABYTE + b"\n\t \x0b\n  a b \r\n" + b"\t" * MEGABYTE
    (segment,) = plain.segments(data, "x", LANGUAGES)
    assert (segment.line, segment.text) == (3, "  a b ")


@pytest.mark.parametrize("part", ["<!--", "<![CDATA[", "<script>", "<style></styl"])
def test_a_request_of_comments_or_scripts_without_end_stays_as_it_is(part: str) -> None:
    document = part * (MEGABYTE // len(part))
    assert filled(pieces(document), []) == document
    whole = "a<!-- b -->c" + part + " d <i>e</i>"
    assert [one.text for one in pieces(whole)] == ["a", "c", ""], "it goes to the end, as in a browser"
    assert filled(pieces(whole), ["x", "y"]) == whole.replace("a<", "x<").replace(">c", ">y")


@pytest.mark.parametrize("text", ["a" + " " * MEGABYTE + "b", "a" + "&nbsp;" * (MEGABYTE // 6) + "b", "<" + "a" * MEGABYTE])
def test_mark_up_of_requests_is_read_in_linear_time(text: str) -> None:
    found = pieces(text)
    assert filled(found, [piece.text.replace("\xa0", "&nbsp;") for piece in found[:-1]]).startswith(text[:1].replace("<", "&lt;"))


def test_white_space_around_a_text_stays() -> None:
    found = pieces(" &nbsp; a&nbsp;b &#160;\n<b>\t</b>")
    assert [tuple(piece) for piece in found] == [(" &nbsp; ", "a\xa0b", " &#160;\n"), ("<b>\t</b>", "", "")]


def test_character_references_of_thousands_of_digits_are_read() -> None:
    assert unescaped(f"&#{'9' * 5000}; &#{'0' * 5000}65; &#x{'0' * 5000}41; &#0; &#; &amp;") == "\ufffd A A \ufffd &#; &"
    assert pieces(f"a &#{'9' * 5000};")[0].text == "a \ufffd"
    (segment,) = html.segments(f"<p>a &#{'9' * 5000};</p>".encode(), "x", LANGUAGES)
    assert segment.text == "a \ufffd"


def test_tags_that_are_not_closed_are_found_in_linear_time() -> None:
    depth = 100_000
    assert _unbalanced([f"<i{number}>" for number in range(depth)] + ["</b>"] * depth) == set(range(2 * depth))
    assert _unbalanced(["<b>", "<i>", "</b>", "</i>", "<i>", "</i>"]) == {1, 3}


def test_a_text_of_thousands_of_inline_elements_is_refused() -> None:
    page = "<p>ein\n</p>\n<p>" + "".join(f'a <a href="{number}">b</a> ' for number in range(1001))
    with pytest.raises(DocumentError, match="x, line 3: expected at most 2,000 inline elements in a text, got 2,00"):
        read_document(page.encode(), "html", "x", LANGUAGES)


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0b", "\x0c", "\x1c"])
def test_separators_end_no_line_of_markdown(separator: str) -> None:
    text = f"a{separator}b\n\nc\rd\r\n\r\ne"
    found = markdown.segments(text.encode(), "x", LANGUAGES)
    edits = [edit for segment in found for edit in segment.write(segment.text.upper(), "")]
    assert edited(text.encode(), edits).decode() == text.upper()
