"""Sections and figures of the report, its Markdown, and means over seeds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.context import StepContext, StepSpan
from stages.report.figures import Point, pareto, quality_speed, training_curves
from stages.report.findings.curves import Costs, read_costs, read_curves, thinned
from stages.report.findings.results import NAMES, Findings, Outputs, Row
from stages.report.findings.seeds import over_seeds, seed_tables
from stages.report.page.browser import compact
from stages.report.page.markdown import markdown
from stages.report.page.markup import element, join, section_element
from stages.report.page.sections import corpus
from stages.report.page.timeline import by_stage, duration, lanes, run_timeline
from stages.shared.figures.canvas import SERIES, colours_of, inlined
from tests.stages.report.made_report import ENTRIES, page_of

# ---- sections


SPANS = (
    StepSpan("corpus:train", 100.0, 100.0, "hit"),
    StepSpan("train:teacher", 100.0, 160.0, "done"),
    StepSpan("train:other <1>", 110.0, 130.0, "lost"),
    StepSpan("train:other <1>", 130.0, 200.0, "running"),
)


def test_the_chart_has_a_row_for_each_stage_and_a_bar_for_each_span() -> None:
    section = run_timeline(SPANS)
    assert section is not None
    html = section_element(section)
    assert re.findall(r'class="span (\w+)"', html) == ["hit", "done", "lost", "running"]
    assert html.count('role="listitem"') == 2
    assert 'style="left:0.00%;width:60.00%"' in html
    assert 'title="train:other &lt;1&gt;: lost, 20 s"' in html
    assert "1 step computed and 1 hit in 1 min 40 s" in html
    assert run_timeline(()) is None


@pytest.mark.parametrize("seconds", [7, 80, 211, 214, 3650, 90000, 700000])
def test_labels_of_the_time_axis_end_before_the_chart(seconds: int) -> None:
    """Every tick has a line, and ticks near the right edge have no label, which would stick out on a phone."""
    section = run_timeline((StepSpan("train:teacher", 0.0, float(seconds), "done"),))
    assert section is not None
    axis = section_element(section).partition('class="axis"')[2].partition("</div>")[0]
    ticks = re.findall(r'<span style="left:([\d.]+)%">([\d:]*)</span>', axis)
    assert 3 <= len(ticks) <= 10
    assert [float(place) <= 87 for place, _ in ticks] == [bool(label) for _, label in ticks]
    assert ticks[0] == ("0.00", "0:00")


def test_lanes_hold_spans_that_do_not_overlap() -> None:
    training = by_stage(SPANS)["train"]
    assert [[span.started for span in lane] for lane in lanes(training)] == [[100.0], [110.0, 130.0]]


def test_durations_have_the_units_that_fit() -> None:
    assert [duration(value) for value in (0.26, 42.4, 185, 7260)] == ["0.3 s", "42 s", "3 min 5 s", "2 h 1 min"]


def test_the_funnel_counts_down_to_what_is_kept() -> None:
    dropped = {"empty": 0, "over_long": 20, "ratio": 30}
    samples = {"ratio": [{"source": "a <b>", "target": "c"}]}
    ledger = {"rows": 50, "pairs_in": 100, "pairs_out": 50, "dropped": dropped, "samples": samples}
    findings = Findings([], {}, ledger, {}, {})
    html = section_element(corpus(findings, {"distill:train": {"rows": 50, "kept": 40, "repeating": 10}}))
    assert re.findall(r"<td>(\d+)</td><td>([\d.]+%)", html) == [("80", "80.0%"), ("50", "50.0%"), ("40", "80.0%")]
    assert re.findall(r'class="dropped" style="width:([\d.]+)%"', html) == ["20.00", "30.00", "20.00"]
    assert "a &lt;b&gt;" in html
    assert "No pair was dropped for: empty." in html
    assert "usable targets" in html


def test_the_data_of_the_browser_hold_every_hypothesis_once(report: StepContext) -> None:
    data = json.loads(page_of(report).partition('type="application/json" id="data">')[2].partition("</script>")[0])
    (test,) = data["tests"]
    assert test["metric"] == "chrF++"
    assert test["baseline"] == "autoregressive/beam5"
    assert test["entries"] == [f"{system}/{search}" for system, search, _ in ENTRIES]
    assert len(test["rows"]) == 60
    for source, references, texts, scores, indices in test["rows"]:
        assert source
        assert len(references) == 1
        assert len(texts) == len(set(texts)) == len(scores)
        assert all(0 <= value <= 100 for value in scores)
        assert len(indices) == len(ENTRIES)
        assert set(indices) == set(range(len(texts)))
    assert all(
        (texts[i] == references[0]) <= (scores[i] == 100)
        for _, references, texts, scores, _ in test["rows"]
        for i in range(len(texts))
    )


def test_text_in_the_data_cannot_end_its_element(report: StepContext) -> None:
    data = page_of(report).partition('id="data">')[2].partition("</script>")[0]
    assert "\\u003cb>today" in data
    assert "<" not in data


def test_sentences_are_scored_as_the_signature_states(report: StepContext) -> None:
    from stages.report.findings.results import Row
    from stages.shared.decoding.sentences import Sentence

    metrics = {"chrf": {"score": 1.0, "signature": "nrefs:1|case:lc|eff:yes|nc:6|nw:2|space:no|version:2"}}
    outputs = Outputs([Sentence(0, "s", ("EIN Haus",))], {"a/b": ["ein haus"]})
    findings = Findings([Row("a", "b", "t", metrics)], {"t": outputs}, {}, {"t": 1}, {})
    assert compact(findings, "t")["rows"][0][3] == [100.0]


# ---- Markdown


def row(system: str, test: str = "news", **scores: tuple[float, str]) -> Row:
    return Row(system, "greedy", test, {name: {"score": score, "signature": how} for name, (score, how) in scores.items()})


def written(*rows: Row) -> str:
    tests = dict.fromkeys((each.test for each in rows), 9)
    return markdown("demo", Findings(list(rows), {}, {"rows": 7}, tests, {}), ["too little"])


def test_other_scores_have_a_table_with_dashes_for_missing_ones() -> None:
    text = written(
        row("a", bleu=(30.126, "B"), ter=(50.5, "T"), compound_split_bleu=(31.0, "C")),
        row("b", bleu=(31.0, "B"), ter=(49.0, "T")),
    )
    assert (
        "\n\nOther scores (lower TER is better):\n\n"
        "| system | search |   TER | split BLEU |\n"
        "| ------ | ------ | ----: | ---------: |\n"
        "| a      | greedy | 50.50 |      31.00 |\n"
        "| b      | greedy | 49.00 |          - |\n\n"
    ) in text


def test_the_title_names_only_metrics_of_which_lower_is_better() -> None:
    assert "\n\nOther scores:\n\n| system | search | tok. BLEU |" in written(row("a", tokenized_bleu=(30.0, "B")))


def test_the_report_is_ascii() -> None:
    assert written(row("a", bleu=(30.0, "B"), ter=(50.0, "T"))).isascii()


def test_without_other_scores_there_is_no_table_of_them() -> None:
    text = written(row("a", bleu=(30.0, "B"), chrf=(50.0, "C")))
    assert "Other scores" not in text
    assert "- BLEU: `B`\n- chrF++: `C`\n" in text


def test_each_distinct_signature_is_listed_once() -> None:
    text = written(
        row("a", ter=(50.0, "T"), bleu=(30.0, "nrefs:1")),
        row("b", bleu=(30.0, "nrefs:1")),
        row("a", "wiki", bleu=(30.0, "nrefs:2")),
    )
    assert text.endswith("\n\nSignatures:\n\n- BLEU: `nrefs:1`\n- BLEU: `nrefs:2`\n- TER: `T`\n\n**Check failed:** too little\n")


# ---- seeds


def seed_row(system: str, search: str, bleu: float, **others: float) -> Row:
    return Row(system, search, "test", {name: {"score": value} for name, value in {"bleu": bleu, **others}.items()})


def test_statistics_are_those_of_the_same_search_of_each_seed() -> None:
    rows = [
        seed_row("a", "greedy", 30.0, chrf=50.0), seed_row("a", "beam", 40.0), seed_row("b", "greedy", 99.0),
        seed_row("a-seed2", "greedy", 32.0), seed_row("a-seed2", "beam", 40.0),
    ]  # fmt: skip
    greedy, beam = over_seeds(rows, {"a": ("a", "a-seed2")})
    assert greedy["metrics"] == {"bleu": {"values": [30.0, 32.0], "mean": 31.0, "deviation": 1.4142}}  # chrF lacks a seed
    assert (beam["search"], beam["seeds"], beam["metrics"]["bleu"]["deviation"]) == ("beam", 2, 0.0)
    (table,) = seed_tables([greedy, beam], NAMES)
    assert table.columns == ["entry", "seeds", "BLEU"]
    assert table.rows == [["a/greedy", "2", "31.00 ± 1.41"], ["a/beam", "2", "40.00 ± 0.00"]]


def test_without_seeds_there_is_no_table() -> None:
    assert over_seeds([seed_row("a", "greedy", 1.0)], {}) == []
    assert list(seed_tables([], NAMES)) == []


POINTS = [
    Point("a/beam5", "a", 30.0, 20.0, 100.0),
    Point("b/greedy <1>", "b", 28.0, 9.0, 300.0),
    Point("c/x", "c", 25.0, 12.0, 90.0),
]
COLOURS = colours_of(point.system for point in POINTS)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12))
def test_the_pareto_front_agrees_with_brute_force(points: list[tuple[int, int]]) -> None:
    front = [points[index] for index in pareto(points)]
    undominated = {
        (cost, gain) for cost, gain in points if not any(c <= cost and g >= gain and (c, g) != (cost, gain) for c, g in points)
    }
    assert front == sorted(undominated)


def test_figures_are_reproducible_and_complete() -> None:
    drawn = quality_speed(POINTS, "BLEU", "sentence", COLOURS).document()
    assert quality_speed(POINTS, "BLEU", "sentence", COLOURS).document() == drawn
    ElementTree.fromstring(drawn)
    texts = ["".join(element.itertext()) for element in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    for number, point in enumerate(POINTS, 1):
        assert texts.count(point.entry) == 1
        assert texts.count(str(number)) >= 3  # in either panel and in the key
    assert quality_speed(POINTS[:1], "BLEU", "sentence", COLOURS).document()
    curves = {"t": {"nll": [(1, 3.0), (2, 2.0)], "valid_loss": [(2, 2.5)]}}
    one, other = (training_curves(curves, ("nll", "valid_loss"), ("valid_bleu", "BLEU"), {"t": SERIES[0]}, {}) for _ in range(2))
    assert one == other
    assert [panel.title for panel in one.panels] == ["Loss by update", "Validation BLEU by update"]


def test_the_document_of_a_drawing_holds_its_panels_beside_each_other() -> None:
    drawing = quality_speed(POINTS, "BLEU", "sentence", COLOURS)
    root = ElementTree.fromstring(drawing.document())
    left, right = root.findall("{http://www.w3.org/2000/svg}svg")
    width = float(root.attrib["viewBox"].split()[2])
    assert float(left.attrib["x"]) == 0
    assert float(right.attrib["x"]) == float(left.attrib["width"])
    assert float(right.attrib["x"]) + float(right.attrib["width"]) == width
    ids = re.findall(r'\bid="([^"]+)"', drawing.document())
    assert len(ids) == len(set(ids))


def test_an_inlined_figure_has_the_colours_of_the_page_and_unique_ids() -> None:
    panel = quality_speed(POINTS, "BLEU", "sentence", COLOURS).panels[0]
    one, two = (inlined(panel.svg, prefix, "Speed & <quality>") for prefix in ("one.demo", "two"))
    assert one.startswith("<svg")
    assert ElementTree.fromstring(one).attrib["aria-labelledby"] == "one-demo-title"
    assert '<title id="one-demo-title">Speed &amp; &lt;quality&gt;</title>' in one
    assert "http" not in one
    assert "var(--ink)" in one
    assert "var(--series2)" in one
    assert not re.search(r"#[0-9a-f]{6}\b", one)
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (one, two)]
    assert not ids[0] & ids[1]
    assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', one)) <= ids[0]


def test_values_of_a_later_attempt_override_earlier_ones(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    attempts = {
        "z9": [{"step": 1, "time": 10, "loss": 5}, {"step": 2, "time": 11, "loss": 4}, {"step": 3, "time": 12, "loss": 3.5}],
        "a1": [{"step": 2, "time": 20, "loss": 4.25}, {"step": 4, "time": 21, "loss": 2, "bleu": 30, "note": "text"}],
    }
    for name, lines in attempts.items():
        text = "".join(json.dumps(line) + "\n" for line in lines) + ('{"step": 5, "ti' if name == "z9" else "")
        (tmp_path / "records" / f"metrics.{name}.jsonl").write_text(text)
    assert read_curves(tmp_path) == {"bleu": [(4, 30.0)], "loss": [(1, 5.0), (2, 4.25), (3, 3.5), (4, 2.0)]}


def costs(folder: Path, **attempts: list[dict[str, float]]) -> Costs | None:
    (folder / "records").mkdir()
    for name, lines in attempts.items():
        (folder / "records" / f"metrics.{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_costs(folder)


def test_device_hours_count_lost_work_and_leave_out_pauses(tmp_path: Path) -> None:
    """Two GPUs run for an hour, of which the second half is lost; four run for two hours after a pause of a day."""
    first = [{"step": 0, "time": 0, "gpus": 2}, {"step": 10, "time": 1800, "valid_loss": 5}, {"step": 20, "time": 3600, "loss": 4}]
    second = [
        {"step": 10, "time": 90_000, "gpus": 4},
        {"step": 20, "time": 93_600, "valid_loss": 3},
        {"step": 30, "time": 97_200, "valid_loss": 2},
    ]
    found = costs(tmp_path, z=first, a=second)
    assert found is not None
    assert found.device == "GPU"
    assert found.over([(20, 3.0), (30, 2.0), (40, 1.0)]) == [(2 + 4, 3.0), (2 + 8, 2.0)]


def test_a_training_without_one_kind_of_devices_has_no_device_hours(tmp_path: Path) -> None:
    for name, lines in {
        "old": [{"step": 1, "time": 5, "loss": 1.0}],
        "mixed": [{"step": 1, "time": 5, "gpus": 1}, {"step": 2, "time": 9, "cpus": 4}],
    }.items():
        (tmp_path / name).mkdir()
        assert costs(tmp_path / name, a=lines) is None


def test_quality_is_drawn_by_the_hours_of_each_kind_of_device() -> None:
    curves = {name: {"valid_loss": [(1, 3.0), (2, 2.0)], "valid_bleu": [(2, 9.0)]} for name in ("a", "b", "c")}
    known = {"a": Costs("GPU", {1: 0.5, 2: 1.0}), "b": Costs("CPU", {1: 2.0, 2: 4.0})}
    colours = colours_of(curves)
    drawn = training_curves(curves, ("nll", "valid_loss"), ("valid_bleu", "BLEU"), colours, known)
    assert [panel.title for panel in drawn.panels[2:]] == [
        f"Validation {what} by {device}-hours" for device in ("CPU", "GPU") for what in ("loss (nats a token)", "BLEU")
    ]
    assert colours["a"] in drawn.panels[4].svg
    assert colours["b"] not in drawn.panels[4].svg
    assert len(training_curves(curves, ("nll", "valid_loss"), ("valid_bleu", "BLEU"), colours, {}).panels) == 2


@given(st.integers(0, 50), st.integers(1, 20))
def test_thinning_preserves_the_mean_and_the_order(count: int, points: int) -> None:
    series = [(step, 7.0) for step in range(count)]
    thin = thinned(series, points)
    assert len(thin) == min(count, points)
    assert all(value == 7.0 for _, value in thin)
    assert [step for step, _ in thin] == sorted({step for step, _ in thin})


def test_markup_escapes_text_and_attributes_but_not_markup() -> None:
    assert element("p", "a < b", None, element("b", "&"), class_='x"y') == '<p class="x&quot;y">a &lt; b<b>&amp;</b></p>'
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert join(["<", element("br")], " ") == "&lt; <br>"
