"""The loader accepts only an extension of the same ABI and says how to build one; the stub matches its contents."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(monkeypatch: pytest.MonkeyPatch, extension: ModuleType | None) -> ModuleType:
    monkeypatch.setitem(sys.modules, "fewstep_native", extension)
    monkeypatch.delitem(sys.modules, "fewstep.native", raising=False)
    from importlib import import_module

    return import_module("fewstep.native")


def test_a_missing_extension_names_the_command_that_builds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImportError, match=r"expected the compiled extension fewstep_native, got: .*; build it with `make`"):
        load(monkeypatch, None)


@pytest.mark.parametrize("abi", [None, 0, -1])
def test_an_extension_of_other_code_is_refused(monkeypatch: pytest.MonkeyPatch, abi: int | None) -> None:
    other = ModuleType("fewstep_native")
    other.__file__ = "/somewhere/fewstep_native.so"
    if abi is not None:
        other.ABI = abi  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match=rf"of ABI \d+, got ABI {abi} in /somewhere/fewstep_native.so; build it with `make`"):
        load(monkeypatch, other)


def test_the_extension_is_the_one_that_the_stub_describes() -> None:
    from fewstep.native import fewstep_native

    tree = ast.parse((ROOT / "kernels/bindings/fewstep_native/__init__.pyi").read_text())
    described = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    described |= {"ABI", "LEVEL", "LEVELS", "MISSING"}
    assert {name for name in dir(fewstep_native) if not name.startswith("_")} == described


def test_importing_kernels_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'pyarrow', 'ray', 'fewstep_native'} & set(sys.modules)"
    ran = subprocess.run([sys.executable, "-c", f"import sys, kernels; print({heavy} or '')"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "\n", "")


def test_build_requirements_are_the_pinned_ones() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert set(required) <= set((ROOT / "constraints.txt").read_text().split())
