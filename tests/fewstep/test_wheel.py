"""The wheel: the runtime alone, beside packages of other projects that are called as the pipeline's.

It has the levels of the checkout's extension: all of them after `make LEVELS=all`.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from fewstep_native import _processor

import fewstep
from fewstep.native import fewstep_native
from tests.architecture import ROOT
from tests.fewstep.systems import LINES

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
    assert {"fewstep_native/__init__.py", "fewstep_native/__init__.pyi", "fewstep_native/py.typed", "fewstep/py.typed"} <= set(
        names
    )
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
