"""Documents for which a reader would take quadratic time, hours for each of these, are refused or read at once."""

import pytest

from fewstep.documents import html, markdown, plain
from fewstep.documents.document import DocumentError
from fewstep.documents.html import filled, pieces

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


@pytest.mark.parametrize("part", ["[", "![", "<![", "[\n", "<a\n"])
def test_markdown_of_brackets_without_end_is_refused(part: str) -> None:
    with pytest.raises(DocumentError, match=r"x, line \d+: expected at most 2,000 brackets in a paragraph"):
        markdown.segments((part * (markdown.MAX_BYTES // len(part))).encode(), "x", LANGUAGES)


def test_markdown_is_bounded_since_each_line_may_be_a_table() -> None:
    whole = b"x" * markdown.MAX_BYTES
    assert len(markdown.segments(whole, "x", LANGUAGES)) == 1
    with pytest.raises(DocumentError, match=r"x: expected at most 524,288 bytes of Markdown, got 524,289"):
        markdown.segments(whole + b"x", "x", LANGUAGES)


def test_a_table_of_many_links_is_read() -> None:
    table = "| a | b |\n|---|---|\n" + "| [one](x) | [two](y) |\n" * 1010
    assert len(markdown.segments(table.encode(), "x", LANGUAGES)) == 2022


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
