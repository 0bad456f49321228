"""A Dockerfile without a container engine: its instructions, and stages that run in a scratch directory."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOTS = ("opt", "source", "home", "store", "var/lib/apt")
"""Folders of the image that are kept in the scratch directory instead."""

BUILT = re.compile(r"pip (?:install|wheel)[^&|;]*(?= \.$)")
"""An instruction that ends with the build of the working directory's package."""


@dataclass(frozen=True)
class Instruction:
    """An instruction as one line, with continuations joined."""

    name: str
    rest: str


def instructions(text: str) -> list[Instruction]:
    """Return all instructions in order, without comments."""
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    lines = [line.strip() for line in re.sub(r"\\\n", " ", kept).splitlines() if line.strip()]
    return [Instruction(*line.split(maxsplit=1)) for line in lines]


@dataclass
class Stage:
    """The instructions between two FROM lines."""

    name: str
    base: str
    body: list[Instruction] = field(default_factory=list)


def stages(text: str) -> list[Stage]:
    """Return the stages in order."""
    found: list[Stage] = []
    for instruction in instructions(text):
        if instruction.name == "FROM":
            base, _, name = instruction.rest.partition(" AS ")
            found.append(Stage(name.strip(), base.strip()))
        elif found:
            found[-1].body.append(instruction)
    return found


@dataclass
class Scratch:
    """A directory that stands in for an image: absolute paths of the image are paths below it."""

    root: Path
    context: Path
    """The source of COPY: the files that git tracks."""
    tools: Path
    """Programs that stand in for those that would change this machine; first on the PATH."""
    wheel: Path
    """The wheel of the context. It is installed wherever an instruction would build it, which takes minutes."""
    values: dict[str, str]
    """The values of ARG and ENV."""
    workdir: Path = Path("/")
    ran: list[str] = field(default_factory=list)

    def carry_out(self, stage: Stage, environment: Mapping[str, str]) -> None:
        """Run every instruction in turn."""
        for instruction in stage.body:
            if instruction.name == "RUN":
                self._run(instruction.rest, environment)
                self.ran.append(instruction.rest)
            elif instruction.name == "COPY":
                self._copy(instruction.rest)
            elif instruction.name == "WORKDIR":
                self.workdir = self.inside(instruction.rest)
                self.workdir.mkdir(parents=True, exist_ok=True)
            elif instruction.name == "ARG":
                name, _, default = instruction.rest.partition("=")
                self.values.setdefault(name, default.strip('"'))
            elif instruction.name == "ENV":
                for name, value in re.findall(r"(\w+)=(\S+)", instruction.rest):
                    self.values[name] = self.rewritten(value).replace("$PATH", self.values.get("PATH", os.environ["PATH"]))

    def inside(self, path: str) -> Path:
        """Return the path in the scratch directory for a path of the image."""
        return self.root / path.lstrip("/") if path.startswith("/") else self.workdir / path

    def rewritten(self, text: str) -> str:
        """Return `text` with paths of the image replaced by those in the scratch directory."""
        return re.sub(rf"(?<![\w/.-])/({'|'.join(ROOTS)})(?=[/\s'\":]|$)", rf"{self.root}/\1", text)

    def _run(self, command: str, environment: Mapping[str, str]) -> None:
        if (built := BUILT.search(command)) is not None:
            check_sources(self.workdir)
            command = f"{command[: built.end()]} {self.wheel}"
        path = f"{self.tools}:{self.values.get('PATH', os.environ['PATH'])}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.rewritten(command)], cwd=self.workdir,
            env={**outside(), **self.values, **environment, "PATH": path}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"RUN {command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"

    def _copy(self, rest: str) -> None:
        *options, target = rest.split()
        if options[0].startswith("--from="):
            source = self.inside(options[1])
            assert source.exists(), f"COPY {rest}: the earlier stage left no {options[1]}"
            return  # the stages share one scratch directory
        for name in options:
            place = self.inside(target) / (Path(name).name if target == "./" else "")
            for file in known(self.context, name):
                to = place if (self.context / name).is_file() else place / Path(file).relative_to(name)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.context / file, to)


def outside() -> dict[str, str]:
    """Return this environment without the path of Python's packages, which an image does not have."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def check_sources(folder: Path) -> None:
    """Raise AssertionError if a folder lacks a file that the build of its package reads."""
    metadata = "import scikit_build_core.build as build; build.prepare_metadata_for_build_wheel('metadata')"
    configure = [sys.executable, "-m", "cmake", "-S", "kernels", "-B", "configured", f"-DPython_EXECUTABLE={sys.executable}"]
    for command in ([sys.executable, "-c", metadata], configure):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def known(context: Path, name: str) -> list[str]:
    """Return the files that git tracks below `name`. Fail if there are no such files."""
    command = ["git", "ls-files", "--", name]
    listed = subprocess.run(command, cwd=context, capture_output=True, text=True, check=True).stdout.splitlines()
    assert listed, f"COPY {name}: no such file in the repository"
    return listed


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
