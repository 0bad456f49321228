"""The house keeps its shape: imports run one way, and heavy libraries stay behind their doors."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest

from pipeline.plan.wiring import STAGES

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ["fewstep", "kernels", "models", "stages", "pipeline"]
"""Each may import itself and those before it."""

NATIVE = ["base", "align", "candidates", "ngram", "network", "dag", "lattice", "stepwise", "aggressive"]
"""Folders of `kernels/csrc`, of which the same holds."""

DOORS = {
    "ray": {
        "pipeline/run/machines.py",
        "stages/workers/ray_workers.py",
        "pipeline/commands/doctor.py",
        "pipeline/commands/submit.py",
    },
    "mlflow": {"pipeline/tracking/mlflow_server.py"},
    "pydantic": {"pipeline/config/schema.py", "pipeline/config/yaml.py", "pipeline/config/docs.py"},
}
"""Which files may import a library that the others must not know."""


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def sources(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_imports_run_one_way(room: str) -> None:
    forbidden = set(ROOMS[ROOMS.index(room) + 1 :])
    wrong = {str(path.relative_to(ROOT)): imports(path) & forbidden for path in sources(room) if imports(path) & forbidden}
    assert not wrong


def test_native_folders_include_one_way() -> None:
    folders = {path.parent.name for path in (ROOT / "kernels/csrc").rglob("*.cc")}
    assert folders == set(NATIVE)
    for room in NATIVE:
        text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "kernels/csrc" / room).iterdir())
        included = set(re.findall(r'#include "csrc/(\w+)/', text))
        assert included <= set(NATIVE[: NATIVE.index(room) + 1])


@pytest.mark.parametrize("library", DOORS)
def test_libraries_stay_behind_their_doors(library: str) -> None:
    users = {str(path.relative_to(ROOT)) for room in ROOMS for path in sources(room) if library in imports(path)}
    assert users <= DOORS[library]


def test_families_do_not_import_each_other() -> None:
    families = {path.parent.name for path in (ROOT / "models").glob("*/config.py")} - {"training"}
    for family in families:
        for path in sources(f"models/{family}"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
            assert not {m for m in modules for other in families - {family} if m.startswith(f"models.{other}")}


def test_planning_loads_no_heavy_library() -> None:
    """Declarations, the command line and the plan are light; so a cached rerun takes no more than a glance."""
    declared = [path.stem for path in sources("stages") if "STAGE = " in path.read_text(encoding="utf-8")]
    modules = ["pipeline.commands.cli", "pipeline.plan.wiring", "pipeline.run.execute", "pipeline.plan.explain", "models"]
    modules += [f"stages.{name}" for name in declared]
    heavy = {"torch", "ray", "mlflow", "pyarrow", "numpy", "sentencepiece"}
    code = f"import importlib, sys\nfor m in {modules!r}: importlib.import_module(m)\nprint(sorted(set(sys.modules) & {heavy!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_declarations_and_implementations_of_stages_agree() -> None:
    """A stage names its implementation without importing it, so mypy cannot compare the two."""
    for stage in STAGES:
        package = import_module(stage.module.removesuffix(".run"))
        declared = get_type_hints(package)["STAGE"].__args__
        hints = get_type_hints(import_module(stage.module).run)
        assert (hints["inputs"], hints["config"], stage.output) == declared, stage.name
