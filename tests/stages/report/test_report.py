"""The page, the Markdown and the results of a report, with and without the optional analyses."""

from __future__ import annotations

import html
import json
import math
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stages.artifacts import Tokens
from stages.context import StepContext
from stages.errors import DataError, StageError
from stages.report import STAGE, ReportInputs
from stages.report.findings.mutual_information import mutual_information
from stages.report.findings.results import Findings, Row
from stages.report.findings.verdict import verdict_of, verdict_text
from stages.report.page.markdown import machine, short_lines, unknown_line
from stages.shared.tasks import SUMMARIZATION
from tests.stages.report.made_report import CONFIG, ENTRIES, Maker, heads, outline, page_of
from tests.stages.steps import context_in


def test_the_page_is_well_formed_and_self_contained(report: StepContext) -> None:
    page = outline(report)
    assert page.open == []
    assert all(link.startswith("#") for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    text = page_of(report)
    assert not re.search(r"https?:|@import|<script[^>]* src|<link|<img", text)
    assert {link[1:] for link in page.links} | set(re.findall(r"url\(#([^)]+)\)", text)) <= set(page.ids)
    assert len(page.images) == 2 + 4 + 1, "quality and speed, curves, speed over sentences"


def test_figures_have_titles_and_sections_are_in_the_navigation(analysed: StepContext) -> None:
    page, text = outline(analysed), page_of(analysed)
    for title in page.images:
        assert re.search(rf'<title id="{re.escape(title)}">[^<]+</title>', text)
    pictures = re.findall(r"<svg [^>]*>", text)
    assert all('role="img"' in tag or 'aria-hidden="true"' in tag for tag in pictures)
    navigation = re.search(r'<nav aria-label="Sections">.*?</nav>', text, re.DOTALL)
    assert navigation is not None
    targets = re.findall(r'href="#([^"]+)"', navigation[0])
    sections = re.findall(r'<section id="([^"]+)" aria-labelledby="([^"]+)">', text)
    assert targets == [name for name, _ in sections]
    assert {label for _, label in sections} <= set(page.ids)
    assert len(sections) == 8, "results, analyses, drawings, sentences, training, corpus, details, reproduction"


def test_a_system_has_one_colour_in_all_figures_and_tables(report: StepContext) -> None:
    text = page_of(report)
    assert re.findall(r'class="dot" style="background:([^"]+)"[^>]*></span><b>(\w+)</b>', text) == [
        ("var(--series0)", "autoregressive"),
        ("var(--series0)", "autoregressive"),
        ("var(--series1)", "interleaved"),
        ("var(--series2)", "graph"),
    ]
    for name, colour in (("graph/beam5", 2), ("interleaved/greedy", 1), ("interleaved", 1), ("teacher", 3)):
        marks = re.findall(rf"<li><svg[^>]*>([^\n]*?)</svg>{name}</li>", text)
        assert marks
        assert all(f"var(--series{colour})" in mark for mark in marks)


def test_headline_figures_are_the_bold_values_of_the_table(report: StepContext) -> None:
    text = page_of(report)
    tiles = re.findall(r'class="tile"><b>([^<]+)</b>', text)
    bold = re.findall(r'class="best">([^<]+)<', text)
    assert len(tiles) >= 4
    assert {tile.removesuffix(" ms") for tile in tiles[:-1]} <= set(bold)


def test_differences_are_marked_after_the_correction(report: StepContext) -> None:
    rows = json.loads((report.directory / "results.json").read_text())["rows"]
    assert [sorted(row["comparisons"]) for row in rows] == [[], *[["bleu", "chrf", "ter"]] * 3]
    table = page_of(report).partition('class="results sortable"')[2].partition("</table>")[0]
    marked = re.findall(r'class="sig (up|down)" role="img" aria-label="significantly (\w+) than the baseline', table)
    expected = []
    for row in rows:
        for metric, found in row["comparisons"].items():
            assert found["p"] <= found["adjusted"] <= min(1.0, 3 * found["p"] + 1e-9)
            if found["adjusted"] < 0.05:
                better = (found["delta"] > 0) == (metric != "ter")
                expected.append(("up", "better") if better else ("down", "worse"))
    assert sorted(marked) == sorted(expected)
    assert ("down", "worse") in marked


def test_every_row_is_in_every_form_of_the_report(report: StepContext, inputs: ReportInputs) -> None:
    words = " ".join(outline(report).words)
    markdown = report.records("report.md").read_text(encoding="utf-8")
    rows = json.loads((report.directory / "results.json").read_text())["rows"]
    assert [(row["system"], row["search"]) for row in rows] == [(system, search) for system, search, _ in ENTRIES]
    for row, item in zip(rows, inputs.evaluated, strict=True):
        scores = json.loads((item.scores.path / "scores.json").read_text())
        assert row["metrics"] == scores
        bleu = f"{scores['bleu']['score']:.2f}"
        assert re.search(rf"\| {item.system} +\| {item.search} +\| +{re.escape(bleu)} \|", markdown)
        assert bleu in words
        assert item.hypotheses.fingerprint[:16] in words
    assert scores["bleu"]["signature"] in words


def test_text_is_escaped(report: StepContext) -> None:
    html = report.records("report.html").read_text(encoding="utf-8")
    assert "demo &lt;1&gt; &amp; more" in html
    assert "Example CPU &lt;1&gt;" in html
    assert "too &lt;i&gt;long&lt;/i&gt;" in html
    assert "<i>" not in html


def test_markdown_is_narrow_and_aligned(report: StepContext) -> None:
    lines = report.records("report.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|")]
    size = 2 + len(ENTRIES)
    results, others = rows[:size], rows[size:]
    for lined_up in (results, others):
        assert len(lined_up) == size
        assert {len(line) for line in lined_up} == {len(lined_up[0])}
    assert max(map(len, lines)) <= 110
    assert heads(results[0]) == ["system", "search", "BLEU", "chrF++", "ms (p50)", "ms (p95)", "speed-up", "sent/s"]
    assert heads(others[0]) == ["system", "search", "TER", "tok. BLEU"]
    assert "1.00x" in results[2]


