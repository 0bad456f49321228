"""Means and standard deviations over seeds."""

from stages.report.findings.results import NAMES, Row
from stages.report.findings.seeds import over_seeds, seed_tables


def row(system: str, search: str, bleu: float, **others: float) -> Row:
    return Row(system, search, "test", {name: {"score": value} for name, value in {"bleu": bleu, **others}.items()})


def test_statistics_are_those_of_the_same_search_of_each_seed() -> None:
    rows = [
        row("a", "greedy", 30.0, chrf=50.0),
        row("a", "beam", 40.0),
        row("b", "greedy", 99.0),
        row("a-seed2", "greedy", 32.0),
        row("a-seed2", "beam", 40.0),
    ]
    greedy, beam = over_seeds(rows, {"a": ("a", "a-seed2")})
    assert greedy["metrics"] == {"bleu": {"values": [30.0, 32.0], "mean": 31.0, "deviation": 1.4142}}  # chrF lacks a seed
    assert (beam["search"], beam["seeds"], beam["metrics"]["bleu"]["deviation"]) == ("beam", 2, 0.0)
    (table,) = seed_tables([greedy, beam], NAMES)
    assert table.columns == ["entry", "seeds", "BLEU"]
    assert table.rows == [["a/greedy", "2", "31.00 ± 1.41"], ["a/beam", "2", "40.00 ± 0.00"]]


def test_without_seeds_there_is_no_table() -> None:
    assert over_seeds([row("a", "greedy", 1.0)], {}) == []
    assert list(seed_tables([], NAMES)) == []
