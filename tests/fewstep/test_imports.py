"""The imports of the runtime, its wheel, and Ray on one machine."""

import os
import stat
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from fewstep_native import _processor

import fewstep
from fewstep.local_ray import stay_on_loopback, use_short_folder
from fewstep.native import fewstep_native
from fewstep.serve.settings import ServeError
from tests.architecture import ROOT, modules
from tests.fewstep.systems import LINES

# ---- importing the runtime loads nothing heavy, and the extension is the one that the code expects


# ---- imports


ALLOWED = {"fewstep", "fewstep_native", "numpy", "sentencepiece", "sentencex", "safetensors"}
"""Top-level packages that `fewstep` may import beside the standard library."""


SERVER = "fewstep.serve"
LIBRARIES = {"fastapi", "h11", "prometheus_client", "pydantic", "starlette", "uvicorn"}
"""Top-level packages that the server may import in addition."""
ON_RAY = "fewstep.serve.on_ray"
EXTRAS = {
    ON_RAY: {"ray", "grpc"},
    "fewstep.pieces": {"tokenizers"},
    "fewstep.documents.markdown": {"markdown_it"},
    "fewstep.object_storage_process": {"pyarrow"},
    "fewstep.text.languages": {"py3langid"},
}
"""Top-level packages that one module alone may import, when it is used."""


def of_server(name: str) -> bool:
    return f"{name}.".startswith(f"{SERVER}.")


def test_the_runtime_imports_nothing_else() -> None:
    known = modules(ROOT, ("fewstep",))
    assert known
    for name, module in known.items():
        allowed = ALLOWED | (LIBRARIES if of_server(name) else set()) | EXTRAS.get(name, set())
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


def test_importing_kernels_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'pyarrow', 'ray', 'fewstep_native'} & set(sys.modules)"
    ran = subprocess.run([sys.executable, "-c", f"import sys, kernels; print({heavy} or '')"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "\n", "")


def test_build_requirements_are_the_pinned_ones() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert set(required) <= set((ROOT / "constraints.txt").read_text().split())


# ---- the wheel: the runtime alone, beside packages of other projects that are called as the pipeline's


MIB = 2**20


def run(*command: str | Path, **settings: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **settings)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return str(done.stdout)


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new environment in which only the wheel and its dependencies are installed."""
    place = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", place)
    pip = [place / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
    run(*pip, wheel)
    return place


@pytest.mark.slow
def test_the_wheel_holds_the_runtime_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"fewstep", "fewstep_native"}
    levels = fewstep_native.LEVELS if fewstep_native.MISSING else _processor.architecture().split(",")
    modules = {Path(name).name.split(".")[0] for name in names if name.startswith("fewstep_native/") and name.endswith(".so")}
    assert modules == {f"_{level.replace('-', '_')}" for level in levels} | {"_processor"}
    typed = {"fewstep_native/__init__.pyi", "fewstep_native/_signatures.pyi", "fewstep_native/py.typed", "fewstep/py.typed"}
    assert {"fewstep_native/__init__.py", *typed} <= set(names)
    assert not [name for name in names if name.endswith((".cc", ".h", "CMakeLists.txt"))]


@pytest.mark.slow
def test_it_translates_beside_packages_of_other_projects(environment: Path, systems: dict[str, Path], tmp_path: Path) -> None:
    (packages,) = environment.glob("lib/python*/site-packages")
    for name in ("durable", "kernels", "models", "stages", "pipeline"):
        (packages / name).mkdir()
        for module in ("__init__.py", "__main__.py"):
            (packages / name / module).write_text("raise SystemExit('a package of another project')")
    source = "".join(f"{line}\n" for line in LINES)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for name, search in (("autoregressive", "beam"), ("dag", "walk"), ("lattice", "best"), ("head", "gad")):
        program = [environment / "bin/fewstep", "translate", systems[name], "--search", search, "--threads", "1"]
        out = run(*program, input=source, cwd=tmp_path, env=clean)
        assert out.splitlines() == fewstep.load(systems[name]).translate(LINES, search)
    assert "doctor" not in run(environment / "bin/fewstep", "--help", cwd=tmp_path, env=clean)


@pytest.mark.slow
def test_the_installation_is_small(environment: Path) -> None:
    (packages,) = environment.glob("lib/python*/site-packages")
    tools = {"pip", "setuptools", "_distutils_hack", "pkg_resources"}
    size = sum(
        path.stat().st_size
        for path in packages.rglob("*")
        if path.is_file() and not path.is_symlink() and path.relative_to(packages).parts[0].partition("-")[0] not in tools
    )
    assert size < 120 * MIB


# ---- the token of local Ray clusters, which processes that start at the same time share


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of the token of a new user."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / ".ray/auth_token"


def test_a_local_cluster_has_a_token_that_only_its_user_reads(token: Path) -> None:
    assert stay_on_loopback() == "local"
    assert len(token.read_text()) == 64
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert list(token.parent.iterdir()) == [token]


def test_a_token_that_another_process_has_just_made_is_kept(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stay_on_loopback()
    made = token.read_text()
    monkeypatch.setattr(Path, "exists", lambda path: False)  # it was made after the look
    stay_on_loopback()
    assert token.read_text() == made
    assert list(token.parent.iterdir()) == [token]


@pytest.mark.parametrize(
    ("name", "value"),
    [("RAY_AUTH_MODE", "disabled"), ("RAY_AUTH_TOKEN", "a"), ("RAY_AUTH_TOKEN_PATH", "/x"), ("RAY_ADDRESS", "h:1")],
)
def test_another_source_needs_no_token(token: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    stay_on_loopback()
    assert not token.exists()


def test_a_folder_that_cannot_be_written_is_left_to_ray(token: Path) -> None:
    token.parent.write_text("a file")
    assert stay_on_loopback() == "local"


def test_a_cluster_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port where nothing listens, and a folder for temporary files whose name is too long for the sockets of Ray."""
    on_ray = pytest.importorskip("fewstep.serve.on_ray", exc_type=ImportError)
    with pytest.raises(ServeError, match=r"--ray: expected a cluster that answers at 127.0.0.1:1, got: .*; check RAY_ADDRESS"):
        on_ray._connect("127.0.0.1:1", local=False)

    def fail(**_: object) -> None:
        raise OSError("AF_UNIX path length cannot exceed 107 bytes")

    monkeypatch.setattr(on_ray.ray, "init", fail)
    with pytest.raises(ServeError, match=r"expected Ray to start on this machine, got: AF_UNIX .*length of TMPDIR"):
        on_ray._connect("local", local=True)


def test_ray_works_elsewhere_if_its_sockets_had_too_long_names(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    for folder, chosen in (("/tmp", None), ("/tmp/" + "x" * 60, "/tmp")):
        monkeypatch.setenv("TMPDIR", folder)
        stay_on_loopback()
        assert os.environ.get("RAY_TMPDIR") is None, "a server is refused"
        use_short_folder()
        assert os.environ.get("RAY_TMPDIR") == chosen
    monkeypatch.setenv("RAY_TMPDIR", "/scratch")
    use_short_folder()
    assert os.environ["RAY_TMPDIR"] == "/scratch"
