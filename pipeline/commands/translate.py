"""`fewstep translate`: translate or summarise a stream line by line, in order."""

from __future__ import annotations

import json
import logging
import os
import select
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from fewstep.config.problems import Problem
from fewstep.config.search import SearchConfig
from models.family import FAMILIES
from pipeline.commands.options import STORE, NoVerify, StorePath, SystemLocation, SystemName
from pipeline.config.load import parse_search
from pipeline.config.systems import TEACHER_FAMILY
from pipeline.errors import ArtifactError, ConfigError, DataError
from pipeline.run.run_directory import Run, find_run
from pipeline.store.attempts import is_partial
from pipeline.store.records import step_directory
from stages.errors import suggestion

log = logging.getLogger("fewstep")

STDIN, STDOUT = 0, 1
CHUNK = 1 << 16


class Translator(Protocol):
    """The part of a loaded system that is used here (`fewstep.System`)."""

    def translate(self, lines: list[str], search: Any = None, *, first_line: int = 1) -> list[str]: ...
    def problems(self, search: Any) -> Iterable[Problem]: ...


def translate(
    where: SystemLocation,
    system: SystemName = None,
    source: Annotated[Path | None, typer.Option("--input", metavar="FILE", help="Text; default: standard input.")] = None,
    output: Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Default: standard output.")] = None,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="SEARCH", help="A label of the system's searches, or {beam: {beam_size: 4}}; default: its first search."
        ),
    ] = None,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="Device: cpu, cuda:0, or auto.")] = "auto",
    batch: Annotated[int, typer.Option(min=1, metavar="LINES", help="Maximum number of lines translated together.")] = 64,
    no_verify: NoVerify = False,
    store: StorePath = STORE,
) -> None:
    """Translate text line by line, in order, as it arrives; or summarise it, with a system trained for that."""
    directory = system_directory(store, where, system)
    translate_files(directory, source, output, search=search, device=device, batch=batch, verify=not no_verify)


def system_directory(store: Path, where: str, name: str | None) -> Path:
    """Return the directory of a system: `where` itself, or the system `name` of the run `where`.

    Raises DataError when there is no such system.
    """
    if name is None and (Path(where) / "system.json").is_file():
        return Path(where)
    if name is None and Path(where).is_dir() and not (Path(where) / "run.json").is_file():
        raise DataError(f"translate: expected the directory of a system (with system.json), or RUN SYSTEM, got {where}")
    run = find_run(store, where)
    names = list(run.spec["config"]["systems"])
    if name is None or name not in names:
        raise DataError(
            f"translate: expected RUN and one of its systems ({', '.join(names)}), got {name or 'no system'}"
            + suggestion(name or "", names)
        )
    directory = _of_run(run, name)
    if not (directory / "system.json").is_file() or is_partial(directory):
        raise DataError(f"{run.path.name}: the system {name} is not finished; finish it with the run command")
    return directory


def _of_run(run: Run, name: str) -> Path:
    config = run.spec["config"]
    for entry in run.spec["plan"]:
        if entry["step"] == f"system:{name}":
            return step_directory(run.store, entry)
    pinned = (config["teacher"] or {}).get("from", "") if "use" in config["systems"][name] else ""
    return run.relocated(Path(pinned))


def translate_files(
    directory: Path, source: Path | None, output: Path | None, *, search: str | None, device: str, batch: int, verify: bool = True
) -> None:
    """Load the system in `directory` and translate a file or standard input. `output` is kept until the system is loaded.

    With `verify`, the system's files are compared with their digests first.

    Raises ConfigError for an invalid search, DataError for a file that cannot be opened, for an output that is the input and
    for a missing device, ArtifactError for a broken system.
    """
    options = None if search is None else search_named(directory, search)
    with ExitStack() as stack:
        read = STDIN if source is None else _opened(source, os.O_RDONLY, stack)
        _check_apart(read, output)
        system = _loaded(directory, device, verify)
        if search is not None and options is not None:
            _check_search(system, options, search)
        write = STDOUT if output is None else _opened(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, stack)
        stream(system, read, write, search=options, batch=batch)


