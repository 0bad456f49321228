"""`fewstep doctor`: check whether this machine has everything that a run needs."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from fewstep.text.escape import escaped
from pipeline.config.load import load_config
from pipeline.config.texts import FORMATS
from pipeline.errors import FewstepError
from pipeline.urls import masked

PACKAGES = ("numpy", "torch", "pyarrow", "sentencepiece", "safetensors", "sacrebleu", "pydantic", "mlflow", "ray")
LOW_BYTES = 2**30
RAY_SECONDS = 60.0


class Check(NamedTuple):
    """One line of the output of `fewstep doctor`."""

    name: str
    verdict: Literal["ok", "warn", "FAIL"]
    text: str


def doctor(
    config: Annotated[Path | None, typer.Argument(metavar="[CONFIG]", help="Also check this config and its files.")] = None,
    store: Annotated[Path | None, typer.Option("--store", metavar="DIRECTORY", help="Default: that of CONFIG.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Hash every artifact of the store again.")] = False,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Check the requirements of run --in-process: all but Ray.")
    ] = False,
) -> None:
    """Check this machine: versions, kernels, Ray, disk, memory, GPUs. Exits with 1 if something needed is broken."""
    checks = []
    for check in examine(config, store, verify=verify, in_process=in_process):
        checks.append(check)
        print(escaped(masked(f"{check.verdict:<5} {check.name}: {check.text}")), flush=True)
    if any(check.verdict == "FAIL" for check in checks):
        raise typer.Exit(1)


def examine(config: Path | None, store: Path | None, *, verify: bool = False, in_process: bool = False) -> Iterator[Check]:
    """Yield all checks, cheap ones first. `in_process` leaves out Ray; `verify` hashes every artifact."""
    yield from _versions(in_process)
    yield _kernels()
    settings: Any = None
    if config is not None:
        try:
            settings = load_config(config)
            yield from _config(config, settings)
        except FewstepError as error:
            yield Check("config", "FAIL", str(error))
    root = store or (settings.store.path if settings else Path("store"))
    yield _disk(root)
    yield _memory()
    yield _gpus()
    if not in_process:
        yield _token()
        yield from _ray(settings.cluster.address if settings else "", _command(settings))
    if verify:
        yield from _artifacts(root)


def _versions(in_process: bool) -> Iterator[Check]:
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in PACKAGES:
        try:
            yield Check(package, "ok", metadata.version(package))
        except metadata.PackageNotFoundError:
            spared = in_process and package == "ray"
            yield Check(package, "warn" if spared else "FAIL", f"not installed: pip install -c constraints.txt {package}")


def _kernels() -> Check:
    try:
        return Check("kernels", "ok", f"importable here, {_imported_kernels()}")
    except Exception as error:
        return Check("kernels", "FAIL", f"cannot be imported here: {error}")


def _imported_kernels() -> str:
    """Return the folders of the kernels and their extension, and the instruction-set level in use.

    Raises ImportError when the extension is missing, of another ABI, or does not run on this processor.
    """
    native = import_module("fewstep.native")
    extension = native.fewstep_native
    place = f"from {Path(str(native.__file__)).parent}; extension of ABI {extension.ABI} in {Path(extension.__file__).parent}"
    missing = f"; not compiled: {', '.join(extension.MISSING)} (make LEVELS=all)" if extension.MISSING else ""
    return f"{place}; level {extension.LEVEL} of {', '.join(extension.LEVELS)}{missing}"


def _config(path: Path, settings: Any) -> Iterator[Check]:
    yield Check("config", "ok", str(path))
    corpus = settings.corpus
    texts = {"train": corpus.train, "validation": corpus.validation, **corpus.texts, **corpus.test}
    for name, text in texts.items():
        files = [file for given in (*(getattr(text, name) for name in FORMATS), *text.references) for file in given]
        missing = [str(file) for file in files if isinstance(file, Path) and not os.access(file, os.R_OK)]
        if missing:
            yield Check(f"text {name}", "FAIL", f"expected readable files, got none at {', '.join(missing)}")
    if program := _command(settings):
        yield _program("program", program[0], found_program(*program), "here")
    if settings.store.mirror:
        yield _mirror(settings.store.mirror)


def _command(settings: Any) -> tuple[str, tuple[str, ...]] | None:
    """Return the program of a teacher and the absolute paths of its files; None for any other teacher."""
    if settings is None or not hasattr(settings.teacher, "command"):
        return None
    return settings.teacher.command[0], tuple(str(file.absolute()) for file in settings.teacher.files)


def found_program(name: str, files: tuple[str, ...]) -> str:
    """Return the path of the program that a teacher's command starts on this machine; empty if it is missing.

    A relative path is looked for among `files`, which are linked into the working directory of the program.
    """
    if os.sep not in name or os.path.isabs(name):
        return shutil.which(name) or ""
    linked = [file for file in files if Path(file).name == os.path.normpath(name)]
    return next((file for file in linked if os.access(file, os.X_OK)), "")


def _program(check: str, name: str, found: str, where: str) -> Check:
    if found:
        return Check(check, "ok", f"teacher.command: {name} is {found} {where}")
    return Check(check, "FAIL", f"teacher.command: expected the program {name} {where}, got none; install it, or correct the path")


def _mirror(url: str) -> Check:
    """Check that the mirror can be read from here, whatever it holds."""
    from pipeline.store.object_storage import Folder

    try:
        folder = Folder(url)
        folder.read("fewstep")
        return Check("mirror", "ok", f"{folder.url} answers")
    except FewstepError as error:
        return Check("mirror", "FAIL", str(error))


def _disk(store: Path) -> Check:
    there = next(path for path in (store.absolute(), *store.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if not os.access(there, os.W_OK):
        return Check("disk", "FAIL", f"{there} is not writable; name another directory in store.path")
    return Check("disk", "warn" if free < LOW_BYTES else "ok", f"{_gib(free)} free at {store}")


def _memory() -> Check:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    cpus = len(os.sched_getaffinity(0))
    return Check("memory", "warn" if total < LOW_BYTES else "ok", f"{_gib(total)}, {_gib(free)} of it unused; {cpus} CPUs")


def _gpus() -> Check:
    try:
        import torch

        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    except Exception as error:
        return Check("gpu", "warn", f"torch cannot list GPUs: {error}")
    return Check("gpu", "ok", ", ".join(names) or "none; networks run on the CPU")


def _token() -> Check:
    """Look for a token for Ray's authentication, without showing it."""
    from pipeline.run.ray_cluster.connection import token_source

    source = token_source()
    mode = os.environ.get("RAY_AUTH_MODE", "not set")
    if source:
        return Check("ray token", "ok", f"found in {source}; RAY_AUTH_MODE is {mode}")
    remedy = "a local cluster creates one; for another cluster, see ray get-auth-token --generate"
    return Check("ray token", "warn" if os.environ.get("RAY_ADDRESS") else "ok", f"none; {remedy}")


