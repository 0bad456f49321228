"""Imports run one way, and few files import heavy libraries."""

import re
import subprocess
import sys
from importlib import import_module
from typing import get_type_hints

import pytest

from pipeline.plan.wiring import STAGES
from tests.architecture import ROOMS, ROOT, Module, families, modules, upward_imports

KNOWN = modules()

NATIVE = ["base", "align", "candidates", "ngram", "network", "dag", "lattice", "stepwise", "aggressive"]
"""Folders of `kernels/csrc`. Each may include itself and those before it."""

DOORS = {
    "ray": {
        "pipeline/run/machines.py",
        "stages/workers/ray_workers.py",
        "pipeline/commands/doctor.py",
        "pipeline/commands/submit.py",
    },
    "mlflow": {"pipeline/tracking/mlflow_server.py", "pipeline/tracking/artifacts.py"},
    "pydantic": {f"pipeline/config/{name}.py" for name in ("schema", "systems", "load")},
}
"""The only files that may import each library."""


def sources(folder: str) -> list[Module]:
    return [module for module in KNOWN.values() if module.path.is_relative_to(ROOT / folder)]


def test_imports_run_one_way() -> None:
    wrong = upward_imports(KNOWN)
    assert not wrong, f"{wrong}: expected imports of {' <- '.join(ROOMS)}; move the imported code down or the importing code up"


def test_native_folders_include_one_way() -> None:
    folders = {path.parent.name for path in (ROOT / "kernels/csrc").rglob("*.cc")}
    assert folders == set(NATIVE)
    for room in NATIVE:
        text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "kernels/csrc" / room).iterdir())
        included = set(re.findall(r'#include "csrc/(\w+)/', text))
        assert included <= set(NATIVE[: NATIVE.index(room) + 1])


@pytest.mark.parametrize("library", DOORS)
def test_libraries_stay_behind_their_doors(library: str) -> None:
    users = {
        str(module.path.relative_to(ROOT))
        for module in KNOWN.values()
        if any(entry.name.split(".")[0] == library for entry in module.imports)
    }
    assert users <= DOORS[library], f"{sorted(users - DOORS[library])}: expected {library} in {sorted(DOORS[library])} alone"


@pytest.mark.parametrize("family", families())
def test_families_do_not_import_each_other(family: str) -> None:
    others = tuple(f"models.{other}." for other in families() if other != family)
    wrong = [
        f"{module.name}:{entry.line} imports {entry.name}"
        for module in sources(f"models/{family}")
        for entry in module.imports
        if f"{entry.name}.".startswith(others)
    ]
    assert not wrong, f"{wrong}: move what two families share to models/common"


def test_planning_loads_no_heavy_library() -> None:
    """Declarations, the command line and the plan are light; so a cached rerun takes no more than a glance."""
    declared = [module.name for module in sources("stages") if "STAGE = " in module.text]
    light = [
        "pipeline.commands.app",
        "pipeline.commands.plan",
        "pipeline.plan.wiring",
        "pipeline.run.execute",
        "pipeline.plan.explain",
        "models",
        *declared,
    ]
    heavy = {"torch", "ray", "mlflow", "pyarrow", "numpy", "sentencepiece"}
    code = f"import importlib, sys\nfor m in {light!r}: importlib.import_module(m)\nprint(sorted(set(sys.modules) & {heavy!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_declarations_and_implementations_of_stages_agree() -> None:
    """A stage names its implementation without importing it, so mypy cannot compare the two."""
    for stage in STAGES:
        package = import_module(stage.module.removesuffix(".run"))
        declared = get_type_hints(package)["STAGE"].__args__
        hints = get_type_hints(import_module(stage.module).run)
        assert (hints["inputs"], hints["config"], stage.output) == declared, stage.name
