"""The state of a proof in files of at most 16 MiB: what is needed to go on, and all results.

    state.json        the digest of the files, their names, and what was left out because it did not fit
    state-<digest>-00, state-<digest>-01, ...   one tar archive, cut into pieces

Files of weights are stored in 16 bits, equal files once, all others compressed. Of an interrupted training the weights go along,
rounded to 16 bits, and neither the moments of the optimiser nor the candidates of earlier validations: it goes on with moments of
zero and a learning rate that rises again, and averages candidates of later validations alone.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load, save

from benchmarks.proof.pieces import STORE, Proof
from pipeline.plan.fingerprint import artifacts, external_files
from pipeline.plan.step import Step
from pipeline.store.attempts import partial_directories
from stages.artifacts import CHECKPOINTS, STOP
from stages.errors import ArtifactError, DataError
from stages.train.state import MOMENTS_SINCE

STATE = "state.json"
PIECE_BYTES = 16 << 20
HALF, SAME, COMPRESSED = ".half", ".same", ".z"
"""Endings of members: float16 in place of float32, the name of an equal member, and zlib."""
MOMENTS = ("exp_avg", "exp_avg_sq", "step")
"""Tensors of the optimiser that are left out."""


class Item(NamedTuple):
    """Files that are of use together alone."""

    name: str
    files: dict[str, bytes | Path]
    """Files by their paths below the folder of the proof: their content, or where it is."""


def items(proof: Proof) -> Iterator[Item]:
    """Yield the files to keep, by importance: text, results, what the next pieces need, and interrupted work."""
    root = Path.cwd()
    own = [*text_files(proof.steps.values()), *root.glob("*.json")]
    yield Item("text", {str(path.relative_to(root)): path for path in own})
    evaluated, _ = proof.report
    results = {step.directory for step in proof.targets} | {item.hypotheses.path for item in evaluated.evaluated}
    results |= {text.path for text in (evaluated.corpus, *evaluated.tests.values())}
    needed = [artifact.path for step in proof.missing() for _, artifact in artifacts(step.inputs)]
    for directory in dict.fromkeys([*sorted(results), *needed]):
        if proof.store.manifest(directory) is not None:
            yield Item(_name(directory, root), {str(path.relative_to(root)): path for path in _files(directory)})
    for step in proof.missing():
        for directory in partial_directories(step.directory)[-1:]:
            yield Item(_name(directory, root), {str((directory / n).relative_to(root)): c for n, c in interrupted(directory)})


def text_files(steps: Iterable[Step]) -> list[Path]:
    """Return the user's files that steps read. Raises DataError for a file outside the current directory."""
    found = dict.fromkeys(file.path.absolute() for step in steps for _, file in external_files(step.inputs))
    for path in found:
        if not path.is_relative_to(Path.cwd()):
            raise DataError(f"{path}: expected text below the directory that the program runs in, {Path.cwd()}; name it there")
    return list(found)


def _name(directory: Path, root: Path) -> str:
    return str(directory.relative_to(root / STORE))


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def interrupted(directory: Path) -> Iterator[tuple[str, bytes | Path]]:
    """Yield the files of an unfinished attempt by name, with its newest checkpoint alone, without the moments of the optimiser."""
    updates = [int(path.name) for path in (directory / CHECKPOINTS).glob("*") if path.name.isdigit()]
    newest = Path(CHECKPOINTS, str(max(updates, default=0)))
    for path in _files(directory):
        name = path.relative_to(directory)
        if name.parts[0] != CHECKPOINTS and name.name != STOP and name.suffix != ".tmp":
            yield str(name), path
        elif name.parent == newest:
            yield str(name), _left(path)


def _left(path: Path) -> bytes:
    """Return a file of a checkpoint without what is left out."""
    data = path.read_bytes()
    if path.name == "state.json":
        state = json.loads(data)
        return json.dumps({**state, "validations": [], MOMENTS_SINCE: state["update"]}).encode()
    if path.name == "optimizer.safetensors":
        left: bytes = save({name: np.zeros_like(value) if name in MOMENTS else value for name, value in load(data).items()})
        return left
    return data if (half := halved(data)) is None else restored(half)