def _ray(address: str, command: tuple[str, tuple[str, ...]] | None = None) -> Iterator[Check]:
    """Connect as a run does, import the kernels in a task on each node, and look for the teacher's program there."""
    from pipeline.config.schema import Cluster
    from pipeline.run.ray_cluster.connection import connect_ray

    where = address or os.environ.get("RAY_ADDRESS") or "a local cluster"
    try:
        machines = connect_ray(Cluster(address=address))
    except Exception as error:
        yield Check("ray", "FAIL", f"cannot connect to {where}: {error}")
        return
    try:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = machines.nodes
        yield Check("ray", "ok", f"{where}: {len(nodes)} nodes, {sum(node.get('CPU', 0) for node in nodes.values()):g} CPUs")
        look = ray.remote(num_cpus=0, max_retries=0)(_imported_kernels)
        for node in nodes:  # each machine has its own installation
            there = NodeAffinitySchedulingStrategy(node, soft=False)
            found = ray.get(look.options(scheduling_strategy=there).remote(), timeout=RAY_SECONDS)
            yield Check("kernels on ray", "ok", f"importable in a Ray task on node {node[:8]}, {found}")
            if command:
                program = ray.remote(num_cpus=0, max_retries=0)(found_program).options(scheduling_strategy=there)
                path = ray.get(program.remote(*command), timeout=RAY_SECONDS)
                yield _program("program on ray", command[0], path, f"on node {node[:8]}")
    except Exception as error:
        yield Check("kernels on ray", "FAIL", f"cannot be imported in a Ray task: {error}")
    finally:
        machines.close()


def _artifacts(root: Path) -> Iterator[Check]:
    from pipeline.store.artifacts import Store

    count = 0
    for directory, problem in Store(root).verify_all():
        count += 1
        if problem:
            yield Check("artifact", "FAIL", problem if str(directory) in problem else f"{directory}: {problem}")
    yield Check("artifacts", "ok", f"{count} hashed in {root}")


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
