"""The two paths through the code in CONTRIBUTING.md: few files, functions that exist, and no file that a batch enters unnamed."""

import ast
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pyarrow as pa
import pytest

from fewstep.config.network import Sizes
from fewstep.families.stepwise.config import StepwiseConfig
from models.family import family_named
from models.training.batch import Position, prefetch_batches, shares
from models.training.config import TrainingConfig
from models.training.loop import updates
from models.training.optimizer import Optimizer
from models.training.worker import TrainingWorker
from stages.artifacts import Tokens
from stages.train import TrainConfig
from stages.train.token_files import pool_stream
from tests.docs.pages import ROOT, text

SECTION = text(ROOT / "CONTRIBUTING.md").partition("## Two paths through the code\n")[2].partition("\n## ")[0]
ROW = re.compile(r"^\| \[(\S+)\]\((\S+)\) \| (.+?) \|", re.MULTILINE)


class Stop(NamedTuple):
    """A row of a path."""

    label: str
    file: str
    functions: list[str]


def stops(section: str) -> list[Stop]:
    return [Stop(label, file, re.findall(r"`([\w.]+)`", functions)) for label, file, functions in ROW.findall(section)]


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
    *("models/family.py", "models/training/finite.py", "models/stepwise/slots.py", "stages/shared/shards.py"),  # a few lines each
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