def test_every_metric_and_its_signature_is_in_the_markdown(report: StepContext, inputs: ReportInputs) -> None:
    markdown = report.records("report.md").read_text(encoding="utf-8")
    for item in inputs.evaluated:
        scores = json.loads((item.scores.path / "scores.json").read_text())
        ter, tokenized = (re.escape(f"{scores[name]['score']:.2f}") for name in ("ter", "tokenized_bleu"))
        assert re.search(rf"\| {item.system} +\| {item.search} +\| +{ter} \| +{tokenized} \|\n", markdown)
    names = {"BLEU": "bleu", "chrF++": "chrf", "TER": "ter", "tok. BLEU": "tokenized_bleu"}
    listed = "\n".join(f"- {name}: `{scores[metric]['signature']}`" for name, metric in names.items())
    assert f"\n\nSignatures:\n\n{listed}\n" in markdown


def test_results_without_analyses_have_no_such_key(report: StepContext) -> None:
    results = json.loads((report.directory / "results.json").read_text())
    assert "analyses" not in results
    assert "perplexity" not in results["rows"][0]["metrics"]


def test_perplexities_over_other_tokens_are_not_compared() -> None:
    found = {"tokens": 5, "vocabulary": "a", "log_probability": -3.0}
    for key, value in (("tokens", 6), ("vocabulary", "b")):
        with pytest.raises(
            DataError, match=rf"mutual_information\.x: expected systems that score the same tokens, .*{key} .* and s with {value}"
        ):
            mutual_information("x", "p", "s", 2, {"p": found, "s": {**found, key: value}})


