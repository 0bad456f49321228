"""Settings that all tests share."""

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings

from tests.architecture import ROOT
from tests.shared import made_once

# Machines are shared, so the time of an example means nothing. The first tiers draw few examples. Continuous integration repeats
# them, so that a change is not refused for what an unchanged part does in one of thousands of draws; other runs draw new ones.
settings.register_profile("few", deadline=None, max_examples=20, derandomize="CI" in os.environ)
settings.register_profile("many", deadline=None, max_examples=300)
settings.load_profile("few")

MEMORY = Path("/dev/shm")
# Thousands of syncs of stores and databases take time on a disk, and none in memory. Power cuts are simulated.
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 8 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector from walking through all libraries and tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def own_environment() -> Iterator[None]:
    """Restore the environment after each module: a connection to a cluster leaves variables that later ones would obey.

    A new local cluster of Ray also switches its process to token authentication. A process that keeps the token refuses the calls
    of clusters without one. Steps that are run in this process leave the number of their threads to torch.
    """
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else 0
    with mock.patch.dict(os.environ):
        yield
    if torch:
        torch.set_num_threads(threads)
    if raylet := sys.modules.get("ray._raylet"):
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()


@pytest.fixture(scope="session")
def systems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directories of small systems of every family, by name. Tests must not change them."""
    from tests.fewstep.systems import write_systems

    return write_systems(tmp_path_factory.mktemp("systems"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built once for all processes of pytest-xdist. Tests must not change it."""
    (found,) = made_once(tmp_path_factory, "wheel", build_wheel).glob("*.whl")
    return found


def build_wheel(folder: Path) -> None:
    """Build the wheel into `folder`, with the levels that the checkout was compiled for, from the objects of its own build if there
    is one."""
    from fewstep.native import fewstep_native

    cache = {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache"} if shutil.which("ccache") else {}
    options = [
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        f"--wheel-dir={folder}",
        f"--config-settings=cmake.define.FEWSTEP_LEVELS={'native' if fewstep_native.MISSING else 'all'}",
    ]
    options += [f"--config-settings=build-dir={built}" for built in (ROOT / "build/editable").glob("*")]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], env={**os.environ, **cache}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.fixture(scope="module")  # while it is open, no other event loop can run in this thread
def browser() -> Iterator[Any]:
    """A headless Chromium, driven by playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the browser is driven by playwright (pip install playwright)")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium on this machine (Debian: chromium)")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()
