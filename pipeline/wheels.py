"""Wheels of what is installed here, for machines that cannot get it elsewhere: the compiled extension alone, and the whole runtime.

Nobody has registered the project's name on a package index, so that a requirement can only name a file.
"""

from __future__ import annotations

import hashlib
import sys
import sysconfig
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from importlib import import_module, metadata
from pathlib import Path

from stages.errors import StageError

DEPENDENCIES = ("numpy>=2.0", "safetensors>=0.4.5", "sentencepiece>=0.2", "sentencex>=1.0.32")
"""Packages of the runtime, as in pyproject.toml, which images do not have."""


def write_extension_wheel(folder: Path) -> Path:
    """Write the extension of this Python, with all its levels, as a wheel into `folder`; its path.

    It depends on nothing, since Ray would install that too, and pip refuses it on another platform or Python.

    Raises ImportError, naming the command that builds it, when the extension is missing or older than the kernels need, and
    StageError when it was not compiled for all processors.
    """
    extension = import_module("fewstep.native").fewstep_native
    if extension.MISSING:
        raise StageError(
            "--with-extension: expected an extension that is compiled for all processors, got one without the levels "
            f"{', '.join(extension.MISSING)}; compile it with `make LEVELS=all`"
        )
    return _write(folder, "fewstep_native", str(extension.ABI), (), _files(extension))


def write_runtime_wheel(folder: Path) -> Path:
    """Write the runtime with its extension, of the levels that it was compiled for, as a wheel into `folder`; its path.

    Raises ImportError as `write_extension_wheel` does.
    """
    extension = import_module("fewstep.native").fewstep_native
    try:
        version = metadata.version("fewstep")
    except metadata.PackageNotFoundError:  # a checkout that is used as it is
        version = "0+checkout"
    return _write(folder, "fewstep", version, DEPENDENCIES, {**_files(import_module("fewstep")), **_files(extension)})


def _files(package: object) -> dict[str, bytes]:
    """Return the content of the files of a package by their names in a wheel."""
    root = Path(str(getattr(package, "__file__", ""))).parent
    found = (path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(root.parent).as_posix(): path.read_bytes() for path in found}


def _write(folder: Path, name: str, version: str, dependencies: tuple[str, ...], content: Mapping[str, bytes]) -> Path:
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    tag = f"{python}-{python}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    info = f"{name}-{version}.dist-info"
    needed = "".join(f"Requires-Dist: {requirement}\n" for requirement in dependencies)
    files = {
        **content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n{needed}".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: fewstep\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD").encode()
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file, data in files.items():
            wheel.writestr(zipfile.ZipInfo(file, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)  # equal bytes, equal upload
    return path


def _record(files: Mapping[str, bytes], own: str) -> str:
    lines = []
    for file, content in files.items():
        digest = urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{file},sha256={digest},{len(content)}\n")
    return "".join(lines) + f"{own},,\n"
