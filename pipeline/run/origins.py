"""The origins of an artifact's inputs that were made elsewhere: addresses and names, digests, and licences as far as known."""

from __future__ import annotations

from pathlib import Path

from fewstep.system.format import BundleError, read_json
from pipeline.plan.fingerprint import external_files
from pipeline.plan.step import Step

UNKNOWN = "unknown"


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
    source = f"{origin['kind']}:{origin['name']}"
    return [
        {"name": name, "from": source, "sha256": digest, "licence": origin.get("licence", UNKNOWN)}
        for name, digest in sorted(origin["files"].items())
    ]
