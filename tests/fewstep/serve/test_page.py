"""The page in a browser without a screen."""

import pytest
from playwright.sync_api import expect

from tests.fewstep.serve.conftest import running

SENTENCE = "ein hund läuft schnell"


@pytest.fixture
def page(browser):
    """A page that collects errors, and the addresses that it asked."""
    opened = browser.new_page(viewport={"width": 390, "height": 800})
    opened.complaints, opened.asked = [], []
    opened.on("console", lambda message: opened.complaints.append(message.text))
    opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.on("request", lambda request: opened.asked.append(request.url))
    yield opened
    opened.close()


def translate(page, sentence):
    page.fill("#sentence", sentence)
    page.click("#go")
    page.wait_for_selector("#go:enabled")


def test_a_sentence_is_shown_by_all_systems_side_by_side(page, server):
    page.goto(server.url)
    page.wait_for_selector(".card")
    translate(page, SENTENCE)
    _, answer = server.post({"sentences": [SENTENCE], "systems": ["small", "graph"]})
    for entry in answer["systems"]:
        card = page.locator(f'[data-system="{entry["system"]}"]')
        best = entry["translations"][0][0]
        assert card.locator(".output").inner_text() == " ".join(best["text"].split())
        assert f"steps {best['steps']}" in card.locator(".facts").inner_text()
        assert "milliseconds" in card.locator(".facts").inner_text()
        assert card.locator(".bar").count() == 1
    drawing = page.locator('[data-system="graph"] svg')
    _, explained = server.post({"sentence": SENTENCE, "system": "graph"}, "/explain")
    assert explained["kind"] == "dag"
    assert drawing.locator("g.vertex").count() == len(explained["vertices"]) > 2
    assert drawing.locator("path.edge").count() == len(explained["edges"]) > 1
    assert drawing.locator("title").first.text_content().startswith("Graph")
    assert page.locator('[data-system="small"] svg').count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "the page fits a phone"
    assert page.complaints == []
    assert all(url.startswith((server.url, "data:")) for url in page.asked)


def test_lattices_are_drawn_and_accepted_drafts_counted(page, made):
    with running(made["lattice"], made["drafts"]) as server:
        page.goto(server.url)
        page.wait_for_selector(".card")
        translate(page, SENTENCE)
        _, answer = server.post({"sentences": [SENTENCE], "systems": ["drafts"]})
        statistics = answer["systems"][0]["translations"][0][0]["statistics"]
        assert statistics["drafted"] > 0
        facts = page.locator('[data-system="drafts"] .facts').inner_text()
        assert f"drafts accepted {statistics['accepted']} of {statistics['drafted']}" in facts
        assert page.locator('[data-system="drafts"] .steps span').count() == sum(map(bool, statistics["proposed_at"]))
        _, explained = server.post({"sentence": SENTENCE, "system": "lattice"}, "/explain")
        assert explained["kind"] == "lattice"
        drawing = page.locator('[data-system="lattice"] svg')
        assert drawing.locator("g.vertex").count() == len(explained["vertices"]) > 2
        assert drawing.locator("g.vertex.path").count() == sum(vertex["on_path"] for vertex in explained["vertices"]) > 0
        assert drawing.locator("path.edge").count() == len(explained["edges"]) > 2
        assert page.complaints == []


def test_the_chosen_search_and_number_are_used(page, server):
    page.goto(server.url)
    page.wait_for_selector(".card")
    small = page.locator('[data-system="small"]')
    small.locator("select").select_option("wide")
    page.fill("#count", "3")
    translate(page, SENTENCE)
    _, answer = server.post({"sentences": [SENTENCE], "search": "wide", "n_best": 3})
    texts = [" ".join(entry["text"].split()) for entry in answer["systems"][0]["translations"][0]]
    shown = small.locator(".output li").all_inner_texts()
    assert [text.rsplit(" ", 1)[0] for text in shown] == texts
    assert "n_best: expected 1" in page.locator('[data-system="graph"] .error').inner_text()


def test_text_is_shown_as_text(page, server):
    page.goto(server.url)
    page.wait_for_selector(".card")
    translate(page, "<img src=x onerror=alert(1)> <b>ein</b>")
    assert page.locator(".card img, .card .output b").count() == 0
    assert page.complaints == []


def test_a_token_is_asked_for(page, directories, tmp_path):
    (tmp_path / "token").write_text("secret")
    with running(directories["small"], "--token-file", tmp_path / "token") as guarded:
        page.goto(guarded.url)
        page.wait_for_selector("#note.error")
        assert "token" in page.locator("#note").inner_text()
        page.click("summary")
        page.fill("#token", "secret")
        page.press("#token", "Enter")
        page.wait_for_selector(".card")
        translate(page, SENTENCE)
        assert page.locator(".card .facts").count() == 1


def test_a_document_is_translated_line_by_line(page, server, tmp_path):
    lines = [SENTENCE, "", "drei hund. ein katze", *["ein"] * 40]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    page.goto(server.url)
    page.wait_for_selector(".card")
    page.click("#document summary")
    page.set_input_files("#file", tmp_path / "text.txt")
    expect(page.locator("#given")).to_have_value("\n".join(lines))
    page.select_option("#with", "graph")
    page.click("#whole button")
    expect(page.locator("#note")).to_have_text("43 lines")
    (answer,) = server.post({"sentences": lines, "systems": ["graph"]})[1]["systems"]
    assert page.input_value("#done").split("\n") == [ranked[0]["text"] for ranked in answer["translations"]]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#copy")
    expect(page.locator("#copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.input_value("#done")
    assert page.complaints == []


def test_the_languages_choose_the_systems(page, several, server):
    page.goto(several[0].url)
    page.wait_for_selector(".card")
    cards = page.locator(".card:visible h2")
    assert cards.all_inner_texts() == ["one", "three"]
    page.select_option("#from", "fr")
    assert cards.all_inner_texts() == ["two"]
    translate(page, SENTENCE)
    assert page.locator('[data-system="two"] .output').count() == 1
    assert page.locator(".card .output").count() == 1, "the others are not asked"
    page.goto(server.url)
    page.wait_for_selector(".card")
    assert page.locator("#pairs:visible").count() == 0, "one pair leaves no choice"
    assert page.complaints == []
