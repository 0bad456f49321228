"""The behaviour of the page in a browser without a screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages.context import StepContext

CARDS = "#sentences > .sample"


@pytest.fixture
def open_page(browser: Any, report: StepContext) -> Iterator[Any]:
    """A function that opens the report at a width, without errors or requests."""
    complaints: list[str] = []

    def opened(width: int = 1280, script: bool = True) -> Any:
        page = browser.new_context(viewport={"width": width, "height": 844}, java_script_enabled=script).new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if not request.url.startswith("file:") else None)
        page.goto(Path(report.records("report.html")).as_uri())
        return page

    yield opened
    assert complaints == []


def column(page: Any, number: int) -> list[str]:
    return [text.strip() for text in page.locator(f".results tbody tr td:nth-child({number})").all_inner_texts()]


def test_a_click_sorts_by_a_column_best_first_then_the_other_way_then_as_before(open_page: Any) -> None:
    page = open_page()
    before = column(page, 2)
    bleu = page.get_by_role("columnheader", name="BLEU", exact=True).first
    numbers = [float(text.split()[0].rstrip("▼▲")) for text in before]
    for order, expected in (("descending", sorted(numbers, reverse=True)), ("ascending", sorted(numbers))):
        bleu.get_by_role("button").click()
        assert bleu.get_attribute("aria-sort") == order
        assert [float(text.split()[0].rstrip("▼▲")) for text in column(page, 2)] == expected
    bleu.get_by_role("button").click()
    assert bleu.get_attribute("aria-sort") is None
    assert column(page, 2) == before
    milliseconds = page.get_by_role("columnheader", name="ms ↓").first
    milliseconds.get_by_role("button").click()
    assert milliseconds.get_attribute("aria-sort") == "ascending", "the fastest first"


def test_rows_without_a_value_come_last(open_page: Any) -> None:
    page = open_page()
    delta = page.get_by_role("columnheader", name="Δ BLEU").first
    for _ in range(2):
        delta.get_by_role("button").click()
        assert page.locator(".results tbody tr").last.get_attribute("class") == "baseline"


def test_the_browser_pages_through_all_sentences(open_page: Any) -> None:
    page = open_page()
    assert page.locator("#found").inner_text() == "60 of 60 sentences"
    assert page.locator(CARDS).count() == 10
    for _ in range(5):
        page.locator(".more").click()
    assert page.locator(CARDS).count() == 60
    assert page.locator(".more").count() == 0
    assert page.locator(CARDS).first.locator("dt").all_inner_texts() == [
        "source", "reference", "autoregressive/beam5", "autoregressive/greedy",
    ]  # fmt: skip
    page.get_by_label("show all searches").check()
    assert page.locator(CARDS).first.locator("dt").count() == 6


def test_sentences_are_ordered_by_difference_and_filtered_by_length_and_text(open_page: Any) -> None:
    page = open_page()
    page.locator("select[name=other]").select_option("interleaved/greedy")
    page.locator("select[name=order]").select_option("difference")
    page.get_by_label("only where they differ").check()
    for _ in range(5):
        page.locator(".more").click()
    scores = [[float(text) for text in card.locator(".score").all_inner_texts()] for card in page.locator(CARDS).all()]
    gaps = [abs(one - other) for one, other in scores]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > gaps[-1]
    shown = page.locator(CARDS).all_inner_texts()
    word = shown[0].splitlines()[1].split()[0]
    page.get_by_label("Containing").fill(word.upper())
    assert 0 < page.locator(CARDS).count() < len(shown)
    assert all(word.lower() in text.lower() for text in page.locator(CARDS).all_inner_texts())
    page.get_by_label("Containing").fill("")
    page.get_by_label("Words from").fill("13")
    assert page.locator("#found").inner_text() == "0 of 60 sentences", "sources have 12 words"
    page.get_by_label("Words from").fill("")
    page.get_by_label("to", exact=True).fill("12")
    assert page.locator(CARDS).count() == 10


def test_repeated_words_are_those_that_no_reference_repeats(open_page: Any) -> None:
    page = open_page()
    found = page.evaluate("""() => [
      repeats("ein Haus Haus .", ["ein Haus"]), repeats("ein Haus, haus", ["ein Haus"]),
      repeats("sehr sehr gut", ["sehr sehr gut"]),
      repeats("ein Haus ein Haus", ["x"]), repeats(". . .", ["x"]),
    ]""")
    assert found == [True, True, False, False, False]
    page.get_by_label("show all searches").check()
    page.get_by_label("only with repeated words").check()
    while page.locator(".more").count():
        page.locator(".more").click()
    assert 0 < page.locator(CARDS).count() < 60


def test_the_page_fits_a_phone_and_names_stay_visible(open_page: Any) -> None:
    page = open_page(390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    table = page.locator(".scroll:has(.results)")
    table.evaluate("element => element.scrollLeft = 400")
    assert table.evaluate("element => element.scrollLeft") > 100
    name = page.locator(".results tbody th").first
    assert 0 <= name.bounding_box()["x"] < 60
    sizes = page.locator("figure .panels svg[role=img] text").evaluate_all(
        """found => found.map((text) => {
          const matrix = text.getScreenCTM();
          return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(matrix.a, matrix.b);
        })"""
    )
    assert min(sizes) > 6.5, "numbers in points; labels are larger"
    assert sorted(sizes)[len(sizes) // 2] > 9


def test_navigation_marks_the_current_section(open_page: Any) -> None:
    page = open_page()
    page.get_by_role("link", name="Training").click()
    page.wait_for_selector('nav a[aria-current="true"]')
    assert page.locator('nav a[aria-current="true"]').inner_text() == "Training"
    assert page.locator("#section-training h2").bounding_box()["y"] >= page.locator("nav").bounding_box()["height"] - 1


def test_the_page_shows_samples_without_scripts(open_page: Any) -> None:
    page = open_page(script=False)
    assert page.locator(CARDS).count() == 5
    assert not page.locator("#controls").is_visible()
    assert page.locator(CARDS).first.locator("dt").count() == 6
