"""The origins of an artifact's inputs that were made elsewhere: addresses and names, digests, and licences as far as known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fewstep.system.format import BundleError, read_json
from pipeline.plan.fingerprint import external_files
from pipeline.plan.step import Step
from pipeline.store.manifest import manifest_values
from stages.artifacts import MANIFEST

UNKNOWN = "unknown"
FINGERPRINT = re.compile("[0-9a-f]{32}")


class Provenance(NamedTuple):
    """The origins of the inputs of an artifact and of all steps before it."""

    files: list[dict[str, str]]
    """A map of `from` and `licence` for each file that was made elsewhere, sorted, without repetition."""
    complete: bool
    """Whether the store still has the manifests of all of these steps."""

    @property
    def unlicensed(self) -> list[str]:
        """The addresses and names of files whose licence is unknown, sorted."""
        return sorted({file["from"] for file in self.files if file["licence"] == UNKNOWN})


def origins(step: Step, directory: Path) -> list[dict[str, str]]:
    """Return a map of `name`, `from`, `sha256` and `licence` for each file that was downloaded or whose licence is stated, and for
    each file of an imported network, whose system is in `directory`."""
    found = [
        {"name": name, "from": file.origin or file.path.name, "sha256": file.digest, "licence": file.licence or UNKNOWN}
        for name, file in external_files(step.inputs)
        if file.origin or file.licence
    ]
    return found + _imported(directory / "system.json")


def _imported(description: Path) -> list[dict[str, str]]:
    if not description.is_file():
        return []
    try:
        origin = read_json(description, "a system").get("origin")
    except BundleError:
        return []
    if not isinstance(origin, dict):
        return []
    files = origin.get("files")
    source = f"{origin.get('kind', UNKNOWN)}:{origin.get('name', UNKNOWN)}"
    return [
        {"name": name, "from": source, "sha256": str(digest), "licence": str(origin.get("licence", UNKNOWN))}
        for name, digest in sorted(files.items() if isinstance(files, dict) else ())
    ]


def provenance(directory: Path) -> Provenance:
    """Return what the manifests of an artifact in a store, and of those that it was made from, say of licences.

    A directory that was copied from a store has no others beside it; a system states the origin of its own network in any case.
    """
    manifests = list(_manifests(directory))
    files = [file for manifest in manifests if manifest for file in manifest.get("origin", [])]
    files += _imported(directory / "system.json")
    found = sorted({(file.get("from", UNKNOWN), file.get("licence", UNKNOWN)) for file in files})
    return Provenance([{"from": name, "licence": licence} for name, licence in found], all(manifests))


def _manifests(directory: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the manifest of an artifact, and of each one that it was made from; None for one that cannot be read."""
    store = directory.absolute().parent.parent
    left = [directory]
    seen: set[str] = set()
    while left:
        manifest = _manifest(left.pop())
        yield manifest
        inputs = manifest["inputs"].values() if manifest else ()
        new = {value for value in inputs if FINGERPRINT.fullmatch(value)} - seen
        seen |= new
        left += [next((path.parent for path in store.glob(f"*/{one}/{MANIFEST}")), store / one) for one in sorted(new)]


def _manifest(directory: Path) -> dict[str, Any] | None:
    found = manifest_values(directory)
    return found if "inputs" in found else None
