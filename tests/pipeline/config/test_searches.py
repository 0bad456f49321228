"""Searches in a config: their labels, and the names that keys and values had before."""

from pathlib import Path

import pytest

from fewstep.config.options import OutputLimits, Shortlist
from fewstep.families.stepwise.config import StepwiseSearch
from pipeline.plan.wiring import build_plan
from pipeline.store.artifacts import Store
from tests.pipeline.config.config_text import load, wrong

BEAM = StepwiseSearch(strategy="beam", beam_size=2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("greedy", {"greedy": StepwiseSearch()}),
        ("beam-beam_size2", {"beam-beam_size2": BEAM}),
        ("[greedy, beam-beam_size2]", {"greedy": StepwiseSearch(), "beam-beam_size2": BEAM}),
        ("{fast: {strategy: beam, beam_size: 2}}", {"fast": BEAM}),
        ("{fast: {beam: {beam_size: 2}}}", {"fast": BEAM}),
        ("{fast: greedy, v1.0: beam-beam_size2}", {"fast": StepwiseSearch(), "v1.0": BEAM}),
        ("{beam: {beam_size: 2}}", {"beam-beam_size2": BEAM}),
        ("{precision: int8}", {"greedy-int8": StepwiseSearch(precision="int8")}),
        (
            "[{greedy: {shortlist: {tokens: 50}, output_limits: {min_tokens: 2}}}]",
            {
                "greedy-min_tokens2-shortlist50x16": StepwiseSearch(
                    shortlist=Shortlist(tokens=50), output_limits=OutputLimits(min_tokens=2)
                )
            },
        ),
    ],
)
def test_searches_have_labels_of_the_users_or_derived_ones(tmp_path: Path, text: str, expected: dict[str, StepwiseSearch]) -> None:
    found = load(tmp_path, f"systems: {{a: {{search: {text}}}}}").systems["a"].search
    assert list(found.items()) == list(expected.items())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[beam, {beam: {beam_size: 5}}]", "systems.a.search[1]: expected searches that differ, got 'beam' again"),
        ("{one: beam, two: {beam: {}}}", "systems.a.search.two: expected searches that differ, got 'one' again"),
        ("{greedy: beam}", "systems.a.search.greedy: expected a label that does not stand for another search, got 'greedy'"),
        ("{beam-beam_size9: {beam: {beam_size: 8}}}", "expected a label that does not stand for another search"),
        ("{a/b: greedy}", "systems.a.search.a/b: expected a label of letters, digits, _, . and -, which begins with"),
        (
            "{fast: greedy, best: {beam_size: 3}}",
            "systems.a.search.best.strategy: expected 'greedy', 'beam' or 'sample', got nothing",
        ),
        ("{fast: greedy, best: 3}", "systems.a.search.best: expected a map of keys, got 3"),
        (
            "{beem: {beam_size: 4}}",
            "systems.a.search.beem: expected 'greedy', 'beam' or 'sample', got 'beem'; did you mean 'beam'?",
        ),
        ("beam-beam_size0", "systems.a.search.beam_size: expected at least 1, got 0"),
    ],
)
def test_wrong_labels_are_named(tmp_path: Path, text: str, problem: str) -> None:
    (found,) = wrong(tmp_path, f"systems: {{a: {{search: {text}}}}}")
    assert problem in found


def test_searches_of_a_system_replace_those_of_the_defaults(tmp_path: Path) -> None:
    text = "defaults: {search: {fast: greedy, best: beam}}\nsystems: {a: {}, b: {search: {own: greedy}}}"
    systems = load(tmp_path, text).systems
    assert [list(systems[name].search) for name in "ab"] == [["fast", "best"], ["own"]]


def test_an_override_changes_the_searches_that_it_names_and_else_replaces_all(tmp_path: Path) -> None:
    text = "systems: {a: {search: {fast: greedy, best: {strategy: beam}}}}"
    changed = load(tmp_path, text, "systems.a.search.best.beam_size=2").systems["a"].search
    assert changed == {"fast": StepwiseSearch(), "best": BEAM}
    assert list(load(tmp_path, text, "systems.a.search={beam: {beam_size: 3}}").systems["a"].search) == ["beam-beam_size3"]


def test_a_label_names_steps_and_the_baseline(tmp_path: Path) -> None:
    text = f"store: {{path: {tmp_path}/store}}\nsystems: {{a: {{}}, b: {{search: {{fast: greedy, best: beam}}}}}}\n"
    config = load(tmp_path, f"{text}evaluation: {{baseline: b/best}}")
    steps = {step.name: step for step in build_plan(config, Store(config.store.path)).steps}
    assert {"decode:b/fast:test", "decode:b/best:test", "score:b/best:test"} <= set(steps)
    assert steps["report:run"].config.baseline == steps["benchmark:all:test"].config.baseline == "b/best"
    assert {"b/fast", "b/best"} <= set(steps["benchmark:all:test"].config.searches)
    assert (steps["system:b"].config.default, set(steps["system:b"].config.searches)) == ("fast", {"fast", "best"})
    plain = load(tmp_path, f"{text}evaluation: {{baseline: b}}")
    assert build_plan(plain, Store(plain.store.path)).steps[-1].config.baseline == "b/fast"
    (problem,) = wrong(tmp_path, f"{text}evaluation: {{baseline: b/bes}}")
    assert problem.endswith("evaluation.baseline: expected one of b/fast, b/best, got 'b/bes'; did you mean 'b/best'?")


def test_a_rule_that_rests_on_a_value_that_is_wrong_by_itself_is_silent(tmp_path: Path) -> None:
    text = "ngram: {order: 0}\nsystems: {a: {order: semi-autoregressive, search: {greedy: {ngram_weight: 0.3}}}}"
    (problem,) = wrong(tmp_path, text)
    assert problem.startswith("c.yaml:1: ngram.order")
