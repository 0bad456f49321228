"""The runtime needs numpy, sentencepiece, sentencex, safetensors and the extension, and loads each of them late. Its server and
byte-level BPE need more."""

import subprocess
import sys

from tests.architecture import ROOT, modules

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
