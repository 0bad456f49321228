"""CTranslate2 as an entry in a process of its own, compared with the engine of this process."""

from dataclasses import replace
from pathlib import Path

import pytest

from fewstep.config.options import Shortlist
from fewstep.families.stepwise.config import StepwiseSearch
from models.bundle.directory import load_system
from stages.benchmark.rivals.ctranslate2_entry import ctranslate2_translator, longest_output

LINES = ["a man", "two dogs", "a child ."]


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
@pytest.mark.parametrize("shortlist", [None, Shortlist(tokens=8, links=4)])
def test_a_process_translates_as_the_engine_does(systems: dict[str, Path], strategy: str, shortlist: Shortlist | None) -> None:
    pytest.importorskip("ctranslate2")
    system = load_system(systems["autoregressive"], verify=False)
    search = StepwiseSearch(strategy=strategy, beam_size=2, engine="ctranslate2", shortlist=shortlist, rescore=False)  # type: ignore[arg-type]
    with ctranslate2_translator(systems["autoregressive"], system, search, 1) as translate:
        found = [translate([line]) for line in LINES]
        together = translate(LINES)
    expected = [system.decoder.decode(system.decoder.prepare([ids]), search)[0][0].ids for ids in system.encode(LINES)]
    assert [one.tokens for one in found] == [len(ids) for ids in expected]
    assert [one.source_tokens for one in found] == [len(ids) for ids in system.encode(LINES)]
    assert all(one.seconds is not None and one.seconds >= one.tokenisation_seconds + one.detokenisation_seconds for one in found)
    assert together.source_tokens == sum(one.source_tokens for one in found)


def test_a_process_has_the_limits_of_the_search() -> None:
    search = StepwiseSearch()
    assert longest_output(search, 5, 1000) == 6 + search.output_limits.max_extra_tokens
    assert longest_output(search, 5, 20) == 20
    assert longest_output(replace(search, output_limits=replace(search.output_limits, max_tokens=7)), 5, 20) == 7
