"""The image of the runtime: linted, small, and executed without a container engine."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import fewstep
from benchmarks.serving.servers import free_port
from tests.images.dockerfile import built, instructions, stages
from tests.images.test_images import tool
from tests.processes import SLOW_SECONDS, until

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "docker/runtime.Dockerfile"
TEXT = DOCKERFILE.read_text(encoding="utf-8")
RUN = {stage.name: stage for stage in stages(TEXT)}["run"]
MB = 10**6
BASE_BYTES = 135 * MB
"""The base image, uncompressed, as `docker images` shows it (131 MB), rounded up; it cannot be measured without an engine."""
MAX_BYTES = 250 * MB


def value(name: str) -> str:
    (found,) = [instruction.rest for instruction in RUN.body if instruction.name == name]
    return found


def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run([tool("hadolint"), "--no-color", str(DOCKERFILE)], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0)


def test_the_image_is_closed_and_holds_no_compiler() -> None:
    assert value("USER") == "1000"
    assert not [i for i in RUN.body if i.name == "RUN" and re.search("apt-get|pip ", i.rest)]
    assert json.loads(value("ENTRYPOINT")) == ["fewstep"]
    assert json.loads(value("CMD"))[:2] == ["serve", "/system"]
    assert "--without-token" not in TEXT
    assert "/healthz" in value("HEALTHCHECK")
    assert not re.search(r"https?://(?!127)", TEXT), "where packages come from is the builder's choice"
    copied = {name for i in instructions(TEXT) if i.name == "COPY" for name in i.rest.split()[:-1]}
    assert not copied & {"models", "stages", "pipeline"}


def healthy(command: list[str], environment: dict[str, str]) -> bool:
    return subprocess.run(command, env=environment, capture_output=True).returncode == 0


@pytest.mark.slow
def test_the_image_serves_a_mounted_system(systems: dict[str, Path], wheel: Path, tmp_path: Path) -> None:
    root = built(DOCKERFILE, tmp_path, wheel, {})
    size = sum(path.stat().st_size for path in (root / "opt/fewstep").rglob("*") if path.is_file() and not path.is_symlink())
    assert size + BASE_BYTES < MAX_BYTES, f"{size / MB:.0f} MB in /opt/fewstep"

    port = str(free_port())
    environment = {"PATH": f"{root}/opt/fewstep/bin:{os.environ['PATH']}", "FEWSTEP_TOKEN": "secret", "OMP_NUM_THREADS": "1"}
    words = [str(root / "opt/fewstep/bin/fewstep"), *json.loads(value("CMD"))]
    command = [{"/system": str(systems["autoregressive"]), "8080": port}.get(word, word) for word in words]
    health = json.loads(value("HEALTHCHECK").partition("CMD ")[2].replace("8080", port))
    health[0] = str(root / "opt/fewstep/bin" / health[0])
    assert not healthy(health, environment)
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
        try:
            until(lambda: server.poll() is not None or healthy(health, environment), SLOW_SECONDS)
            assert server.poll() is None, server.communicate()[0]
            body = json.dumps({"sentences": ["ein hund"]}).encode()
            headers = {"content-type": "application/json", "authorization": "Bearer secret"}
            with urlopen(Request(f"http://127.0.0.1:{port}/translate", body, headers)) as answer:
                found = json.load(answer)["systems"][0]["translations"]
            assert found[0][0]["text"] == fewstep.load(systems["autoregressive"]).translate(["ein hund"])[0]
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(SLOW_SECONDS) == 0


@pytest.mark.slow
def test_other_machines_are_not_served_without_a_token(systems: dict[str, Path]) -> None:
    words = json.loads(value("CMD"))
    words[words.index("/system")] = str(systems["autoregressive"])
    environment = {name: text for name, text in os.environ.items() if name != "FEWSTEP_TOKEN"}
    done = subprocess.run([sys.executable, "-m", "fewstep", *words], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "token" in done.stderr