def test_a_report_without_a_benchmark_has_no_times(tmp_path: Path, inputs: ReportInputs) -> None:
    context = context_in(tmp_path / "out")
    STAGE.run(replace(inputs, timings={}, trainings={}), CONFIG, context)
    table = [line for line in context.records("report.md").read_text().splitlines() if line.startswith("|")]
    assert heads(table[0]) == ["system", "search", "BLEU", "chrF++"]
    page = outline(context)
    assert page.open == []
    assert page.images == []
    assert "throughput" not in page.words


def test_results_are_reproducible_and_hold_no_timings(tmp_path: Path, report: StepContext, inputs: ReportInputs) -> None:
    context = context_in(tmp_path / "out")
    STAGE.run(replace(inputs, timings={}), CONFIG, context)
    assert (context.directory / "results.json").read_bytes() == (report.directory / "results.json").read_bytes()
    assert (
        context.records("figures", "training_curves.svg").read_bytes()
        == report.records("figures", "training_curves.svg").read_bytes()
    )
    results = json.loads((context.directory / "results.json").read_text())
    assert results["corpus"]["pairs_in"] == 20146
    assert results["tests"] == {"demo": 60}
    assert [row["comparisons"] == {} for row in results["rows"]] == [True, False, False, False]
    assert [path.name for path in context.directory.iterdir() if path.is_file()] == ["results.json"]


def test_the_report_of_summarization_names_summaries_and_compares_rouge(tmp_path: Path) -> None:
    maker = Maker(tmp_path, SUMMARIZATION, ("rouge1", "rouge2", "rougeL", "bleu"))
    inputs = maker.inputs()
    cut = {}
    for name, count in (("train", 4), ("demo", 1)):
        (tmp_path / f"tokens {name}").mkdir()
        facts = {"rows": 20, "sources_cut": count, "max_source_tokens": 400}
        (tmp_path / f"tokens {name}" / "tokens.json").write_text(json.dumps(facts))
        cut[name] = Tokens(tmp_path / f"tokens {name}", name)
    config, context = replace(CONFIG, task="summarization", min_rouge=10.0), context_in(tmp_path / "out")
    STAGE.run(replace(inputs, cut=cut), config, context)
    markdown = context.records("report.md").read_text(encoding="utf-8")
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    assert heads(lines[0])[:5] == ["system", "search", "ROUGE-1", "ROUGE-2", "ROUGE-L"]
    assert heads(lines[0])[-1] == "doc/s"
    assert "## demo: 60 documents" in markdown
    assert "Sources truncated to 400 tokens: 4 of 20 in train, 1 of 20 in demo.\n" in markdown
    assert re.search(r"- interleaved/greedy: -\d+\.\d\d ROUGE-L \(95 % interval", markdown)
    results = json.loads((context.directory / "results.json").read_text())
    lead = results["lead_baselines"]["demo"]
    assert lead["sentences"] == 1
    assert set(lead["scores"]) == {"rouge1", "rouge2", "rougeL"}
    assert (
        f"Lead baseline (the first sentence of each document as its summary): {lead['scores']['rouge1']:.2f} ROUGE-1, " in markdown
    )
    page, html = outline(context), context.records("report.html").read_text()
    assert page.open == []
    assert "Summaries side by side" in page.words
    assert "summarization in few steps" in html
    assert "Sources truncated to 400 tokens: 4 of 20" in html
    assert "Δ ROUGE-L" in page.words
    assert not re.search("sentence pair|[Tt]ranslat|one sentence at a time|best BLEU", html)
    with pytest.raises(StageError, match=r"scores \d+\.\d\d ROUGE-L on test demo, expected at least 99;"):
        STAGE.run(inputs, replace(config, min_rouge=99.0), context_in(tmp_path / "again"))


def test_low_bleu_of_the_baseline_fails_after_the_page_is_written(tmp_path: Path, inputs: ReportInputs) -> None:
    context = context_in(tmp_path / "out")
    expected = r"the check failed: system autoregressive scores \d+\.\d\d BLEU on test demo, expected at least 99\.5"
    with pytest.raises(StageError, match=expected):
        STAGE.run(inputs, replace(CONFIG, min_bleu=99.5), context)
    assert re.search(expected.split(": ", 1)[1], context.records("report.md").read_text())
    assert "The check failed." in context.records("report.html").read_text()
    assert outline(context).open == []


