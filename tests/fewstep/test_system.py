"""A loaded system: searches by label, n-best lists, streams, threads, and the libraries that it loads."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import fewstep
from fewstep.families.dag.config import DagSearch
from tests.architecture import ROOT
from tests.fewstep.systems import BEAM, LINES, SYSTEMS

HEAVY = ("torch", "ray", "mlflow", "pyarrow", "pydantic", "durable", "kernels", "models", "stages", "pipeline")


@pytest.fixture(scope="module")
def autoregressive(systems: dict[str, Path]) -> fewstep.System:
    return fewstep.load(systems["autoregressive"])


@pytest.mark.parametrize("name", ["autoregressive", "dag", "lattice", "head", "ctc"])
def test_loading_and_translating_import_nothing_heavy(systems: dict[str, Path], name: str) -> None:
    code = (
        "import sys, fewstep\n"
        f"system = fewstep.load({str(systems[name])!r})\n"
        "print(*[bool(system.translate(['ein hund'], label)) for label in system.searches])\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout.splitlines() == [" ".join(["True"] * len(SYSTEMS[name][2])), "[]"]


def test_a_system_describes_itself(autoregressive: fewstep.System) -> None:
    languages = autoregressive.source_language, autoregressive.target_language
    assert (autoregressive.name, autoregressive.family, autoregressive.task) == ("autoregressive", "stepwise", "translation")
    assert languages == ("en", "de")
    assert dict(autoregressive.searches) == SYSTEMS["autoregressive"][2]
    assert autoregressive.search == autoregressive.searches["greedy"]


def test_searches_are_named_spelled_out_or_given(autoregressive: fewstep.System) -> None:
    best = autoregressive.translate(LINES, "beam")
    assert best == autoregressive.translate(LINES, BEAM)
    assert best != autoregressive.translate(LINES)
    derived = replace(BEAM, n_best=1, output_limits=autoregressive.search.output_limits)
    assert autoregressive.translate(LINES, derived) == best
    assert autoregressive.translate(LINES, "beam-beam_size7") == autoregressive.translate(
        LINES, type(BEAM)(strategy="beam", beam_size=7)
    )
    with pytest.raises(ValueError, match="expected one of beam, gnmt, greedy, int8, short, or a derived label, got 'bean'"):
        autoregressive.translate(LINES, "bean")
    with pytest.raises(ValueError, match="search: expected StepwiseSearch, got DagSearch"):
        autoregressive.translate(LINES, DagSearch())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="greedy or beam in native code"):
        autoregressive.translate(LINES, "sample")
    with pytest.raises(TypeError, match="put it into a list"):
        autoregressive.translate("ein hund")


def test_lists_of_the_best_are_ranked_and_begin_with_the_best(autoregressive: fewstep.System) -> None:
    ranked = autoregressive.hypotheses(LINES, 3, "beam")
    assert [one[:2] for one in ranked] == autoregressive.hypotheses(LINES, None, "beam"), "the search's own number"
    assert [one[0].text for one in ranked] == autoregressive.translate(LINES, "beam")
    assert all([one.score for one in best] == sorted((one.score for one in best), reverse=True) for best in ranked)
    assert [len(best) for best in ranked] == [3 if line.split() else 1 for line in LINES]
    assert ranked[1] == [fewstep.Translation("", 0.0, 0, {}, sentences=0)]
    assert all(
        best[0].steps > 0 and best[0].statistics["margin"] >= 0 for best, line in zip(ranked, LINES, strict=True) if line.split()
    )
    with pytest.raises(ValueError, match="n_best: expected at most 3, the size of the beam, got 4"):
        autoregressive.hypotheses(LINES, 4, "beam")


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_streams_take_lines_as_they_are_needed(autoregressive: fewstep.System, batch: int) -> None:
    taken = 0

    def lines() -> Iterator[str]:
        nonlocal taken
        for line in LINES:
            taken += 1
            yield line

    stream = autoregressive.stream(lines(), batch=batch)
    assert taken == 0
    first = next(stream)
    assert taken == min(batch, len(LINES))
    assert [first, *stream] == autoregressive.translate(LINES)
    assert list(autoregressive.stream(iter(LINES), "beam", batch=batch)) == autoregressive.translate(LINES, "beam")
    with pytest.raises(ValueError, match="batch: expected at least 1 line, got 0"):
        autoregressive.stream(LINES, batch=0)


@pytest.mark.parametrize(
    "name", ["autoregressive", "interleaved-sa", "dag", "lattice", "aggressive", "head", "glat", "ctc", "cmlm"]
)
def test_threads_share_a_system(systems: dict[str, Path], name: str) -> None:
    """Threads that start together, each with another search, get what each search gives alone; copies are made under way."""
    expected = {label: fewstep.load(systems[name]).hypotheses(LINES, None, label) for label in SYSTEMS[name][2]}
    shared, jobs = fewstep.load(systems[name]), [*expected] * 3
    ready = threading.Barrier(len(jobs))

    def translate(label: str) -> bool:
        ready.wait()
        return all(shared.hypotheses(LINES, None, label, threads=threads) == expected[label] for threads in (1, 2))

    with ThreadPoolExecutor(len(jobs)) as pool:
        assert all(pool.map(translate, jobs))
