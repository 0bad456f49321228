"""Systems: their loading, their translations, and explanations of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

import fewstep
from fewstep.explanation import of_graph, of_lattice
from fewstep.families.dag.config import DagSearch
from fewstep.system.description import SYSTEM_FORMAT, read_description
from fewstep.system.format import WEIGHTS, write_json
from fewstep.system.integrity import seal
from models.bundle.directory import load_system
from tests.architecture import ROOT
from tests.fewstep.systems import BEAM, LINES, SYSTEMS
from tests.kernels.dag_graphs import banded

# ---- a loaded system: searches by label, n-best lists, streams, threads, and the libraries that it loads


HEAVY = ("torch", "ray", "mlflow", "pyarrow", "pydantic", "durable", "kernels", "models", "stages", "pipeline")


@pytest.fixture(scope="module")
def autoregressive(systems: dict[str, Path]) -> fewstep.System:
    return fewstep.load(systems["autoregressive"])


def test_loading_and_translating_import_nothing_heavy(systems: dict[str, Path]) -> None:
    names = ["autoregressive", "dag", "lattice", "head", "ctc"]
    code = (
        "import sys, fewstep\n"
        f"for directory in {[str(systems[name]) for name in names]!r}:\n"
        "    system = fewstep.load(directory)\n"
        "    found = [bool(system.translate(['ein hund'], label)) for label in system.searches]\n"
        f"    print(found, sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout.splitlines() == [f"{[True] * len(SYSTEMS[name][2])} []" for name in names]


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


# ---- directories that are not a system of this version are refused with the file at fault


PARTS = [
    ("autoregressive", "model.safetensors"),
    ("autoregressive", "codes.safetensors"),
    ("autoregressive", "source.spm"),
    ("autoregressive", "target.spm"),
    ("autoregressive", "ngram/model.ngram"),
    ("autoregressive", "tables/tables.bin"),
    ("ensemble", "members/2/model.safetensors"),
    ("aggressive", "verifier/model.safetensors"),
    ("aggressive", "verifier/system.json"),
    ("aggressive", "drafter/codes.safetensors"),
]


def copied(systems: dict[str, Path], name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(systems[name], tmp_path / "system"))


def describe(directory: Path, **changes: Any) -> None:
    """Change the description as a program of another version would: with its own digest. None removes a key."""
    content = json.loads((directory / "system.json").read_text()) | changes
    del content["sha256"]
    write_json(directory / "system.json", seal({key: value for key, value in content.items() if value is not None}))


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_is_complete_wherever_it_lies(systems: dict[str, Path], tmp_path: Path, name: str) -> None:
    moved = copied(systems, name, tmp_path)
    described = {*read_description(moved)["parts"], "system.json"}
    assert {str(path.relative_to(moved)) for path in moved.rglob("*") if path.is_file()} == described
    assert fewstep.load(moved).translate(LINES) == fewstep.load(systems[name]).translate(LINES)


def test_foreign_directories(systems: dict[str, Path], tmp_path: Path) -> None:
    trained = systems["autoregressive"].parent / "autoregressive-trained"
    for directory in (tmp_path, tmp_path / "nowhere", trained):
        with pytest.raises(fewstep.BundleError, match=rf"{directory}: expected a directory with a system \(it has system.json\)"):
            fewstep.load(directory)
    for content, found in (("", "expected JSON"), ("[]", "got list"), ('{"format": 4', "expected JSON"), ("\xff", "expected JSON")):
        (tmp_path / "system.json").write_bytes(content.encode("latin-1"))
        with pytest.raises(fewstep.BundleError, match=f"system.json: .*{found}.*damaged"):
            fewstep.load(tmp_path)
    (tmp_path / "system.json").write_text('{"name": "a program of another kind"}')
    with pytest.raises(fewstep.BundleError, match=f"expected a system of format {SYSTEM_FORMAT}, got None"):
        fewstep.load(tmp_path)


@pytest.mark.parametrize(("version", "remedy"), [(SYSTEM_FORMAT - 1, "create it again"), (SYSTEM_FORMAT + 1, "or a later one")])
def test_older_and_newer_directories(systems: dict[str, Path], tmp_path: Path, version: int, remedy: str) -> None:
    directory = copied(systems, "lattice", tmp_path)
    describe(directory, format=version)
    with pytest.raises(fewstep.BundleError, match=f"of format {SYSTEM_FORMAT}, got {version}; .*{remedy}"):
        fewstep.load(directory)


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_parts_that_are_missing_truncated_or_altered(systems: dict[str, Path], tmp_path: Path, name: str, part: str) -> None:
    directory = copied(systems, name, tmp_path)
    path = directory / part
    whole = path.read_bytes()
    altered = bytearray(whole)
    altered[len(whole) // 2] ^= 1
    for content, found in ((whole[: len(whole) // 2], f"expected {len(whole)} bytes"), (altered, "expected crc32"), (b"", "bytes")):
        path.write_bytes(content)
        with pytest.raises(fewstep.BundleError, match=f"{part}: .*{found}.*damaged"):
            fewstep.load(directory)
    path.unlink()
    with pytest.raises(fewstep.BundleError, match=f"{part}: the file is missing"):
        fewstep.load(directory)


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_truncated_parts_are_found_without_checksums(systems: dict[str, Path], tmp_path: Path, name: str, part: str) -> None:
    directory = copied(systems, name, tmp_path)
    path = directory / part
    whole = path.read_bytes()
    refused = {}
    for size in (0, 7, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        try:
            fewstep.load(directory, verify=False).translate(LINES)
        except fewstep.BundleError as error:
            refused[size] = str(error)
    assert all(part.split("/")[0] in message for message in refused.values())
    assert len(refused) == 4 - (part == "verifier/system.json"), "JSON may lack its last byte, a newline"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"family": "martian"}, "family: expected one of stepwise, dag, lattice, aggressive, parallel, got 'martian'"),
        ({"family": "dag"}, "system.json: .*expected (a known key|an integer)"),
        ({"network": {"wdith": 3}}, "wdith"),
        ({"network": []}, "network"),
        ({"searches": {"best": {"beam": 3}}, "search": "best"}, "beam"),
        ({"searches": []}, "system.json"),
        ({"search": "fast"}, "fast"),
        ({"sizes": {"source": 38, "target": 37, "joint": True}}, r"source.spm: expected 38 pieces .* got 37"),
        ({"sizes": 3}, "sizes"),
        ({"languages": {}}, "source"),
        ({"languages": None}, "expected the keys languages, got none of them"),
        ({"parts": None}, "expected the keys parts, got none of them"),
        ({"parts": {"model.safetensors": {}}}, "system.json: .*parts"),
        ({"parts": []}, "system.json: .*parts"),
        ({"parts": {}}, "system.json: parts: expected model.safetensors among them, got none"),
        ({"max_source_tokens": "many"}, "system.json: .*'many'"),
    ],
)
def test_descriptions_that_cannot_be_used(systems: dict[str, Path], tmp_path: Path, changes: dict[str, Any], found: str) -> None:
    directory = copied(systems, "autoregressive", tmp_path)
    describe(directory, **changes)
    with pytest.raises(fewstep.BundleError, match=found):
        fewstep.load(directory)


def test_parts_of_another_system(systems: dict[str, Path], tmp_path: Path) -> None:
    """Weights of another network of the same shape are refused, even when their checksums are right."""
    directory = copied(systems, "autoregressive", tmp_path)
    shutil.copy(systems["interleaved"] / "model.safetensors", directory)
    with pytest.raises(fewstep.BundleError, match=r"model.safetensors: expected .*; the file is damaged"):
        fewstep.load(directory)
    with pytest.raises(fewstep.BundleError, match="order: trained as 'interleaved', described as 'autoregressive'"):
        fewstep.load(directory, verify=False)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(("name", "part"), [("autoregressive", WEIGHTS), ("ensemble", f"members/2/{WEIGHTS}"), ("dag", WEIGHTS)])
def test_weights_that_are_not_finite_are_refused(
    systems: dict[str, Path], tmp_path: Path, name: str, part: str, value: float
) -> None:
    directory = copied(systems, name, tmp_path)
    with safe_open(directory / part, "np") as file:
        metadata, arrays = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 it is no mapping
    arrays["target_embedding.weight"][3, 1] = value
    save_file(arrays, directory / part, metadata)
    for load in (fewstep.load, load_system):
        with pytest.raises(fewstep.BundleError, match=rf"{part}: expected finite weights, got inf or NaN in target_embedding"):
            load(directory, verify=False)


# ---- explanations against the enumeration of all paths


SEEDS = st.integers(0, 2**32 - 1)


def graph(seed, size=5, width=2, tokens=4):
    draw = np.random.default_rng(seed)
    weights = np.triu(draw.gamma(0.5, size=(size, size)) + 1e-6, 1)
    weights[-1, -1] = 1.0
    transitions = np.full((size, size), -np.inf, np.float32)
    for row in range(size - 1):
        transitions[row, row + 1 :] = np.log(weights[row, row + 1 :] / weights[row].sum())
    emits = np.sort(draw.dirichlet(np.ones(tokens), size), 1)[:, ::-1][:, :width]
    ids = np.stack([draw.permutation(tokens)[:width] for _ in range(size)])
    return transitions, np.log(emits).astype(np.float32), ids


def all_paths(transitions):
    """All vertex sequences from the first to the last vertex, with their log-probabilities."""
    last = len(transitions) - 1
    for chosen in product((False, True), repeat=last - 1):
        path = [0, *(vertex for vertex, taken in enumerate(chosen, 1) if taken), last]
        yield path, sum(transitions[i, j] for i, j in pairwise(path))


@given(SEEDS)
def test_a_graph_has_the_probabilities_of_all_its_paths(seed):
    transitions, log_probs, ids = graph(seed)
    found = of_graph(banded(torch.from_numpy(transitions)).numpy(), log_probs, ids, [], str)
    passing = np.zeros(len(transitions))
    for path, score in all_paths(transitions):
        passing[path] += np.exp(score)
    assert [vertex.probability for vertex in found.vertices] == pytest.approx([p for p in passing if p >= 0.02], abs=1e-5)
    for edge in found.edges:
        assert found.vertices[edge.source].layer < found.vertices[edge.target].layer
    for vertex in found.vertices:
        assert [p for _, p in vertex.tokens] == sorted((p for _, p in vertex.tokens), reverse=True)


@given(SEEDS, st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_an_output_lies_on_the_most_probable_path_that_emits_it(seed, output):
    transitions, log_probs, ids = graph(seed)

    def emission(vertex, token):
        return next((log_probs[vertex, rank] for rank in range(2) if ids[vertex, rank] == token), -np.inf)

    scored = [
        (score + sum(emission(vertex, token) for vertex, token in zip(path[1:-1], output, strict=True)), path)
        for path, score in all_paths(transitions)
        if len(path) == len(output) + 2
    ]
    best, path = max(scored)
    found = of_graph(banded(torch.from_numpy(transitions)).numpy(), log_probs, ids, output, str)
    on_path = [index for index, vertex in enumerate(found.vertices) if vertex.on_path]
    edges = [(edge.source, edge.target) for edge in found.edges if edge.on_path]
    if not np.isfinite(best):
        assert not on_path
        assert not edges
        return
    assert len(on_path) == len(path)
    assert edges == list(pairwise(on_path))
    emitted = sum(emission(vertex, token) for vertex, token in zip(path[1:-1], output, strict=True))
    taken = sum(np.log(edge.probability) for edge in found.edges if edge.on_path)
    assert taken + emitted == pytest.approx(best, abs=1e-4)


@given(SEEDS, st.integers(1, 4), st.integers(1, 3))
def test_a_lattice_has_the_shares_of_all_its_paths(seed, slots, min_length):
    min_length = min(min_length, slots)
    draw = np.random.default_rng(seed)
    count = 3
    start, exits = draw.normal(size=count), draw.normal(size=(slots, count))
    edges = draw.normal(size=(slots - 1, count, count))
    ids = np.stack([draw.permutation(9)[:count] for _ in range(slots)])
    start[draw.random(count) < 0.2] = -np.inf
    weights = {}
    for length in range(min_length, slots + 1):
        for path in product(range(count), repeat=length):
            score = start[path[0]] + sum(edges[p, i, j] for p, (i, j) in enumerate(pairwise(path)))
            weights[path] = np.exp(score + exits[length - 1, path[-1]])
    total = sum(weights.values())
    if not total:
        return
    best = max(weights, key=weights.get)
    output = [int(ids[slot, k]) for slot, k in enumerate(best)]
    found = of_lattice(start, edges, exits, ids, min_length, output, str)
    share = {
        (slot, str(ids[slot, k])): sum(w for path, w in weights.items() if len(path) > slot and path[slot] == k) / total
        for slot in range(slots)
        for k in range(count)
    }
    seen = {(vertex.layer, vertex.tokens[0][0]): vertex for vertex in found.vertices}
    for cell, probability in share.items():
        assert (cell in seen) == (probability >= 0.02 or cell in [(slot, str(token)) for slot, token in enumerate(output)])
        if cell in seen:
            assert seen[cell].probability == pytest.approx(probability, abs=1e-6)
    assert [vertex.tokens[0][0] for vertex in found.vertices if vertex.on_path] == [str(token) for token in output]
    assert sum(edge.on_path for edge in found.edges) == len(output) - 1
    for edge in found.edges:
        one, other = found.vertices[edge.source], found.vertices[edge.target]
        both = sum(
            w
            for path, w in weights.items()
            if len(path) > other.layer
            and str(ids[one.layer, path[one.layer]]) == one.tokens[0][0]
            and str(ids[other.layer, path[other.layer]]) == other.tokens[0][0]
        )
        assert edge.probability == pytest.approx(both / total / one.probability, abs=1e-6)
