"""Pages name files, tests, limits, keys and figures that exist: the pages of additions, the two paths, promises, methods."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from fewstep import answers, bounded_files, object_storage, object_storage_process, patience, streams
from fewstep.config.network import Sizes
from fewstep.documents import markdown, translate
from fewstep.documents.document import MAX_UNIT_BYTES
from fewstep.documents.elements import MAX_DEPTH
from fewstep.documents.translate import MAX_TAGS
from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.serve import body, connections
from fewstep.serve.access import KEY_BYTES
from fewstep.serve.forms import MAX_FIELDS
from fewstep.serve.settings import Settings
from fewstep.system.description import MAX_ENTRIES
from fewstep.system.system import MAX_EXPLAINED_TOKENS
from fewstep.text.glossary import MAX_CHARACTERS, MAX_UNITS
from models.family import family_named
from models.imports import pickles
from models.training.batch import Position, prefetch_batches, shares
from models.training.config import TrainingConfig
from models.training.loop import updates
from models.training.optimizer import Optimizer
from models.training.worker import TrainingWorker
from pipeline.config.docs import schema
from pipeline.config.files import limits as of_configs
from pipeline.config.schema import MAX_NAME
from pipeline.store import url_copy
from stages.artifacts import Tokens
from stages.corpus import limits as of_text
from stages.corpus.readers import parquet_check
from stages.shared import expansion, members, programs, tar
from stages.train import TrainConfig
from stages.train.stream import pool_stream
from tests.docs.pages import PAGES, ROOT, name, prose, text

STAGE = """
CHANGELOG.md docs/methods/parallel.md docs/reference/config.md models/parallel/analysis.py models/parallel/system.py
pipeline/config/checks/evaluation.py pipeline/config/schema.py pipeline/plan/evaluation.py stages/lengths/__init__.py
stages/lengths/report.py stages/lengths/run.py stages/table.py tests/golden/config_keys.txt
tests/golden/fingerprinted_defaults.json tests/models/parallel/test_analysis.py tests/pipeline/plan/test_wiring.py
tests/stages/test_lengths.py tests/stages/report/made_report.py tests/stages/report/test_report.py
"""
"""The analysis of the slots of parallel systems."""
KERNEL = """
fewstep/native.py kernels/__init__.pyi kernels/bindings/bindings.h
kernels/bindings/module.cc kernels/bindings/ops/lcs.cc kernels/bindings/ops/lcs.h kernels/csrc/ops/align/lcs.cc
kernels/csrc/ops/align/lcs.h kernels/lcs.py kernels/reference/lcs.py models/common/losses/cross_entropy.py tests/kernels/test_lcs.py
"""
"""The scores of tokens and their gradients."""
SEARCH = """
fewstep/families/dag/config.py fewstep/families/dag/search.py fewstep/native.py fewstep/search/widest.py
kernels/bindings/bindings.h kernels/bindings/inference/widest.cc
kernels/bindings/module.cc kernels/csrc/inference/dag/widest.cc kernels/csrc/inference/dag/widest.h kernels/reference/widest.py
tests/fewstep/search/test_widest.py tests/models/dag/test_decode.py
"""
"""The search of CTC's prefixes in native code."""
FAMILY = """
CHANGELOG.md docs/methods/copying.md docs/methods/index.md docs/reference/config.md fewstep/families/copying/config.py
fewstep/families/copying/decoder.py fewstep/families/copying/search.py fewstep/families/table.py
fewstep/networks/copying_network.py mkdocs.yml models/copying/__init__.py models/copying/decode.py models/copying/family.py
models/copying/loss.py models/copying/model.py models/copying/system.py tests/models/copying/test_decode.py
"""
"""The family `parallel`, without the files of its own that a smaller family has no need of."""
FORMAT = """
CHANGELOG.md docs/guide/data.md docs/reference/config.md pipeline/config/texts.py stages/corpus/__init__.py
stages/corpus/readers/__init__.py stages/corpus/readers/tsv.py tests/stages/corpus/test_reader.py
"""
"""Tab-separated text, as if it were new."""
COMMITS = {
    "add-a-stage": STAGE, "add-a-kernel": KERNEL, "add-a-search": SEARCH, "add-a-model-family": FAMILY,
    "add-a-text-format": FORMAT,
}  # fmt: skip


