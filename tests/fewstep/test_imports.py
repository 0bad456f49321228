"""The runtime needs numpy, sentencepiece, safetensors and the extension, and loads each of them late."""

import subprocess
import sys

from tests.architecture import ROOT, modules

ALLOWED = {"fewstep", "fewstep_native", "numpy", "sentencepiece", "safetensors"}
"""Top-level packages that `fewstep` may import beside the standard library."""


def test_the_runtime_imports_nothing_else() -> None:
    known = modules(ROOT, ("fewstep",))
    imported = {entry.name.split(".")[0] for module in known.values() for entry in module.imports}
    assert known
    assert imported - set(sys.stdlib_module_names) <= ALLOWED


def test_the_runtime_loads_without_torch() -> None:
    names = sorted(modules(ROOT, ("fewstep",)))
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(sorted({'torch', 'kernels', 'models', 'ray', 'pyarrow'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout.strip() == "[]"


def test_importing_the_package_loads_no_library() -> None:
    code = "import sys, fewstep; print(sorted({'numpy', 'sentencepiece', 'safetensors', 'fewstep_native'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout.strip() == "[]"
