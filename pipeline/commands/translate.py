"""`fewstep translate`: translate or summarise a stream line by line, in order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

import fewstep
from fewstep.access import permission_problem
from fewstep.commands.translate import OPTIONS, check_document_options, document_translator, line_translator, with_glossary
from fewstep.config.search import SearchConfig
from fewstep.documents.document import DocumentError
from fewstep.streams import StreamError, open_streams, rewrite, stream
from fewstep.system.format import BundleError, read_json
from fewstep.system.remote import is_remote, local_directory
from models.family import FAMILIES
from pipeline.commands.options import STORE, StorePath, SystemLocation, SystemName, parameter
from pipeline.config.load import parse_search
from pipeline.config.systems import TEACHER_FAMILY
from pipeline.errors import ArtifactError, ConfigError, DataError
from pipeline.run.run_directory import Run, find_run
from pipeline.store.attempts import is_partial
from pipeline.store.records import step_directory
from stages.errors import StageError, suggestion


def translate(where: str, system: str | None, device: str, store: Path, **options: Any) -> None:
    """Translate text line by line, in order, as it arrives; or summarise it, with a system trained for that."""
    translate_files(system_directory(store, where, system), device=device, options=options)


def system_directory(store: Path, where: str, name: str | None) -> Path:
    """Return the directory of a system: `where` itself, a copy of the one at a URL or on the Hub, or the system `name` of the run
    `where`.

    Raises DataError when there is no such system, StageError when its server cannot be reached.
    """
    if name is None and (is_remote(where) or os.path.isfile(Path(where) / "system.json")):
        return _copied(where)
    if name is None and (problem := permission_problem(Path(where) / "system.json")):
        raise DataError(f"{where}: {problem}")
    if name is None and os.path.isdir(where) and not os.path.isfile(Path(where) / "run.json"):
        raise DataError(f"{where}: expected the directory of a system (with system.json), or RUN SYSTEM, got another directory")
    run = find_run(store, where)
    names = list(run.spec["config"]["systems"])
    if name is None or name not in names:
        raise DataError(
            f"{where}: expected RUN and one of its systems ({', '.join(names)}), got {name or 'no system'}"
            + suggestion(name or "", names)
        )
    directory = _of_run(run, name)
    if not (directory / "system.json").is_file() or is_partial(directory):
        raise DataError(f"{run.path.name}: the system {name} is not finished; finish it with the run command")
    return directory


def _copied(location: str) -> Path:
    try:
        return local_directory(location)
    except BundleError as error:
        raise DataError(str(error)) from error
    except OSError as error:
        raise StageError(str(error)) from error


def _of_run(run: Run, name: str) -> Path:
    config = run.spec["config"]
    for entry in run.spec["plan"]:
        if entry["step"] == f"system:{name}":
            return step_directory(run.store, entry)
    pinned = (config["teacher"] or {}).get("from", "") if "use" in config["systems"][name] else ""
    return run.relocated(Path(pinned))


def translate_files(directory: Path, *, device: str, options: Mapping[str, Any]) -> None:
    """Load the system in `directory` and translate a file or standard input, with the values of `OPTIONS` by their names.

    The output is kept until the system is loaded.

    Raises ConfigError for an invalid search, DataError for a file that cannot be opened or read, for an output that is the input
    and for a missing device, ArtifactError for a broken system, StageError for threads that cannot start.
    """
    search = options["search"]
    n_best = options["n_best"]
    chosen = None if search is None else search_named(directory, search)

    def load() -> fewstep.System:
        system = with_glossary(_loaded(directory, device, not options["no_verify"]), options["glossary"])
        if n_best is not None:
            _check_search(system, replace(chosen or system.search, n_best=n_best), search or system.default_search)
        elif search is not None and chosen is not None:
            _check_search(system, chosen, search)
        return system

    try:
        if check_document_options(options):
            rewrite(options["input"], options["output"], lambda data: document_translator(load(), chosen, options)(data))
            return
        with open_streams(options["input"], options["output"], load) as (system, read, write):
            stream(line_translator(system, chosen, options), read, write, batch=options["batch"])
    except (StreamError, DocumentError) as error:
        raise DataError(str(error)) from error
    except ValueError as error:  # outputs that are not numbers, or tables that are damaged
        raise ArtifactError(f"{directory}: {error}") from error
    except BrokenPipeError:  # the reader of the output has ended
        raise
    except OSError as error:  # threads that cannot be started
        raise StageError(str(error)) from error


def search_named(directory: Path, text: str) -> SearchConfig:
    """Return the search of the system in `directory` that `text` labels, or the search that it spells out or derives.

    Raises ConfigError that lists the system's labels. A description that cannot be read is reported when the system is loaded.
    """
    try:
        description = read_json(directory / "system.json", "a system")
    except BundleError:
        description = {}
    family = str(description.get("family", TEACHER_FAMILY))
    searches = description.get("searches")
    labels = searches if isinstance(searches, dict) else {}
    if text in labels and family in FAMILIES:
        try:
            return FAMILIES[family].search.from_values(labels[text])
        except ValueError as error:
            raise ConfigError([f"--search {text}: {error}"]) from error
    try:
        return parse_search(text, f"--search {text}", family)
    except ConfigError as error:
        own = f"; searches of this system: {', '.join(labels)}" if labels else ""
        raise ConfigError([f"{problem}{own}" for problem in error.problems]) from error


def _check_search(system: fewstep.System, search: SearchConfig, text: str) -> None:
    """Raise ConfigError for a search that the system does not support."""
    if problems := [f"--search {text}: {problem.text()}" for problem in system.problems(search)]:
        raise ConfigError(problems)


def _loaded(directory: Path, device: str, verify: bool) -> fewstep.System:
    import torch

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


DEVICE = Annotated[str, typer.Option(metavar="DEVICE", help="Device: cpu, cuda:0, or auto.")]
SEARCHES = "A label of the system's searches, or {beam: {beam_size: 4}}; default: its first search."

# The options of the runtime's command; this one reads searches that are spelled out as well.
translate.__signature__ = Signature(  # type: ignore[attr-defined]
    [
        Parameter("where", Parameter.KEYWORD_ONLY, annotation=SystemLocation),
        Parameter("system", Parameter.KEYWORD_ONLY, default=None, annotation=SystemName),
        *(parameter(one._replace(help=SEARCHES) if one.name == "search" else one) for one in OPTIONS),
        Parameter("device", Parameter.KEYWORD_ONLY, default="auto", annotation=DEVICE),
        Parameter("store", Parameter.KEYWORD_ONLY, default=STORE, annotation=StorePath),
    ]
)
