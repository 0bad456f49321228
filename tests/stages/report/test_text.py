"""The Markdown report over rows made by hand."""

from stages.report.results import Findings, Row
from stages.report.text import markdown


def row(system: str, test: str = "news", **scores: tuple[float, str]) -> Row:
    return Row(system, "greedy", test, {name: {"score": score, "signature": how} for name, (score, how) in scores.items()})


def written(*rows: Row) -> str:
    tests = dict.fromkeys((each.test for each in rows), 9)
    return markdown("demo", Findings(list(rows), {}, {"rows": 7}, tests, {}), ["too little"])


def test_other_scores_have_a_table_and_a_dash_where_there_is_none() -> None:
    text = written(
        row("a", bleu=(30.126, "B"), ter=(50.5, "T"), compound_split_bleu=(31.0, "C")),
        row("b", bleu=(31.0, "B"), ter=(49.0, "T")),
    )
    assert (
        "\n\nOther scores (less TER is better):\n\n"
        "| system | search |   TER | split BLEU |\n"
        "| ------ | ------ | ----: | ---------: |\n"
        "| a      | greedy | 50.50 |      31.00 |\n"
        "| b      | greedy | 49.00 |          - |\n\n"
    ) in text


def test_only_where_less_is_better_is_that_said() -> None:
    assert "\n\nOther scores:\n\n| system | search | tok. BLEU |" in written(row("a", tokenized_bleu=(30.0, "B")))


def test_the_report_suits_any_terminal() -> None:
    assert written(row("a", bleu=(30.0, "B"), ter=(50.0, "T"))).isascii()


def test_there_is_no_table_of_other_scores_without_any() -> None:
    text = written(row("a", bleu=(30.0, "B"), chrf=(50.0, "C")))
    assert "Other scores" not in text
    assert "- BLEU: `B`\n- chrF++: `C`\n" in text


def test_a_signature_is_listed_once_and_again_only_where_it_differs() -> None:
    text = written(
        row("a", ter=(50.0, "T"), bleu=(30.0, "nrefs:1")),
        row("b", bleu=(30.0, "nrefs:1")),
        row("a", "wiki", bleu=(30.0, "nrefs:2")),
    )
    assert text.endswith("\n\nSignatures:\n\n- BLEU: `nrefs:1`\n- BLEU: `nrefs:2`\n- TER: `T`\n\n**Check failed:** too little\n")
