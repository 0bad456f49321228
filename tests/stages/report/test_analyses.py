"""Tables and figures of the optional analyses."""

from __future__ import annotations

import json
import math
import re

import pytest

from stages.context import StepContext
from tests.stages.report.made_report import ENTRIES, heads, outline


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
    page = outline(analysed)
    assert any("In the first references it is 0.10 % of the words." in words for words in page.words)
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