def files_named(page: str) -> set[str]:
    """Return the files and folders (with a final slash) in the first column of the page's tables.

    A name without a folder lies beside the one before it, unless it is that of a file of the root.
    """
    found: set[str] = set()
    for line in (ROOT / "docs" / "contributing" / f"{page}.md").read_text(encoding="utf-8").splitlines():
        folder = ""
        for found_name in re.findall(r"`([^`]+)`", line.split("|")[1]) if line.startswith("| `") else ():
            path = found_name if "/" in found_name or (ROOT / found_name).is_file() else f"{folder}{found_name}"
            folder = f"{path.rpartition('/')[0]}/"
            found.add(path)
    return found


@pytest.mark.parametrize("page", COMMITS)
def test_a_page_names_every_file_of_its_example_commit(page: str) -> None:
    named = files_named(page)
    folders = tuple(name for name in named if name.endswith("/"))
    missing = [path for path in COMMITS[page].split() if path not in named and not path.startswith(folders)]
    assert not missing, f"docs/contributing/{page}.md: expected {missing} in its tables"


@pytest.mark.parametrize("page", COMMITS)
def test_the_files_that_a_page_changes_exist(page: str) -> None:
    examples = re.compile("lengths|lcs|widest|copying")
    missing = [path for path in files_named(page) if not examples.search(path) and not (ROOT / path).exists()]
    assert not missing, f"docs/contributing/{page}.md names {missing}, which no longer exist"


SECTION = text(ROOT / "CONTRIBUTING.md").partition("## Two paths through the code\n")[2].partition("\n## ")[0]

STOP_ROW = re.compile(r"^\| \[(\S+)\]\((\S+)\) \| (.+?) \|", re.MULTILINE)


class Stop(NamedTuple):
    """A row of a path."""

    label: str
    file: str
    functions: list[str]


def stops(section: str) -> list[Stop]:
    return [Stop(label, file, re.findall(r"`([\w.]+)`", functions)) for label, file, functions in STOP_ROW.findall(section)]


PATHS = {title: stops(rows) for title, _, rows in (part.partition("\n") for part in SECTION.split("### ")[1:])}
STOPS = [pytest.param(stop, id=f"{title}: {stop.file}") for title, path in PATHS.items() for stop in path]


def defined(file: str) -> set[str]:
    """Return the functions of a file, methods as `Class.method`."""
    source = (ROOT / file).read_text(encoding="utf-8")
    if not file.endswith(".py"):
        return set(re.findall(r"^[\w:<>&*, ]*\b(\w+)\(", source, re.MULTILINE))
    body = ast.parse(source).body
    methods = ((node.name, inner) for node in body if isinstance(node, ast.ClassDef) for inner in node.body)
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    return functions | {f"{name}.{inner.name}" for name, inner in methods if isinstance(inner, ast.FunctionDef)}


def test_there_are_two_paths() -> None:
    assert list(PATHS) == ["One source sentence", "One training batch"]
    assert all(len(path) > 5 for path in PATHS.values())


@pytest.mark.parametrize("stop", STOPS)
def test_files_and_functions_of_a_path_exist(stop: Stop) -> None:
    assert stop.label == stop.file
    assert stop.functions
    assert set(stop.functions) <= defined(stop.file)


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_path_has_at_most_seven_files_and_none_twice(path: list[Stop]) -> None:
    files = [stop.file for stop in path]
    assert len(set(files)) == len(files) <= 7


PACKAGES = ("fewstep", "durable", "kernels", "models", "stages", "pipeline")
LEFT_OUT = (
    *("fewstep/", "kernels/", "models/common/layers/"),  # arrays in, arrays out
    *("models/training/seeds.py", "models/training/precision.py", "models/training/worker.py", "models/training/parallel.py"),
    "models/training/memory.py",  # cuts a batch further where memory runs out
    *("models/family.py", "models/training/finite.py", "stages/shared/shards.py"),  # a few lines each
)
"""Files that an update enters and the path leaves out. `kernels/` and `models/common/layers/` are named in the text."""


def files_entered(call: Callable[[], object]) -> list[str]:
    """Return the files of the project whose functions `call` and its threads enter, in the order of the first entry."""
    entered: dict[str, None] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES:
            entered[path.relative_to(ROOT).as_posix()] = None

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return list(entered)


