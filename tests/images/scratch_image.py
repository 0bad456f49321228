"""Images that are built in a scratch directory, where programs that would change this machine have stand-ins."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.images.dockerfile import Scratch, instructions, stages

ROOT = Path(__file__).resolve().parents[2]
APT = """
apt() {
    /usr/bin/apt-get -o Dir::State::lists="$SCRATCH/var/lib/apt/lists" -o Dir::Cache="$SCRATCH/cache" -o Debug::NoLocking=1 \\
        -o APT::Sandbox::User="$(id --user --name)" "$@"
}
mkdir --parents "$SCRATCH"/var/lib/apt/lists/partial "$SCRATCH"/cache/archives/partial
if [ "$1" = update ]; then what=(update); else what=("$@" --download-only); fi
apt "${what[@]}" || exit
find "$SCRATCH"/cache/archives -name "*.deb" -exec dpkg --extract {} "$SCRATCH" ";"
"""
STAND_INS = {
    "apt-get": APT,
    "useradd": '[ "$1" = --uid ] && [ "$2" = 1000 ] && [ "$3" = --create-home ] && mkdir -p "$SCRATCH/home/$4"',
    "chown": "exit 0",
    "install": 'args=(); while [ $# -gt 0 ]; do case "$1" in --owner) shift 2;; *) args+=("$1"); shift;; esac; done\n'
    'exec /usr/bin/install "${args[@]}"',
}
"""Stand-ins by name for programs that would change this machine; they change the scratch directory instead."""


def _write_program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


def built(dockerfile: Path, place: Path, wheel: Path, values: dict[str, str]) -> Path:
    """Run all stages of a Dockerfile one after the other, and return the directory that stands in for the image.

    The wheel of the checkout is installed where an image builds it, after a check that the build has all of its files. An
    environment that `python -m venv` creates has the packages of this one, unless it is created without pip.
    """
    if shutil.which("apt-get") is None or shutil.which("cmake") is None:
        pytest.skip("needs a machine like the image's base: apt-get, cmake")
    root, tools = place / "image", place / "tools"
    for folder in (root, tools):
        folder.mkdir()
    for name, body in STAND_INS.items():
        _write_program(tools / name, body)
    packages = " ".join(entry for entry in sys.path if entry.endswith("site-packages"))
    python = (
        f'{sys.executable} "$@" || exit\nif [ "${{2:-}}" = venv ] && [ -d "$3" ]; then '
        f'for d in "$3"/lib/python*/site-packages; do printf "%s\\n" {packages} > "$d/packages.pth"; done; fi'
    )
    _write_program(tools / "python", python)
    text = dockerfile.read_text(encoding="utf-8")
    scratch = Scratch(root, ROOT, tools, wheel, {**values, "PYTHONNOUSERSITE": "1"})
    environment = {"SCRATCH": str(root), "CMAKE_PREFIX_PATH": str(root / "usr")}
    environment["CMAKE_BUILD_PARALLEL_LEVEL"] = str(len(os.sched_getaffinity(0)))
    for stage in stages(text):
        scratch.values.pop("PATH", None)
        if stage.name == "run":
            (tools / "python").unlink()  # the image's own comes first there
        scratch.carry_out(stage, environment)
    assert scratch.ran == [instruction.rest for instruction in instructions(text) if instruction.name == "RUN"]
    assert (root / "opt/fewstep/bin/fewstep").exists()
    return root
