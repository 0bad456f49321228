from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from stages.report.figures import Point, pareto, quality_speed, training_curves
from stages.report.findings.curves import Costs, read_costs, read_curves, thinned
from stages.report.page.markup import element, join
from stages.shared.figures.canvas import SERIES, colours_of, inlined

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