def test_low_bleu_of_other_systems_is_accepted(tmp_path: Path, inputs: ReportInputs) -> None:
    scores = [json.loads((item.scores.path / "scores.json").read_text())["bleu"]["score"] for item in inputs.evaluated]
    assert scores[0] > scores[2]
    STAGE.run(replace(inputs, trainings={}), replace(CONFIG, min_bleu=scores[0] - 0.01), context_in(tmp_path / "out"))


def test_an_unknown_baseline_is_reported(tmp_path: Path, inputs: ReportInputs) -> None:
    with pytest.raises(DataError, match=r"expected one of autoregressive/beam5, .*, graph/beam5, got 'teacher'"):
        STAGE.run(inputs, replace(CONFIG, baseline="teacher"), context_in(tmp_path / "out"))


def test_several_test_sets_have_a_table_each(tmp_path: Path) -> None:
    maker = Maker(tmp_path)
    tests = {"one": maker.text("one", 8), "two": maker.text("two", 9)}
    evaluated = tuple(maker.evaluated("autoregressive", "greedy", test, text, 0.2) for test, text in tests.items())
    context = context_in(tmp_path / "out")
    config = replace(CONFIG, baseline="autoregressive/greedy", samples=2)
    STAGE.run(ReportInputs(maker.text("train", 3), tests, {}, evaluated), config, context)
    markdown = context.records("report.md").read_text()
    assert "## one: 8 sentences" in markdown
    assert "## two: 9 sentences" in markdown
    assert outline(context).open == []
    assert context.records("report.html").read_text().count('class="sample"') == 4


def test_headline_figures_leave_out_the_speed_of_systems_with_low_scores(tmp_path: Path) -> None:
    maker = Maker(tmp_path)
    demo = maker.text("demo", 60)
    entries = (("autoregressive", "greedy", 0.05, 19.0), ("interleaved", "greedy", 0.08, 11.0), ("drafts", "draft", 0.7, 2.0))
    given = replace(
        maker.inputs(timed=False),
        tests={"demo": demo},
        evaluated=tuple(maker.evaluated(system, search, "demo", demo, noise) for system, search, noise, _ in entries),
        timings={"demo": maker.timings({f"{system}/{search}": ms for system, search, _, ms in entries})},
    )
    context = context_in(tmp_path / "out")
    STAGE.run(given, replace(CONFIG, baseline="autoregressive/greedy"), context)
    page = page_of(context).replace("<wbr>", "")
    tiles = page[page.index('class="tiles"') : page.index("</header>")]
    assert "interleaved/greedy" in tiles
    assert "drafts" not in tiles
    assert "drafts/draft" in page


def row_of(entry: str, score: float, ms: float | None, size: int | None = None) -> Row:
    system, search = entry.split("/")
    timing = None if ms is None else {"latency_ms": {"median": ms}, **({} if size is None else {"system_bytes": size})}
    return Row(system, search, "demo", {"bleu": {"score": score}}, timing=timing)


def findings_of(rows: list[Row], other: float = 0.1) -> Findings:
    where = {"environment": {"other_processors": other, "cpus": 2}}
    return Findings(rows, {}, {}, {"demo": 10}, {"demo": where} if any(row.timing for row in rows) else {})