def write(folder: Path, found: Iterable[Item], limit: int) -> dict[str, Any]:
    """Write items into the files of a state in `folder`, as many as have `limit` bytes; return its description.

    A state that is there is replaced when the new one is whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known: dict[bytes, str] = {}
    left_out: list[str] = []
    with tempfile.TemporaryFile(dir=folder) as stream:
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for item in found:
                seen = dict(known)
                members = [_member(name, content, seen) for name, content in item.files.items()]
                if archive.offset + sum(len(data) + 2 * tarfile.BLOCKSIZE for _, data in members) > limit - tarfile.RECORDSIZE:
                    left_out.append(item.name)
                    continue
                known = seen
                for name, data in members:
                    header = tarfile.TarInfo(name)
                    header.size = len(data)
                    archive.addfile(header, io.BytesIO(data))
        return _cut(folder, stream, left_out)


def _member(name: str, content: bytes | Path, known: dict[bytes, str]) -> tuple[str, bytes]:
    """Return the name and the data of a file in the archive. `known` has the names of earlier files by digest."""
    data = content.read_bytes() if isinstance(content, Path) else content
    digest = hashlib.sha256(data).digest()
    if digest in known:
        return name + SAME, known[digest].encode()
    known[digest] = name
    half = halved(data) if name.endswith(".safetensors") else None
    exact = half is not None and restored(half) == data
    return (name + HALF, half) if half is not None and exact else (name + COMPRESSED, zlib.compress(data, 1))


def _cut(folder: Path, stream: Any, left_out: list[str]) -> dict[str, Any]:
    stream.seek(0)
    digest = hashlib.file_digest(stream, "sha256").hexdigest()
    stream.seek(0)
    names: list[str] = []
    while data := stream.read(PIECE_BYTES):
        names.append(f"state-{digest[:8]}-{len(names):02}")
        (folder / names[-1]).write_bytes(data)
    state = {"sha256": digest, "files": names, "left_out": left_out}
    temporary = folder / f"{STATE}.tmp"
    temporary.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    temporary.replace(folder / STATE)
    for path in folder.glob("state-*"):
        if path.name not in names:
            path.unlink()
    return state


def described(folder: Path) -> dict[str, Any]:
    """Return the description of a state. Raises DataError without one."""
    if not (folder / STATE).is_file():
        raise DataError(f"{folder}: expected {STATE} and its files, which `prepare` writes; run that first, on any machine")
    found: dict[str, Any] = json.loads((folder / STATE).read_text(encoding="utf-8"))
    return found


def digest(folder: Path) -> str:
    """Return the digest of a state. Raises DataError without one."""
    return str(described(folder)["sha256"])


def read(folder: Path, place: Path) -> None:
    """Write the files of the state in `folder` into the new directory `place`.

    Raises DataError without a state, ArtifactError if its files are not whole. What is at `place` is replaced.
    """
    state = described(folder)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with tempfile.TemporaryFile(dir=folder) as stream:
        for name in state["files"]:
            if not (folder / name).is_file():
                raise ArtifactError(f"{folder / name}: expected a file of the state, found none; copy all files of {STATE}")
            stream.write((folder / name).read_bytes())
        stream.seek(0)
        if (got := hashlib.file_digest(stream, "sha256").hexdigest()) != state["sha256"]:
            raise ArtifactError(f"{folder}: expected files with sha256 {state['sha256']}, got {got}; copy all files of {STATE}")
        stream.seek(0)
        with tarfile.open(fileobj=stream) as archive:
            for member in archive:
                file = archive.extractfile(member)
                _restore(place, member.name, b"" if file is None else file.read())


def _restore(place: Path, member: str, data: bytes) -> None:
    name, _, ending = member.rpartition(".")
    path = place / name
    if not path.resolve().is_relative_to(place.resolve()):
        raise ArtifactError(f"{member}: expected a file below the folder of the state; make the state again")
    path.parent.mkdir(parents=True, exist_ok=True)
    if f".{ending}" == SAME:
        shutil.copyfile(place / data.decode(), path)
    else:
        path.write_bytes(restored(data) if f".{ending}" == HALF else zlib.decompress(data))


def header_bytes(data: bytes) -> int:
    """Return the length of the header of a safetensors file with its own length in front."""
    return 8 + int.from_bytes(data[:8], "little")


def halved(data: bytes) -> bytes | None:
    """Return a safetensors file with its values rounded to float16, or None if it holds other values than float32, or values that
    float16 cannot hold."""
    start = header_bytes(data)
    kinds = {entry["dtype"] for name, entry in json.loads(data[8:start]).items() if name != "__metadata__"}
    with np.errstate(over="ignore"):
        values = np.frombuffer(data, "<f4", offset=start).astype("<f2") if kinds == {"F32"} else None
    return None if values is None or not np.isfinite(values).all() else data[:start] + values.tobytes()


def restored(data: bytes) -> bytes:
    """Return the file in float32 again. It is the original if all its values were those of float16."""
    start = header_bytes(data)
    return data[:start] + np.frombuffer(data, "<f2", offset=start).astype("<f4").tobytes()
