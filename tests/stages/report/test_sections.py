"""Sections of the report, its Markdown, and means over seeds."""

from __future__ import annotations

import json
import re

import pytest

from stages.context import StepContext, StepSpan
from stages.report.findings.results import NAMES, Findings, Outputs, Row
from stages.report.findings.seeds import over_seeds, seed_tables
from stages.report.findings.sentences import compact
from stages.report.page.funnel import corpus
from stages.report.page.markdown import markdown
from stages.report.page.markup import section_element
from stages.report.page.timeline import by_stage, duration, lanes, run_timeline
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
        seed_row("a", "greedy", 30.0, chrf=50.0),
        seed_row("a", "beam", 40.0),
        seed_row("b", "greedy", 99.0),
        seed_row("a-seed2", "greedy", 32.0),
        seed_row("a-seed2", "beam", 40.0),
    ]
    greedy, beam = over_seeds(rows, {"a": ("a", "a-seed2")})
    assert greedy["metrics"] == {"bleu": {"values": [30.0, 32.0], "mean": 31.0, "deviation": 1.4142}}  # chrF lacks a seed
    assert (beam["search"], beam["seeds"], beam["metrics"]["bleu"]["deviation"]) == ("beam", 2, 0.0)
    (table,) = seed_tables([greedy, beam], NAMES)
    assert table.columns == ["entry", "seeds", "BLEU"]
    assert table.rows == [["a/greedy", "2", "31.00 ± 1.41"], ["a/beam", "2", "40.00 ± 0.00"]]


def test_without_seeds_there_is_no_table() -> None:
    assert over_seeds([seed_row("a", "greedy", 1.0)], {}) == []
    assert list(seed_tables([], NAMES)) == []