def test_the_verdict_follows_its_rule() -> None:
    """Against the rule written out: close in score, then fast, then small, then good."""
    draw = random.Random(3)
    for _ in range(300):
        rows = [
            row_of(
                f"s{n}/a", draw.choice([29.0, 29.6, 30.0, 30.4]), draw.choice([2.0, 2.05, 2.2, 4.0, None]), draw.choice([1, 2, 3])
            )
            for n in range(draw.randint(2, 6))
        ]
        found = verdict_of(findings_of(rows))
        assert found is not None
        top = max(row.score("bleu") or 0 for row in rows)
        left = [row for row in rows if row.timing and (row.score("bleu") or 0) >= top - 1]
        assert found.best.score("bleu") == top
        if not left:
            assert found.taken is found.best
            continue
        times = {row.entry: row.timing["latency_ms"]["median"] for row in left if row.timing}
        fast = [row for row in left if times[row.entry] <= 1.05 * min(times.values())]
        sizes = {row.entry: row.timing["system_bytes"] for row in fast if row.timing}
        small = [row for row in fast if sizes[row.entry] == min(sizes.values())]
        assert found.taken in small
        assert found.taken.score("bleu") == max(row.score("bleu") or 0 for row in small)


def test_the_verdict_says_why() -> None:
    rows = [row_of("slow/beam", 30.0, 8.0, 64 << 20), row_of("fast/greedy", 29.4, 2.0, 32 << 20), row_of("bad/greedy", 20.0, 1.0)]
    text = verdict_text(findings_of(rows))
    assert text == (
        "Take fast/greedy, because: 29.4 BLEU on demo, 0.6 below the best (slow/beam); 2.00 ms a sentence, 4.0 times as fast; "
        "32.0 MiB on disk. The rule: of the entries within 1 BLEU of the best, the fastest by median latency; among those at most "
        "5% slower, the smallest."
    )
    loaded = verdict_text(findings_of(rows, other=0.25))
    assert loaded == f"{text} The machine was under load: measure again before you rely on it."
    untimed = verdict_text(findings_of([replace(row, timing=None) for row in rows]))
    assert untimed == "Take slow/beam, because it has the best score: 30.0 BLEU on demo. No speed was measured for the close ones."
    assert verdict_text(findings_of(rows[:1])) is None, "there is no choice"


def test_the_verdict_is_on_the_page_and_in_markdown(report: StepContext) -> None:
    markdown = " ".join(report.records("report.md").read_text().split())
    (said,) = re.findall(r"Take \S+, because: .* the smallest\.", markdown)
    page = page_of(report).replace("<wbr>", "")
    assert said in html.unescape(page)


@pytest.mark.parametrize(("other", "marked"), [(0.2, False), (0.23, True)])
def test_timings_of_a_machine_under_load_are_marked(other: float, marked: bool) -> None:
    where: dict[str, Any] = {"device": "cpu", "cpu": "A", "cpus": 2, "threads": 1, "precision": "int8", "torch": "2"}
    where["other_processors"] = other
    assert machine(where).startswith("A, 1 thread, int8, torch 2")
    assert ("UNDER LOAD (other work kept 0.2 of 2 processors busy)" in machine(where)) == marked


def test_exact_beams_that_write_too_little_are_reported() -> None:
    scores = {
        "a/greedy": 0.95,
        "a/beam": 0.85,
        "a/beam-beam_size4-outer": 0.5,
        "a/beam-beam_size4": 0.9,
        "b/greedy": 0.89,  # greedy is as short
        "b/beam": 0.6,
        "c/beam": 0.6,  # nothing to compare with
    }
    rows = [
        Row(*entry.split("/"), test="demo", metrics={"bleu": {"score": 1.0, "brevity_penalty": brevity}})
        for entry, brevity in scores.items()
    ]
    rows += [Row("a", search, "other", {"chrf": {"score": 1.0}}) for search in ("greedy", "beam")]
    findings = Findings(rows, {}, {}, {"demo": 10, "other": 10}, {})
    (line,) = short_lines(findings, "demo")
    assert line.startswith("a/beam writes too little: its brevity penalty is 0.85, that of greedy 0.95.")
    assert short_lines(findings, "other") == []


