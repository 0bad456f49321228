"""Each promise of SECURITY.md names a test that exists, and the limits are those of the source."""

import ast
import re

import pytest

from fewstep import streams
from fewstep.serve import body, connections
from fewstep.serve.settings import Settings
from fewstep.system.description import MAX_ENTRIES
from fewstep.system.system import MAX_EXPLAINED_TOKENS
from models.imports import pickles
from pipeline.config import schema
from pipeline.config.files import limits as of_configs
from pipeline.store import url_copy
from stages.corpus import limits as of_text
from tests.docs.pages import ROOT, text

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
        f"{of_configs.MAX_TEXT:,}; {schema.MAX_NAME}",
        f"{streams.MAX_LINE_BYTES // mib} MiB",
        f"{of_text.MAX_RATIO}",
        f"{of_text.MAX_ROW_GROUP_BYTES // gib} GiB; {of_text.MAX_BATCH_BYTES // gib} GiB",
        f"{SERVER.max_request_bytes // mib} MiB; {SERVER.max_sentences}; {SERVER.max_characters:,}; {MAX_EXPLAINED_TOKENS}",
        f"{connections.HEAD_SECONDS:g} s; {SERVER.body_seconds:g} s, {body.MIN_BYTES_PER_SECOND:,} bytes/s; "
        f"{connections.MAX_PARTS:,} and one for each {connections.PART_BYTES} bytes",
        f"{url_copy.MAX_UNSTATED_BYTES // gib} GiB; the free space",
        "; ".join(f"{count:,}" for count in MAX_ENTRIES.values()),
        f"{pickles.MAX_BYTES // mib} MiB, {pickles.MAX_OPERATIONS:,}; {pickles.MAX_VALUES:,}; {pickles.MAX_DEPTH}",
        "[beside each option](docs/reference/config.md)",
        "`cluster.silence_seconds`",
    ]