def test_an_update_enters_the_files_of_its_path_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    rows = [list(range(8, 8 + length)) for length in (3, 5, 2, 4)]
    table = pa.table(
        {"id": pa.array(range(4), pa.int64()), **{side: pa.array(rows, pa.list_(pa.uint16())) for side in ("source", "target")}}
    )
    with pa.ipc.new_file(str(tmp_path / "shards" / "00000.arrow"), table.schema) as writer:
        writer.write_table(table)
    network = StepwiseConfig(width=16, feed_forward=32, heads=2, encoder_layers=1, decoder_layers=1)
    recipe = TrainingConfig(updates=1, batch_tokens=64)
    sizes = Sizes(20, 20, True)
    config = TrainConfig(family="stepwise", network=network, training=recipe)
    stream, _ = pool_stream([Tokens(tmp_path, "tokens")], config, sizes)
    family = family_named("stepwise").functions
    model = family.build(network, sizes)
    optimizer = Optimizer(model, recipe)

    def update() -> None:
        mine = prefetch_batches(shares(stream.pools(Position()), recipe.batch_tokens, recipe.seed))
        assert len(list(updates(model, family.loss, mine, optimizer, recipe, TrainingWorker()))) == 1

    entered = [file for file in files_entered(update) if not file.startswith(LEFT_OUT)]
    assert sorted(entered) == sorted(stop.file for stop in PATHS["One training batch"])


SERVER = Settings()
PAGE = text(ROOT / "SECURITY.md")
PROMISES = PAGE.partition("## Promises\n")[2].partition("\n## ")[0]
ROW = re.compile(r"^\| (?P<promise>.+) \| `(?P<file>[\w/.]+)::(?P<name>\w+)` \|$", re.MULTILINE)
LIMITS = PAGE.partition("## Limits\n")[2].partition("\n## ")[0]


