"""Files of data sets on the Hugging Face Hub, in the version of one commit."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote

from fewstep.relative_names import form_problem
from pipeline.data.access import DataAccess
from pipeline.data.names import HubName, hub_name, stated
from pipeline.data.records import about, record_of
from pipeline.store.downloads import RemoteFile
from pipeline.store.url_copy import read_json_pages
from stages.errors import DataError

ENDPOINT = "https://huggingface.co"
PARTIAL = "partial-"
"""Prefix of folders in which a conversion to Parquet holds only the beginning of a data set."""
MAX_SHOWN = 8
ANY, COMMIT, OID = re.compile("(?s:.*)"), re.compile(r"[\w-]{1,128}", re.ASCII), re.compile("(?:[0-9a-f]{64})?")
"""Forms of a text, of a commit, and of the sha256 of a large file."""
OFFLINE = ("1", "on", "true", "yes")


def hub_files(remote: RemoteFile, access: DataAccess) -> tuple[RemoteFile, ...]:
    """Return the files that a name `hf:ORG/NAME@REVISION/PATH` stands for, in the order of their paths.

    A folder stands for all Parquet files in it, and `*` in a path for any characters. Raises DataError if no file
    matches, the revision does not exist, or the files are the beginning of a data set alone.
    """
    name = hub_name(remote.url)
    assert name is not None, remote.url  # the config was checked
    offline = access.offline or os.environ.get("HF_HUB_OFFLINE", "").lower() in OFFLINE
    with about(remote.url):
        record = record_of(f"{endpoint()}/{remote.url}", replace(access, offline=offline), lambda _: _resolve(name))
        if remote.sha256 and len(record["files"]) > 1:
            raise DataError(f"expected one file for its sha256, got {len(record['files'])}; run fewstep data pin CONFIG")
    licence = remote.licence or record.get("licence", "")
    return tuple(
        replace(remote, url=file["url"], sha256=remote.sha256 or file["sha256"], licence=licence) for file in record["files"]
    )


def endpoint() -> str:
    """Return the address of the hub: the environment variable HF_ENDPOINT, or its own."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or ENDPOINT


def _resolve(name: HubName) -> dict[str, Any]:
    """Return {commit, licence, files}: the licence of the card, if it states one, and the digest of each file that is stored as a
    large file."""
    about_repository = f"{endpoint()}/api/datasets/{name.repository}"
    try:
        (found,) = read_json_pages(f"{about_repository}/revision/{quote(name.revision, safe='')}")
        commit = _text(found["sha"], COMMIT)
        licence = stated((found.get("cardData") or {}).get("license"))
        pages = read_json_pages(f"{about_repository}/tree/{commit}?recursive=true")
        listed = {
            _text(entry["path"]): _text((entry.get("lfs") or {}).get("oid", ""), OID)
            for page in pages
            for entry in page
            if entry.get("type") == "file"
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(
            f"expected the commit and the files of a data set from {about_repository}, got other JSON ({error!r}); check "
            "HF_ENDPOINT and the name"
        ) from error
    paths = _matching(name.path, sorted(listed))
    if problem := next(filter(None, map(form_problem, paths)), None):
        raise DataError(f"{problem}; name other files of the data set")
    partial = [path for path in paths if any(folder.startswith(PARTIAL) for folder in path.split("/"))]
    if partial:
        raise DataError(f"expected a whole data set, got the beginning of one: {partial[0]}; name files of the author's revision")
    base = f"{endpoint()}/datasets/{name.repository}/resolve/{commit}"
    files = [{"url": f"{base}/{quote(path)}", "sha256": listed[path]} for path in paths]
    return {"commit": commit, "licence": licence, "files": files}


def _text(value: object, form: re.Pattern[str] = ANY) -> str:
    """Return a text of a hub. Raises TypeError for anything else."""
    if not isinstance(value, str) or not form.fullmatch(value):
        raise TypeError(f"expected {form.pattern}, got {value!r:.100}")
    return value


def _matching(pattern: str, paths: list[str]) -> list[str]:
    if pattern in paths:
        return [pattern]
    found = [path for path in paths if fnmatchcase(path, pattern if "*" in pattern else f"{pattern}/*.parquet")]
    if not found:
        shown = ", ".join([path for path in paths if path.endswith(".parquet")][:MAX_SHOWN] or paths[:MAX_SHOWN])
        raise DataError(f"expected files that match {pattern}, got {len(paths)} others: {shown}")
    return found
