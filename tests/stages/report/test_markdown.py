"""The Markdown report of hand-written rows."""

from stages.report.findings.results import Findings, Row
from stages.report.page.markdown import markdown


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