def stream(system: Translator, read: int, write: int, *, search: Any = None, batch: int = 64) -> None:
    """Translate lines from one file descriptor to another, at most `batch` at a time.

    Writes one line for each line read. Bytes that are not UTF-8 are replaced, with a warning that names the line.
    Raises BrokenPipeError when the reader of the output has closed it.
    """
    first = 1
    for chunk in _chunks(read, batch):
        lines = [_decoded(line, number) for number, line in enumerate(chunk, first)]
        texts = system.translate(lines, search, first_line=first)
        _write_all(write, "".join(" ".join(text.splitlines()) + "\n" for text in texts).encode("utf-8"))
        first += len(chunk)


def _chunks(read: int, most: int) -> Iterator[list[bytes]]:
    """Yield lines as they arrive: wait for one, then take all that are ready."""
    more = select.poll()
    more.register(read, select.POLLIN)
    ready: list[bytes] = []
    block, rest = b"-", b""
    while block:
        try:
            block = os.read(read, CHUNK)
        except OSError as error:
            yield from _parts(ready, most)
            raise DataError(f"input: expected readable text, got: {error.strerror}") from error
        *lines, rest = (rest + block).split(b"\n")
        ready += lines if block or not rest else [*lines, rest]
        now = len(ready) - len(ready) % most if block and more.poll(0) else len(ready)
        yield from _parts(ready[:now], most)
        ready = ready[now:]


def _parts(lines: list[bytes], most: int) -> Iterator[list[bytes]]:
    return (lines[start : start + most] for start in range(0, len(lines), most))


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        log.warning("line %d: not UTF-8 at byte %d; the invalid bytes are replaced", number, error.start + 1)
        return line.decode("utf-8", "replace")


def _write_all(write: int, data: bytes) -> None:
    while data:
        data = data[os.write(write, data) :]


def _opened(path: Path, flags: int, stack: ExitStack) -> int:
    try:
        descriptor = os.open(path, flags, 0o644)
    except OSError as error:
        raise DataError(f"{path}: expected a file that can be opened, got: {error.strerror}") from error
    stack.callback(os.close, descriptor)
    return descriptor


def _check_apart(read: int, output: Path | None) -> None:
    """Raise DataError when the output is the input file."""
    try:
        source, target = os.fstat(read), os.fstat(STDOUT) if output is None else output.stat()
    except OSError:
        return
    if stat.S_ISREG(target.st_mode) and os.path.samestat(source, target):
        raise DataError(
            f"{output or 'standard output'}: expected an output other than the input, got the same file; "
            "write to a new file and rename it afterwards"
        )


def search_named(directory: Path, text: str) -> SearchConfig:
    """Return the search of the system in `directory` that `text` labels, or the search that it spells out or derives.

    Raises ConfigError that lists the system's labels. A description that cannot be read is reported when the system is loaded.
    """
    try:
        description = json.loads((directory / "system.json").read_text(encoding="utf-8"))
        family, labels = str(description["family"]), dict(description["searches"])
    except (OSError, ValueError, KeyError):
        family, labels = TEACHER_FAMILY, {}
    if text in labels and family in FAMILIES:
        return FAMILIES[family].search.from_values(labels[text])
    try:
        return parse_search(text, f"--search {text}", family)
    except ConfigError as error:
        own = f"; searches of this system: {', '.join(labels)}" if labels else ""
        raise ConfigError([f"{problem}{own}" for problem in error.problems]) from error


def _check_search(system: Translator, search: SearchConfig, text: str) -> None:
    """Raise ConfigError for a search that the system does not support."""
    if problems := [f"--search {text}: {problem.text()}" for problem in system.problems(search)]:
        raise ConfigError(problems)


def _loaded(directory: Path, device: str, verify: bool) -> Translator:
    import torch

    from fewstep.system.format import BundleError
    from models.bundle.directory import load_system

    if device == "auto":
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"--device: expected cpu, or a GPU of this machine such as cuda:0, got {device!r} ({reason})") from error
    try:
        return load_system(directory, device, verify)
    except BundleError as error:
        raise ArtifactError(str(error)) from error
