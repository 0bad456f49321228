"""Imports run one way and in no circle, few files import heavy libraries, and the house stays within its measures."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from stages.stage import Stage
from stages.table import STAGES
from tests.architecture import (
    PACKAGES,
    ROOT,
    Module,
    circles,
    deferred_imports,
    families,
    family_dispatches,
    files_per_folder,
    import_graph,
    modules,
    nested_conditionals,
    report,
    stage_lists,
    upward_imports,
)

KNOWN = modules()

NATIVE = {
    "base": [""],
    "inference": ["ngram", "gemm", "candidates", "network", "dag", "lattice", "stepwise", "aggressive", "parallel"],
    "ops": ["align", "candidates", "ngram", "dag", "training"],
}
"""The layers of `kernels/csrc` and their folders. A file includes its own folder, earlier ones of its layer, and earlier layers."""

COMPILED_ONCE = ("inference/candidates", "inference/ngram", "ops/align", "ops/candidates", "ops/ngram")
"""The folders of `kernels/csrc` that kernels/CMakeLists.txt compiles for the lowest level alone, as it does the bindings."""

DOORS = {
    "ray": {
        "pipeline/run/ray_cluster/machines.py",
        "stages/workers/ray_training.py",
        "stages/workers/ray_errors.py",
        "stages/workers/ray_workers.py",
        "stages/external/ray_llm.py",
        "pipeline/commands/doctor.py",
        "pipeline/commands/submit.py",
        "fewstep/serve/on_ray.py",
    },
    "mlflow": {
        f"pipeline/tracking/{name}.py" for name in ("mlflow_server", "artifacts", "bounded_answers", "models", "served_system")
    },
    "pydantic": {f"pipeline/config/{name}.py" for name in ("schema", "systems", "texts", "load")} | {"fewstep/serve/schemas.py"},
    "fastapi": {f"fewstep/serve/{name}.py" for name in ("app", "requests", "clients")},
    "uvicorn": {"fewstep/serve/server.py", "fewstep/serve/connections.py"},
    "prometheus_client": {"fewstep/serve/metrics.py"},
}
"""The only files that may import each library."""


def sources(folder: str) -> list[Module]:
    return [module for module in KNOWN.values() if module.path.is_relative_to(ROOT / folder)]


def test_imports_run_one_way() -> None:
    wrong = upward_imports(KNOWN)
    assert not wrong, f"{wrong}: expected imports of {' <- '.join(PACKAGES)}; move the imported code down or the importing code up"


def native_files(folder: str) -> list[Path]:
    return [path for path in sorted((ROOT / "kernels" / folder).rglob("*")) if path.suffix in (".cc", ".h")]


def included_folders(path: Path) -> set[str]:
    return set(re.findall(r'#include "((?:csrc|bindings)(?:/\w+)*)/\w+\.h"', path.read_text(encoding="utf-8")))


def test_native_folders_include_one_way() -> None:
    order = ["/".join(filter(None, ("csrc", layer, folder))) for layer, folders in NATIVE.items() for folder in folders]
    for path in native_files("csrc"):
        folder = str(path.parent.relative_to(ROOT / "kernels"))
        assert folder in order, f"{path}: expected a folder of {order}; move the file, or add its folder to NATIVE at its place"
        wrong = included_folders(path) - set(order[: order.index(folder) + 1])
        assert not wrong, f"{path} includes {sorted(wrong)}: expected earlier folders of {order}; move the shared code down"


def all_included(path: Path) -> set[str]:
    """Return the files of the kernels that a file includes, directly or not."""
    found: set[str] = set()
    waiting = [path]
    while waiting:
        names = set(re.findall(r'#include "([^"]+)"', waiting.pop().read_text(encoding="utf-8"))) - found
        found |= names
        waiting += [ROOT / "kernels" / name for name in names]
    return found


def test_native_files_that_are_compiled_once_do_not_depend_on_the_level() -> None:
    once = [*native_files("bindings"), *(path for folder in COMPILED_ONCE for path in native_files(f"csrc/{folder}"))]
    for path in once:
        wrong = all_included(path) & {"csrc/base/simd_f32.h", "csrc/base/bfloat16.h"}
        assert not wrong, f"{path} includes {sorted(wrong)}: expected no vectors as wide as the level; hide them"


def test_native_inference_is_bound_without_ops() -> None:
    for path in native_files("bindings/inference"):
        wrong = [folder for folder in included_folders(path) if "ops" in folder.split("/")]
        assert not wrong, f"{path} includes {wrong}: expected csrc/base and csrc/inference; bind the function in bindings/ops"


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


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_stages_do_not_import_each_other(stage: Stage[Any, Any, Any]) -> None:
    others = tuple(f"stages.{other.name}." for other in STAGES if other is not stage)
    wrong = [
        f"{module.name}:{entry.line} imports {entry.name}"
        for module in sources(f"stages/{stage.name}")
        for entry in module.imports
        if f"{entry.name}.".startswith(others)
    ]
    assert not wrong, f"{wrong}: move what two stages use to stages/shared"


def test_what_stages_share_imports_no_stage() -> None:
    own = tuple(f"stages.{stage.name}." for stage in STAGES)
    wrong = [
        f"{module.name}:{entry.line} imports {entry.name}"
        for module in sources("stages")
        if not f"{module.name}.".startswith((*own, "stages.table."))
        for entry in module.imports
        if f"{entry.name}.".startswith(own)
    ]
    assert not wrong, f"{wrong}: expected stages to import what they share, not the other way; move the imported code"


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


def test_stages_are_listed_in_one_table() -> None:
    wrong = stage_lists(KNOWN, [stage.name for stage in STAGES])
    assert not wrong, f"{wrong}: expected no list of stages' names; derive it from stages.table.STAGES"


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ('KEYS = ("align", "ngram", "lattice")', True),
        ('Name = Literal["train", "distill", "tune"]', True),
        ('PARTS = [("decode", 1), ("score", 2), ("tune", 3)]', False),
    ],
)
def test_a_list_of_stages_is_found(tmp_path: Path, text: str, listed: bool) -> None:
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    found = stage_lists({"a": Module("a", tmp_path / "a.py")}, [stage.name for stage in STAGES])
    assert found == (["a"] if listed else [])


def test_declarations_and_implementations_of_stages_agree() -> None:
    """A stage names its implementation without importing it, so mypy cannot compare the two."""
    for stage in STAGES:
        package = import_module(stage.module.removesuffix(".run"))
        declared = get_type_hints(package)["STAGE"].__args__
        hints = get_type_hints(import_module(stage.module).run)
        assert (hints["inputs"], hints["config"], stage.output) == declared, stage.name


MAX_DEFERRED_IMPORTS = 60


def test_no_modules_import_each_other_in_a_circle() -> None:
    found = circles(import_graph(KNOWN))
    assert not found, (
        f"expected no import circles (type-only and deferred imports count), found {len(found)}: {found}; "
        "move what both sides need into a module of its own"
    )


def test_few_imports_are_deferred() -> None:
    found = deferred_imports(KNOWN)
    assert len(found) < MAX_DEFERRED_IMPORTS, (
        f"expected fewer than {MAX_DEFERRED_IMPORTS} imports of own modules inside functions, found {len(found)}: {found}; "
        "defer an import only where it would load a heavy library during planning"
    )


def test_no_conditional_expression_contains_another() -> None:
    found = nested_conditionals(KNOWN)
    assert not found, f"expected conditional expressions without others in them, found {found}; spell them out as statements"


# ---- the measurements, on small trees


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        "kernels/__init__.py": "",
        "kernels/a.py": "from kernels.b import f\n",
        "kernels/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kernels.c import C\n",
        "kernels/c.py": "class C:\n    def f(self):\n        import kernels.a\n        from models.x import m\n",
        "models/x/__init__.py": "",
        "models/x/family.py": "import kernels.a\n",
        "models/y/family.py": "",
        "stages/table.py": "SYSTEMS = {'x': 1, 'y': 2}\n",
        "stages/rule.py": "def f(system):\n    return system.family == 'x'\n",
        "stages/default.py": "def f(text, family='y'):\n    return text\n",
        "stages/both.py": "from models.x import family\nimport models.y.family\n",
        "stages/one.py": "from models.x import family\nNAME = 'x'\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_circles_include_deferred_and_type_only_imports(tree: Path) -> None:
    assert circles(import_graph(modules(tree))) == [["kernels.a", "kernels.b", "kernels.c"]]


def test_circles_do_not_include_what_merely_reaches_one() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [["b", "c"]]


def test_imports_of_higher_packages_are_named_with_their_line(tree: Path) -> None:
    assert upward_imports(modules(tree)) == ["kernels.c:4 imports models.x.m"]


def test_deferred_imports_are_those_inside_functions(tree: Path) -> None:
    assert deferred_imports(modules(tree)) == ["kernels.c:3 imports kernels.a", "kernels.c:4 imports models.x"]


def test_files_are_counted_for_the_folder_they_lie_in(tree: Path) -> None:
    assert files_per_folder(modules(tree)) == {"kernels": 4, "models/x": 2, "models/y": 1, "stages": 5}


def test_a_family_is_decided_by_in_comparisons_tables_defaults_and_joint_imports(tree: Path) -> None:
    assert family_dispatches(modules(tree), ("x", "y")) == ["stages.both", "stages.default", "stages.rule", "stages.table"]


def test_nested_conditional_expressions_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("x = 1 if a else 2\ny = 1 if b else f'{2 if c else 3}'\nz = [1 if d else 2 for d in (3 if e else 4)]\n")
    assert nested_conditionals({"a": Module("a", path)}) == ["a:2"]


def test_lines_of_a_function_run_from_its_name_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("@decorator\ndef f():\n    x = 1\n    return x\n")
    assert Module("a", path).function_lines == [("a.f:2", 3)]


def test_the_report_names_circles(tree: Path) -> None:
    assert "    kernels.a <-> kernels.b <-> kernels.c" in list(report(modules(tree, ("kernels",))))
