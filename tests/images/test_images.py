"""The images of the pipeline and of the runtime, the compose file and the RayJob: linted, pinned, and executed without a container
engine."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml

import fewstep
from benchmarks.serving.servers import free_port
from pipeline.config.load import load_config
from tests.images.dockerfile import built, instructions, outside, stages
from tests.processes import SLOW_SECONDS, until

# ---- images


ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "docker/Dockerfile"
TEXT = DOCKERFILE.read_text(encoding="utf-8")
RUNTIME = ROOT / "docker/runtime.Dockerfile"
RUNTIME_TEXT = RUNTIME.read_text(encoding="utf-8")
RUNTIME_STAGE = {stage.name: stage for stage in stages(RUNTIME_TEXT)}["run"]
COMPOSE = yaml.safe_load((ROOT / "docker/compose.yaml").read_text(encoding="utf-8"))
MANIFESTS = {m["kind"]: m for m in yaml.safe_load_all((ROOT / "docker/kuberay/rayjob.yaml").read_text(encoding="utf-8"))}


def tool(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts")) or beside(name)
    if found is None:
        pytest.skip(f"{name} is not installed (pip install '.[dev]')")
    return found


def beside(package: str) -> str | None:
    """A program of a package that was installed for another interpreter of the same packages."""
    scripts = [Path(entry).parents[2] / "bin" / package for entry in sys.path if entry.endswith("site-packages")]
    return next((str(path) for path in scripts if path.exists()), None)


@pytest.mark.parametrize("file", [DOCKERFILE, RUNTIME], ids=lambda file: file.name)
def test_hadolint_has_nothing_to_say(file: Path) -> None:
    done = subprocess.run([tool("hadolint"), "--no-color", str(file)], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0)


def test_the_stages_are_those_of_the_design() -> None:
    found = {stage.name: stage for stage in stages(TEXT)}
    assert list(found) == ["build", "test", "run"]
    assert found["test"].base == "build"
    for name in ("test", "run"):
        users = [i.rest for i in found[name].body if i.name == "USER"]
        assert users == ["1000"]
    run = found["run"].body
    assert not [i for i in run if i.name == "RUN" and "apt-get" in i.rest], "the image that runs holds no compiler"
    assert run[-1].name == "CMD"
    assert not re.search(r"https?://", TEXT), "where packages come from is the builder's choice"


def test_every_file_that_is_copied_is_there() -> None:
    for instruction in instructions(TEXT):
        if instruction.name == "COPY" and not instruction.rest.startswith("--from"):
            for name in instruction.rest.split()[:-1]:
                assert (ROOT / name).exists(), name
                ignored = (ROOT / ".dockerignore").read_text().split()
                assert name.split("/")[0] not in ignored


def test_compose_suits_its_schema() -> None:
    command = [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(ROOT / "docker/compose.yaml")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_has_no_default_for_a_secret_and_no_open_port() -> None:
    text = (ROOT / "docker/compose.yaml").read_text(encoding="utf-8")
    for name in ("RAY_AUTH_TOKEN", "POSTGRES_PASSWORD"):
        uses = re.findall(rf"\$\{{{name}[^}}]*\}}", text)
        assert uses
        assert all(use.startswith(f"${{{name}:?") for use in uses)
        assert re.search(rf"^{name}=$", (ROOT / "docker/example.env").read_text(), re.MULTILINE)
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert "env" in (ROOT / ".gitignore").read_text(), "docker/.env is never committed"


def test_compose_has_a_head_two_workers_and_a_tracker_with_its_database() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"head", "worker", "mlflow", "database"}
    assert services["worker"]["deploy"]["replicas"] == 2
    assert "--head" in services["head"]["entrypoint"]
    for name in ("head", "worker"):
        environment = services[name]["environment"]
        assert environment["RAY_AUTH_MODE"] == "token"
        assert environment["MLFLOW_TRACKING_URI"] == "http://mlflow:5000"
        assert "store:/store" in services[name]["volumes"]
    assert services["mlflow"]["environment"]["MLFLOW_BACKEND_STORE_URI"].startswith("postgresql://")


def pods() -> dict[str, Any]:
    cluster = MANIFESTS["RayJob"]["spec"]["rayClusterSpec"]
    return {"head": cluster["headGroupSpec"]["template"], **{g["groupName"]: g["template"] for g in cluster["workerGroupSpecs"]}}


def test_the_ray_job_suits_the_schema_of_its_operator() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).parent / "rayjob.schema.json").read_text())
    jsonschema.validate(MANIFESTS["RayJob"], schema)
    wrong = json.loads(json.dumps(MANIFESTS["RayJob"]))
    wrong["spec"]["rayClusterSpec"]["authOptions"]["mode"] = "none"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema)


def test_pods_and_the_rest_suit_the_schemas_of_kubernetes() -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    for kind in ("PersistentVolumeClaim", "ConfigMap"):
        validate(MANIFESTS[kind], "1.34", strict=True)
    for name, template in pods().items():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": template["spec"]}
        validate(pod, "1.34", strict=True)


def test_the_ray_job_is_closed_repeated_and_on_shared_storage(tmp_path: Path) -> None:
    spec = MANIFESTS["RayJob"]["spec"]
    assert spec["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    assert spec["backoffLimit"] > 0
    assert MANIFESTS["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"]
    version = re.search(r"^ray==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert version is not None
    assert spec["rayClusterSpec"]["rayVersion"] == version[1]
    for template in pods().values():
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        (container,) = pod["containers"]
        assert {"name": "store", "mountPath": "/store"} in container["volumeMounts"]
        assert not [e for e in container["env"] if re.search("TOKEN|SECRET|KEY|PASSWORD", e["name"])]
    (tmp_path / "run.yaml").write_text(MANIFESTS["ConfigMap"]["data"]["run.yaml"])
    assert load_config(tmp_path / "run.yaml").store.path == Path("/store")
    assert spec["entrypoint"].startswith("python -m pipeline run /config/run.yaml")


@pytest.mark.exhaustive
def test_every_step_of_the_image_works_in_a_clean_directory(wheel: Path, tmp_path: Path) -> None:
    """Build, test and run stages one after the other, with the packages that this machine or its Python already has."""
    root = built(DOCKERFILE, tmp_path, wheel, {"DEVICE": "cpu", "TESTS": "tests/test_architecture.py"})
    assert (root / "opt/fewstep/bin/lmplz").exists()
    command = [root / "opt/fewstep/bin/python", "-m", "pipeline", "doctor", "--in-process"]
    doctor = subprocess.run(command, cwd=tmp_path, env=outside(), capture_output=True, text=True)
    assert "ok    kernels: importable here" in doctor.stdout
    assert str(root / "opt/fewstep") in doctor.stdout


# ---- base images


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


# ---- the image of the runtime: small, and serving


MB = 10**6
BASE_BYTES = 135 * MB
"""The base image, uncompressed, as `docker images` shows it (131 MB), rounded up; it cannot be measured without an engine."""
MAX_BYTES = 250 * MB


def runtime_value(name: str) -> str:
    (found,) = [instruction.rest for instruction in RUNTIME_STAGE.body if instruction.name == name]
    return found


def test_the_runtime_image_is_closed_and_holds_no_compiler() -> None:
    assert runtime_value("USER") == "1000"
    assert not [i for i in RUNTIME_STAGE.body if i.name == "RUN" and re.search("apt-get|pip ", i.rest)]
    assert json.loads(runtime_value("ENTRYPOINT")) == ["fewstep"]
    assert json.loads(runtime_value("CMD"))[:2] == ["serve", "/system"]
    assert "--without-token" not in RUNTIME_TEXT
    assert "/healthz" in runtime_value("HEALTHCHECK")
    assert not re.search(r"https?://(?!127)", RUNTIME_TEXT), "where packages come from is the builder's choice"
    copied = {name for i in instructions(RUNTIME_TEXT) if i.name == "COPY" for name in i.rest.split()[:-1]}
    assert not copied & {"models", "stages", "pipeline"}


def healthy(command: list[str], environment: dict[str, str]) -> bool:
    return subprocess.run(command, env=environment, capture_output=True).returncode == 0


@pytest.mark.slow
def test_the_runtime_image_serves_a_mounted_system(systems: dict[str, Path], wheel: Path, tmp_path: Path) -> None:
    root = built(RUNTIME, tmp_path, wheel, {})
    size = sum(path.stat().st_size for path in (root / "opt/fewstep").rglob("*") if path.is_file() and not path.is_symlink())
    assert size + BASE_BYTES < MAX_BYTES, f"{size / MB:.0f} MB in /opt/fewstep"

    port = str(free_port())
    environment = {"PATH": f"{root}/opt/fewstep/bin:{os.environ['PATH']}", "FEWSTEP_TOKEN": "secret", "OMP_NUM_THREADS": "1"}
    words = [str(root / "opt/fewstep/bin/fewstep"), *json.loads(runtime_value("CMD"))]
    command = [{"/system": str(systems["autoregressive"]), "8080": port}.get(word, word) for word in words]
    health = json.loads(runtime_value("HEALTHCHECK").partition("CMD ")[2].replace("8080", port))
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
    words = json.loads(runtime_value("CMD"))
    words[words.index("/system")] = str(systems["autoregressive"])
    environment = {name: text for name, text in os.environ.items() if name != "FEWSTEP_TOKEN"}
    done = subprocess.run([sys.executable, "-m", "fewstep", *words], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "token" in done.stderr
