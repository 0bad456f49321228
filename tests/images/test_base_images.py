"""The base images of the Dockerfiles and of the compose file, and their pinning by digest."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.images.dockerfile import instructions, stages

FOLDER = Path(__file__).resolve().parents[2] / "docker"
OWN = "fewstep"
"""The image that the Dockerfile builds."""


def named(folder: Path) -> set[str]:
    """Return all images that the files of a folder take from a registry."""
    found = set()
    for path in (folder / "Dockerfile", folder / "runtime.Dockerfile"):
        text = path.read_text(encoding="utf-8")
        own = {stage.name for stage in stages(text)}
        values = dict(i.rest.split("=", 1) for i in instructions(text) if i.name == "ARG" and "=" in i.rest)
        bases = {stage.base for stage in stages(text)} - own
        found |= {values[base[2:-1]] if base.startswith("${") else base for base in bases}
    services = yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))["services"]
    return found | {service["image"] for service in services.values()} - {OWN}


def listed(folder: Path) -> set[str]:
    return set((folder / "base-images.txt").read_text().split())


def test_all_base_images_are_listed_and_pinned() -> None:
    assert named(FOLDER) == listed(FOLDER)
    assert {bool(re.fullmatch(r"[a-z]+:[\w.-]+@sha256:[0-9a-f]{64}", image)) for image in listed(FOLDER)} == {True}


@pytest.mark.skipif(not shutil.which("sh"), reason="needs a shell")
def test_base_images_are_pinned_wherever_they_are_named(tmp_path: Path) -> None:
    folder, tools = tmp_path / "docker", tmp_path / "tools"
    shutil.copytree(FOLDER, folder)
    tools.mkdir()
    for digest in ("a" * 64, "b" * 64):  # pinned, and pinned again to later images
        engine = tools / "docker"
        engine.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\necho sha256:{digest}\n')
        engine.chmod(0o755)
        subprocess.run([str(folder / "pin.sh")], check=True, env={"PATH": f"{tools}:/usr/bin:/bin"})
        assert named(folder) == listed(folder) == {f"{image.split('@')[0]}@sha256:{digest}" for image in listed(FOLDER)}
    asked = {line.split()[-1] for line in (tmp_path / "asked").read_text().splitlines()}
    assert asked == {image.split("@")[0] for image in listed(FOLDER)}
    assert not list(folder.glob("*.before"))


def test_an_answer_that_is_no_digest_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "docker"
    shutil.copytree(FOLDER, folder)
    (tmp_path / "tools").mkdir()
    engine = tmp_path / "tools" / "docker"
    engine.write_text("#!/bin/sh\necho no such image\n")
    engine.chmod(0o755)
    done = subprocess.run([str(folder / "pin.sh")], env={"PATH": f"{engine.parent}:/usr/bin:/bin"}, capture_output=True, text=True)
    assert done.returncode == 1
    assert "expected a digest, got 'no such image'" in done.stderr
    assert named(folder) == listed(FOLDER)
