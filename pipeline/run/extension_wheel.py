"""The compiled extension as a wheel of its own, for machines whose image has the packages but not the extension.

Ray installs a wheel with all that it depends on; this one depends on nothing, so that nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import sys
import sysconfig
import zipfile
from base64 import urlsafe_b64encode
from importlib import import_module
from pathlib import Path

from stages.errors import StageError


def write_extension_wheel(folder: Path) -> Path:
    """Write the extension of this Python, with all its levels, as a wheel into `folder`; its path.

    pip refuses it on another platform or Python. Raises ImportError, naming the command that builds it, when the extension is
    missing or older than the kernels need, and StageError when it was not compiled for all processors.
    """
    extension = import_module("fewstep.native").fewstep_native
    if extension.MISSING:
        raise StageError(
            "--with-extension: expected an extension that is compiled for all processors, got one without the levels "
            f"{', '.join(extension.MISSING)}; compile it with `make LEVELS=all`"
        )
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    tag = f"{python}-{python}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    name = f"fewstep_native-{extension.ABI}"
    info = f"{name}.dist-info"
    package = Path(extension.__file__).parent
    files = {
        **{f"{package.name}/{path.name}": path.read_bytes() for path in sorted(package.iterdir()) if path.is_file()},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: fewstep-native\nVersion: {extension.ABI}\n".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: fewstep\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD").encode()
    path = folder / f"{name}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file, content in files.items():
            wheel.writestr(zipfile.ZipInfo(file, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)  # equal bytes, equal upload
    return path


def _record(files: dict[str, bytes], own: str) -> str:
    lines = []
    for file, content in files.items():
        digest = urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{file},sha256={digest},{len(content)}\n")
    return "".join(lines) + f"{own},,\n"
