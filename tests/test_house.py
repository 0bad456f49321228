"""Limits on the shape of the source tree, and the measurements behind them."""

from pathlib import Path

import pytest

from tests.architecture import (
    Module,
    circles,
    deferred_imports,
    family_dispatches,
    files_per_folder,
    import_graph,
    modules,
    upward_imports,
)
from tests.house_sizes import report

KNOWN = modules()
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


def test_lines_of_a_function_run_from_its_name_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("@decorator\ndef f():\n    x = 1\n    return x\n")
    assert Module("a", path).function_lines == [("a.f:2", 3)]


def test_the_report_names_circles(tree: Path) -> None:
    assert "    kernels.a <-> kernels.b <-> kernels.c" in list(report(modules(tree, ("kernels",))))
