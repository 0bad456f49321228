"""The file `run.json` of a run: its shape, which is checked before anything relies on it."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from fewstep.access import access_problem
from fewstep.bounded_files import MAX_RECORD_BYTES, json_value, read_bounded
from fewstep.text.escape import escaped_line
from pipeline.plan.step import MAX_STEPS
from stages.errors import ArtifactError

SCHEMA = 1
RUN = "run.json"
LATEST = "latest"
"""Name of the link to the latest run."""
_VALUES: dict[str, type] = {"run_id": str, "name": str, "config": dict, "config_file": str, "store": str, "plan": list}
_ENTRY: dict[str, type] = {"step": str, "stage": str, "version": int, "fingerprint": str, "config": dict, "inputs": list}
_PRINTED = ("run_id", "name", "step")
_PLAIN = re.compile(r"\w[\w.-]*", re.ASCII)
"""Names of folders in a store: they do not lead anywhere else."""


def run_files(runs: Path) -> list[Path]:
    """Return the `run.json` of all runs in a folder, by name.

    Raises ArtifactError if a folder may not be read: its runs would be taken for absent, and their artifacts for unused.
    """
    found = []
    try:
        for folder in sorted(runs.iterdir(), key=lambda path: (path.name == LATEST, path.name)):
            with suppress(FileNotFoundError, NotADirectoryError):
                (folder / RUN).stat()
                found.append(folder / RUN)
    except FileNotFoundError:  # a store without runs
        pass
    except PermissionError as error:
        raise ArtifactError(access_problem(error.filename or runs, error)) from error
    return found


def read_run(path: Path) -> dict[str, Any]:
    """Return the object in a `run.json`: {schema, run_id, name, config, config_file, store, plan}.

    Raises ArtifactError if it cannot be read, was written by another version, or has another shape.
    """
    try:
        data = json_value(read_bounded(path, MAX_RECORD_BYTES)) if path.is_file() else None
    except PermissionError as error:
        raise ArtifactError(access_problem(path, error)) from error
    except OSError as error:
        raise ArtifactError(f"{escaped_line(path)}: expected a readable file, got: {error.strerror}; repeat the command") from error
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"expected JSON, got: {error}") from error
    if not isinstance(data, dict):
        raise _refused(path, f"expected a JSON object, got {data!r:.80}")
    if data.get("schema") != SCHEMA:
        raise ArtifactError(
            f"{escaped_line(path)}: expected schema {SCHEMA}, got {data.get('schema')!r:.80}, which another version of fewstep "
            "wrote; use that version, or repeat the run command with this one"
        )
    if problem := _problem(data):
        raise _refused(path, problem)
    return data


def _refused(path: Path, problem: str) -> ArtifactError:
    shown = escaped_line(path.parent)
    return ArtifactError(
        f"{shown}/{path.name}: {problem}; the run was left as it is: repeat its run command, or remove {shown} if it is not needed"
    )


def _problem(data: dict[str, Any]) -> str | None:
    """Return the first difference from the shape of a run, or None."""
    if problem := _wrong_type("", data, _VALUES):
        return problem
    if len(data["plan"]) > MAX_STEPS:
        return f"plan: expected at most {MAX_STEPS:,} steps, got {len(data['plan']):,}"
    for number, entry in enumerate(data["plan"]):
        where = f"plan[{number}]"
        if not isinstance(entry, dict):
            return f"{where}: expected an object, got {entry!r:.80}"
        if problem := _wrong_type(f"{where}.", entry, _ENTRY):
            return problem
        for key in ("stage", "fingerprint"):
            if not _PLAIN.fullmatch(entry[key]):
                return f"{where}.{key}: expected letters, digits, '_', '-' and '.', got {entry[key]!r:.80}"
        if wrong := next((name for name in entry["inputs"] if not isinstance(name, str)), None):
            return f"{where}.inputs: expected names of steps, got {wrong!r:.80}"
    return None


def _wrong_type(where: str, values: dict[str, Any], types: dict[str, type]) -> str | None:
    for key, kind in types.items():
        found = values.get(key)
        if not isinstance(found, kind) or (key in _PRINTED and not _is_text(str(found))):
            return f"{where}{key}: expected {kind.__name__}, got {found!r:.80}" if key in values else f"{where}{key}: missing"
    return None


def _is_text(value: str) -> bool:
    """Return whether a text can be printed: JSON can hold halves of surrogate pairs."""
    return not any("\ud800" <= character <= "\udfff" for character in value)