def test_sources_with_unknown_characters_are_counted() -> None:
    counted = {"a": {"sentences": 2, "first": ["\u2603", "\u6f22"]}, "b": {"sentences": 0, "first": []}}
    findings = Findings([], {}, {}, {"a": 10, "b": 10}, {}, unknown=counted)
    assert str(unknown_line(findings, "a")).startswith("2 of 10 sources have characters that the vocabulary lacks")
    assert str(unknown_line(findings, "a")).endswith("\u2603 \u6f22.")
    assert unknown_line(findings, "b") is None


def test_perplexity_is_reported_for_each_system_and_lower_is_better(analysed: StepContext) -> None:
    rows = json.loads((analysed.directory / "results.json").read_text())["rows"]
    found = {row["system"]: row["metrics"]["perplexity"] for row in rows}
    assert found["autoregressive"]["score"] == pytest.approx(math.exp(1.2), abs=1e-4)
    assert found["graph"]["signature"] == "sentences:58 of 60|tokens:subwords+eos|vocabulary:ab12"
    markdown = analysed.records("report.md").read_text(encoding="utf-8")
    assert "Other scores (lower OTEM, UTEM, perplexity is better):" in markdown
    assert re.search(r"\| graph +\| beam5 +\| +[\d.]+ \| +[\d.]+ \| +3\.49 \|", markdown)
    html = analysed.records("report.html").read_text(encoding="utf-8")
    for head in ("OTEM ↓", "UTEM ↓", "perplexity ↓"):
        assert f">{head}</th>" in html
    assert re.search(r'<td data-value="3.32\d*" class="best">3.32<', html)
    assert not re.search(r'class="best">3.67<', html)


def test_mutual_information_is_in_nats_per_step_and_in_the_unit_of_the_paper(analysed: StepContext) -> None:
    (pair,) = json.loads((analysed.directory / "results.json").read_text())["analyses"]["mutual_information"]["demo"]
    assert pair["nats_per_step"] == pytest.approx(2 * 0.1)
    assert pair["log10_ratio"] == pytest.approx(math.log10(math.exp(1.3) / math.exp(1.2)), abs=1e-6)
    row = r"\| l2r +\| interleaved +\| autoregressive +\| +2 \| +3\.669 \| +3\.320 \| +0\.200 \| +0\.043 \|"
    assert re.search(row, analysed.records("report.md").read_text(encoding="utf-8"))


def test_agreement_is_reported_by_distance_in_a_table_and_a_figure(analysed: StepContext) -> None:
    markdown = analysed.records("report.md").read_text(encoding="utf-8")
    assert re.search(r"\| autoregressive +\| +83\.3 \| +50\.0 \| +100\.0 \| +95\.0 \| +55\.0 \|", markdown)
    assert re.search(r"\| compound +\| +4 \| +75\.0 \|", markdown)
    assert re.search(r"\| all +\| +64 \| +\d+\.\d \|", markdown)
    assert re.search(r"\| 3-5 +\| +8 \| +25\.0 \|", markdown)
    assert "Pairs: 1: 20, 2: 20, 3-4: 20." in markdown.replace("\n", " ")
    assert "<svg" in analysed.records("figures", "agreement.svg").read_text()
    page = outline(analysed)
    assert page.open == []
    assert len(page.images) == 2 + 4 + 1 + 1 + 2 + 2, "speed, curves, speed over sentences, agreement; lengths, samples; two graphs"
    assert len(page.ids) == len(set(page.ids))
    assert "contrastive:graph" in page.words


def test_speed_up_over_sentences_is_drawn_for_all_entries_except_the_baseline(analysed: StepContext) -> None:
    svg = analysed.records("figures", "speed_spread.demo.svg").read_text()
    assert "autoregressive/greedy" in svg
    assert "graph/beam5" in svg
    assert "autoregressive/beam5" not in svg
    assert "Speed-up of each entry over autoregressive/beam5" in analysed.records("report.html").read_text(encoding="utf-8")