def test_every_promise_names_a_test() -> None:
    rows = [line for line in PROMISES.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 20
    assert [line for line in rows if not ROW.match(line)] == []


@pytest.mark.parametrize(("file", "name"), [(row["file"], row["name"]) for row in ROW.finditer(PROMISES)])
def test_the_tests_of_promises_exist(file: str, name: str) -> None:
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    assert name in [node.name for node in body if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("file", sorted({row["file"] for row in ROW.finditer(PROMISES)}))
def test_the_tests_of_promises_run_for_every_change(file: str) -> None:
    """Exhaustive tests run before a release alone."""
    promised = {row["name"] for row in ROW.finditer(PROMISES) if row["file"] == file}
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            assert "exhaustive" not in ast.unparse(node.value)
        if isinstance(node, ast.FunctionDef) and node.name in promised:
            assert [mark for mark in map(ast.unparse, node.decorator_list) if mark == "pytest.mark.exhaustive"] == []


def test_no_promise_stands_twice() -> None:
    rows = [row.groups() for row in ROW.finditer(PROMISES)]
    assert len({promise for promise, _, _ in rows}) == len({(file, name) for _, file, name in rows}) == len(rows)


def test_the_limits_are_those_of_the_source() -> None:
    numbers = [row.rpartition(" | ")[2].rstrip(" |") for row in LIMITS.splitlines() if row.startswith("| ")][1:]
    mib, gib = 2**20, 2**30
    assert numbers == [
        f"{of_configs.MAX_BYTES // mib} MiB; {of_configs.MAX_VALUES:,}; {of_configs.MAX_DEPTH}; {of_configs.MAX_BASES}",
        f"{of_configs.MAX_TEXT:,}; {MAX_NAME}",
        f"{streams.MAX_LINE_BYTES // mib} MiB",
        f"{MAX_UNIT_BYTES // mib} MiB; {MAX_DEPTH}; {streams.MAX_DOCUMENT_BYTES // mib} MiB; {markdown.MAX_BYTES >> 10} KiB; "
        f"{translate.MAX_CHARACTERS:,}",
        f"{expansion.MAX_RATIO}",
        f"{members.MAX_MEMBERS:,}; {tar.MAX_NAME_BYTES:,}; {tar.MAX_HEADER_BYTES // mib} MiB; {tar.MAX_HEADERS:,}; "
        f"{members.MAX_ZIP_READ_BYTES // mib} MiB",
        f"{parquet_check.MEMORY // gib} GiB; {parquet_check.SECONDS} s",
        f"{expansion.XZ_MEMORY // mib} MiB",
        f"{bounded_files.MAX_VOCABULARY_BYTES // mib} MiB; {bounded_files.MAX_RECORD_BYTES // mib} MiB; "
        f"{bounded_files.MAX_JSON_VALUES:,}",
        f"{of_text.MAX_ROW_GROUP_BYTES // gib} GiB; {of_text.MAX_BATCH_BYTES // gib} GiB",
        f"{bounded_files.MAX_VOCABULARY_BYTES // mib} MiB; {MAX_UNITS}, {MAX_CHARACTERS:,}; {MAX_TAGS:,}",
        f"{connections.WRITE_SECONDS:g} s",
        f"{KEY_BYTES >> 10} KiB; {MAX_FIELDS:,}",
        f"{SERVER.max_request_bytes // mib} MiB; {SERVER.max_sentences}; {SERVER.max_characters:,}; {MAX_EXPLAINED_TOKENS}",
        f"{connections.HEAD_SECONDS:g} s; {SERVER.body_seconds:g} s, {body.MIN_BYTES_PER_SECOND:,} bytes/s; "
        f"{connections.MAX_PARTS:,} and one for each {connections.PART_BYTES} bytes; "
        f"{connections.MAX_FRAMING_BYTES >> 10} KiB",
        f"{programs.LEAST_OUTPUT // mib} MiB; {streams.MAX_LINE_BYTES // mib} MiB; {programs.MAX_MESSAGE_BYTES // mib} MiB",
        f"{url_copy.MAX_UNSTATED_BYTES // gib} GiB; the free space",
        f"{patience.WAIT_SECONDS:g} s; a second for each {patience.MIN_RATE:,} bytes; for each {patience.MIN_JSON_RATE:,}",
        f"{answers.MAX_BYTES_BESIDE_CONTENT // mib} MiB",
        f"{patience.WAIT_SECONDS:g} s; {patience.MIN_RATE:,} bytes; {object_storage.MIN_UPLOAD_RATE:,} bytes",
        f"{object_storage_process.MEMORY_BYTES // mib} MiB; {object_storage_process.MAX_NAMES:,}",
        "; ".join(f"{count:,}" for count in MAX_ENTRIES.values()),
        f"{pickles.MAX_BYTES // mib} MiB, {pickles.MAX_OPERATIONS:,}; {pickles.MAX_VALUES:,}; {pickles.MAX_DEPTH}",
        "[beside each option](docs/reference/config.md)",
        "`cluster.silence_seconds`",
    ]


# ---- keys


METHODS = [page for page in PAGES if name(page).startswith("docs/methods/")]


def properties(schema: Any) -> Iterator[str]:
    """Yield the keys of all sections of a schema."""
    values = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
        yield from schema["properties"]
    for value in values:
        yield from properties(value)


@cache
def keys() -> frozenset[str]:
    """Return the keys of all sections."""
    return frozenset(properties(json.loads(schema())))


def named(text: str) -> Iterator[str]:
    """Yield the keys in the first column of tables of keys, and those of options such as `glancing: none`."""
    in_table = False
    for line in text.splitlines():
        first = line.split("|")[1].strip() if line.startswith("|") else ""
        in_table = bool(first) and (in_table or first.split()[0] == "key")
        options = re.findall(r"`([a-z]\w*): [^`]*`", line)
        cells = re.findall(r"`([^`]+)`", first) if in_table else []
        yield from options + [cell.partition(":")[0].rpartition(".")[2] for cell in cells]


@pytest.mark.parametrize("page", METHODS, ids=name)
def test_keys_on_the_pages_of_methods_exist(page: Path) -> None:
    assert set(named(prose(page))) <= keys()


def test_a_key_that_no_config_has_is_found() -> None:
    text = (
        "| key of a search | effect |\n|---|---|\n| `beam_size`, `prefix` | x |\n\n| word | y |\n|---|---|\n| `z` | `sampled: 1` |"
    )
    assert set(named(text)) - keys() == {"prefix", "sampled"}


# ---- figures


FIGURES = ROOT / "docs/methods/figures"


def test_figures_of_methods_are_those_that_the_program_draws(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(FIGURES / "draw.py"), str(tmp_path)], check=True)
    drawn = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.svg")}
    assert drawn == {path.name: path.read_text(encoding="utf-8") for path in FIGURES.glob("*.svg")}
