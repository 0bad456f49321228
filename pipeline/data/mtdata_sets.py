"""Data sets of mtdata (Gowda et al. 2021), which is used as an index alone: our downloads, digests and readers."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fewstep.text.escape import escaped
from pipeline.config.texts import PairFiles
from pipeline.data.access import DataAccess
from pipeline.data.child import answer_of
from pipeline.data.records import about, record_of
from pipeline.store.downloads import RemoteFile
from stages.errors import DataError
from stages.shared.members import matching_members

KINDS = ("source", "target", "tsv", "tmx")
"""Keys of the files of a data set."""
ARCHIVES = ("zip", "tar", "tar.gz", "tgz")
LINES = ("txt", "txt.gz", "raw", "raw.gz")
"""Formats of files with one sentence a line."""
TABLES = ("tsv", "tsv.gz")
MEMORIES = ("tmx", "tmx.gz")


def mtdata_texts(names: Sequence[str], access: DataAccess) -> list[PairFiles]:
    """Return the files of data sets in the languages of the access.

    Raises DataError for an unknown id, other languages, or a format that the pipeline does not read.
    """
    entries: dict[str, dict[str, Any]] = {}

    def resolve(name: str) -> dict[str, Any]:
        if not entries:  # one process looks all of them up
            entries.update(zip(names, look_up(names, access.languages), strict=True))
        return asdict(_files(name, entries[name], access))

    found = []
    for name in names:
        key = f"mtdata:{name}:{'-'.join(access.languages)}"
        with about(name):
            record = record_of(key, access, lambda _, name=name: resolve(name))  # type: ignore[misc]
        sides = {kind: tuple(RemoteFile(**_tuples(file)) for file in record.get(kind, ())) for kind in KINDS}
        found.append(PairFiles(**sides))
    return found


def look_up(names: Sequence[str], languages: Sequence[str]) -> list[dict[str, Any]]:
    """Return what the index of mtdata says about data sets; see `pipeline.data.mtdata_index`."""
    with tempfile.TemporaryDirectory() as folder:
        print(escaped(f"looking up {', '.join(names)} in the index of mtdata"), file=sys.stderr, flush=True)
        request = json.dumps({"ids": list(names), "languages": list(languages)}).encode()
        (Path(folder) / "empty").mkdir()
        answer: list[dict[str, Any]] = answer_of("mtdata_index", request, Path(folder) / "empty", {"MTDATA": folder})
    return answer


def _files(name: str, entry: dict[str, Any], access: DataAccess) -> PairFiles:
    if problem := entry.get("problem"):
        near = get_close_matches(name, entry.get("known", ()), n=3, cutoff=0.0)
        raise DataError(f"{problem}{'; similar ones: ' + ', '.join(near) if near else ''}")
    urls, members, swapped = entry["url"], entry["members"], entry["swapped"]
    if entry["format"] in ARCHIVES and len(urls) == 1:
        archive = access.download(RemoteFile(url=urls[0]))
        parts = [{"url": urls[0], "sha256": archive.digest, "member": m} for m in matching_members(archive.path, members)]
        kind = entry["inner"]
    else:
        parts = [{"url": url, "sha256": access.download(RemoteFile(url=url)).digest} for url in urls]
        kind = entry["format"]
    parts = [{**part, "licence": entry.get("licence", "")} for part in parts]
    if kind in LINES and len(parts) == 2:
        source, target = reversed(parts) if swapped else parts
        return PairFiles(source=(RemoteFile(**source),), target=(RemoteFile(**target),))
    if kind in TABLES:
        first, second = (column + 1 for column in entry["columns"] or (0, 1))
        columns = (second, first) if swapped else (first, second)
        return PairFiles(tsv=tuple(RemoteFile(**part, columns=columns) for part in parts))
    if kind in MEMORIES:
        return PairFiles(tmx=tuple(RemoteFile(**part) for part in parts))
    raise DataError(
        f"expected two files of lines, tsv or tmx, in an archive ({', '.join(ARCHIVES)}) or by themselves, got {len(parts)} of "
        f"format {entry['format']} {entry['inner']}; run mtdata get -l {'-'.join(access.languages)} -tr {name} -o DIRECTORY, and "
        "name its files"
    )


def _tuples(file: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a file, whose columns JSON holds as a list."""
    return {**file, "columns": tuple(file["columns"])}
