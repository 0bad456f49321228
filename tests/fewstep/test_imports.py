"""Importing the runtime loads nothing heavy, and the extension is the one that the code expects."""

import ast
import subprocess
import sys
import tomllib
from types import ModuleType

import pytest

from tests.architecture import ROOT, modules

# ---- imports


ALLOWED = {"fewstep", "fewstep_native", "numpy", "sentencepiece", "sentencex", "safetensors"}
"""Top-level packages that `fewstep` may import beside the standard library."""


SERVER = "fewstep.serve"
LIBRARIES = {"fastapi", "h11", "prometheus_client", "pydantic", "uvicorn"}
"""Top-level packages that the server may import in addition."""
ON_RAY = "fewstep.serve.on_ray"
BYTE_PIECES = "fewstep.byte_pieces"
"""The one module that may import tokenizers."""


def of_server(name: str) -> bool:
    return f"{name}.".startswith(f"{SERVER}.")


def test_the_runtime_imports_nothing_else() -> None:
    known = modules(ROOT, ("fewstep",))
    assert known
    for name, module in known.items():
        allowed = ALLOWED | (LIBRARIES if of_server(name) else set()) | ({"ray", "grpc"} if name == ON_RAY else set())
        allowed |= {"tokenizers"} if name == BYTE_PIECES else set()
        imported = {entry.name.split(".")[0] for entry in module.imports}
        assert imported - set(sys.stdlib_module_names) <= allowed, name


def test_the_command_alone_imports_the_server() -> None:
    known = modules(ROOT, ("fewstep",))
    importing = {
        name for name, module in known.items() for entry in module.imports if of_server(entry.name) and not of_server(name)
    }
    assert importing == {"fewstep.commands.serve"}
    on_ray = [name for name, module in known.items() for entry in module.imports if f"{entry.name}.".startswith(f"{ON_RAY}.")]
    assert not on_ray, "the server in one process must start without Ray"


def test_the_runtime_loads_without_torch() -> None:
    names = sorted(set(modules(ROOT, ("fewstep",))) - {ON_RAY})
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(sorted({'torch', 'kernels', 'models', 'ray', 'pyarrow'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout.strip() == "[]"


def test_libraries_of_the_server_are_loaded_when_it_starts() -> None:
    code = (
        "import sys, fewstep.__main__, fewstep.commands.serve, pipeline.commands.serve\n"
        f"print(sorted({LIBRARIES - {'pydantic'}!r} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout.strip() == "[]"


def test_importing_the_package_loads_no_library() -> None:
    code = f"import sys, fewstep; print(sorted({ALLOWED - {'fewstep'}!r} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout.strip() == "[]"


# ---- the extension


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
