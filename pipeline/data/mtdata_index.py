"""A process that looks data sets up in the index of mtdata: `python mtdata_index.py < REQUEST > ANSWER`.

The request is JSON: {ids, languages}. The answer is a list, in the order of the ids, of {url, format, inner, members, columns,
swapped, licence} or {problem, known}. mtdata downloads nothing here. It imports `mtdata*.py` from the current directory, which has
to be empty.
"""

from __future__ import annotations

import json
import sys
from typing import Any

DOWNLOAD, LICENCE = 6, 7
"""Columns of the list of ELRC-SHARE."""


def describe(index: Any, name: str, languages: list[str]) -> dict[str, Any]:
    """Return what an index says about a data set, or why it cannot be used."""
    from mtdata.entry import DatasetId
    from mtdata.iso.bcp47 import BCP47Tag, bcp47

    try:
        wanted = DatasetId.parse(name)
    except Exception as error:  # mtdata raises plain exceptions and AssertionError
        return {"problem": f"expected an id of `mtdata list -id`, got {name!r}: {error}"}
    if wanted not in index:
        return {"problem": f"expected an id of `mtdata list -id`, got {name!r}", "known": similar(index, wanted)}
    entry = index[wanted]
    matches, swapped = BCP47Tag.check_compat_swap(tuple(map(bcp47, languages)), entry.did.langs)
    if not matches:
        return {"problem": f"expected the languages {'-'.join(languages)} of the config, got {entry.did.lang_str}"}
    return {
        "url": [entry.url] if isinstance(entry.url, str) else list(entry.url), "format": entry.ext, "inner": entry.in_ext or "",
        "members": list(entry.in_paths or ()), "columns": list(entry.cols or ()), "swapped": bool(swapped),
        "licence": licence(entry),
    }  # fmt: skip


def licence(entry: Any) -> str:
    """Return the licence that the list of ELRC-SHARE states; empty for data sets of other groups, for which mtdata has none."""
    if entry.did.group != "ELRC":
        return ""
    from mtdata.index.elrc_share import REFS_FILE

    with open(REFS_FILE, encoding="utf-8") as lines:
        rows = (line.split("\t") for line in lines)
        return next((row[LICENCE] for row in rows if row[DOWNLOAD] == entry.url), "")


def similar(index: Any, wanted: Any) -> list[str]:
    """Return ids of the same group and languages."""
    return [str(entry) for entry in index.entries if entry.group == wanted.group and set(entry.langs) == set(wanted.langs)]


if __name__ == "__main__":
    from mtdata.index import Index

    request = json.load(sys.stdin)
    answer = [describe(Index.get_instance(), name, request["languages"]) for name in request["ids"]]
    json.dump(answer, sys.stdout)