def test_bleu_by_length_and_diversity_have_tables_and_figures(analysed: StepContext) -> None:
    analyses = json.loads((analysed.directory / "results.json").read_text())["analyses"]
    bins = analyses["by_length"]["demo"]["graph/beam5"]["bins"]
    assert [part["sentences"] for part in bins] == [0, 60, 0], "twelve words and a full stop"
    markdown = analysed.records("report.md").read_text(encoding="utf-8")
    assert re.search(rf"\| graph/beam5 +\| +- \| +{bins[1]['bleu']:.2f} \| +- \|", markdown)
    assert "| 1-12 | 13-13 | 14+ |" in re.sub(" +", " ", markdown)
    assert list(analyses["diversity"]["demo"]) == ["autoregressive/greedy", "interleaved/greedy"]
    assert re.search(r"\| interleaved/greedy +\| +3 \| +40\.00 \| +71\.50 \| +61\.25 \|", markdown)
    assert re.search(r"\| interleaved/greedy +\| +44\.75 \| +2\.50 \| +1\.50 \|", markdown)
    for name in ("by_length.demo", "diversity.demo"):
        assert "<svg" in analysed.records("figures", f"{name}.svg").read_text()


def test_slots_and_repetition_have_tables(analysed: StepContext) -> None:
    markdown = analysed.records("report.md").read_text(encoding="utf-8")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in markdown.splitlines() if line.startswith("|")]
    assert ["graph", "demo", "60", "2", "31.2", "3.46"] in cells
    assert ["graph", "demo", "true", "25.0", "50.0"] in cells
    assert ["graph", "demo", "predicted", "12.5", "37.5"] in cells
    assert ["autoregressive/greedy", "0.75", "0.40", "0.67"] in cells
    assert ["autoregressive/greedy", "80.0", "70.0", "97.5", "12.5"] in cells
    assert ["autoregressive/greedy", "87.5"] in cells
    page = outline(analysed)
    assert any("In the first references it is 0.10 % of the words." in words for words in page.words)
    counts = "30 sources have placeholders (code: 40, url: 8); 90.0 % of their first references have the same ones."
    assert any(counts in words for words in page.words)
    assert "parallel_analysis:graph:demo" in page.words


def test_dag_analyses_have_tables_and_drawings(analysed: StepContext) -> None:
    markdown = analysed.records("report.md").read_text(encoding="utf-8")
    early, late = re.findall(r"\| graph[^|]*\| train +\| +60 \|.*", markdown)
    assert heads(early) == ["graph, update 1,500", "train", "60", "2", "5.0", "13.4", "3.46"]
    assert heads(late) == ["graph", "train", "60", "2", "25.0", "31.4", "3.46"]
    assert re.search(r"\| graph +\| demo +\| +400 \| +20\.0 \| +25\.0 \| +10\.0 \| +25\.0 \|", markdown)
    page = outline(analysed)
    assert {"dag-graph-demo-00-dag-1-vertex-3", "dag-graph-demo-01-dag-1-vertex-3"} <= set(page.ids)
    assert "drawing 1 & more" in page.words
    assert "DAGs of graph on demo" in page.words
    assert "DAGs of graph on train" not in page.words, "it has no drawings"
    assert "dag_analysis:graph:train" in page.words


def test_precision_of_head_and_tail_has_a_row_for_each_entry_and_order(analysed: StepContext) -> None:
    results = json.loads((analysed.directory / "results.json").read_text())
    ends = results["analyses"]["head_and_tail"]["demo"]["autoregressive/beam5"]
    markdown = analysed.records("report.md").read_text(encoding="utf-8")
    rows = [line for line in markdown.splitlines() if re.match(r"\| \w+/\w+ +\| +[14] \|", line)]
    assert len(rows) == 2 * len(ENTRIES)
    assert heads(rows[0])[2] == f"{ends['precision']['1']['all']:.1f}"
    assert "60 sentences whose reference has more than 5 words" in markdown.replace("\n", " ")
    assert "| n-grams |  all | first 5 | first 10 | first 15 | last 5 | last 10 | last 15 |" in markdown
    assert markdown.isascii()
