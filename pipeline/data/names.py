"""The forms of names of data sets. Nothing is looked up here."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_LICENCES, MAX_LICENCE = 20, 100
"""Licences of a data set that are kept, and characters of each."""
HUB = "hf:"
"""Prefix of names of files on the Hugging Face Hub."""

COMMIT = re.compile(r"[0-9a-f]{40}")
"""A revision of the Hugging Face Hub that never changes."""

_HUB_NAME = re.compile(r"hf:(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/(?:convert|pr)/[\w.-]+|[\w.-]+))?/(?P<path>.+)")
_CORPUS = re.compile(r"(?P<corpus>[\w.-]+)/(?P<version>[\w.-]+)(?:/(?P<first>[\w.]+)-(?P<second>[\w.]+))?", re.ASCII)
_MTDATA = re.compile(r"[\w.]+-[\w.]+-[\w.]+-[\w.]+-[\w.]+", re.ASCII)
_SACREBLEU = re.compile(r"[\w.-]+(?:/[\w.-]+)*", re.ASCII)


@dataclass(frozen=True)
class HubName:
    """Files of a data set on the Hugging Face Hub."""

    repository: str
    """`ORG/NAME`."""
    revision: str
    """Commit, tag, branch, or `refs/convert/parquet`."""
    path: str
    """Path in the repository: a file, a folder, or a pattern with `*`."""


@dataclass(frozen=True)
class OpusName:
    """A corpus of OPUS."""

    corpus: str
    version: str
    languages: tuple[str, str] | None
    """The languages as OPUS writes them, in its order; None: those of the config, in alphabetical order."""


def hub_name(text: str) -> HubName | None:
    """Return the parts of `hf:ORG/NAME@REVISION/PATH`; None for any other text. Without a revision it is `main`."""
    found = _HUB_NAME.fullmatch(text)
    if found is None or ".." in found["path"].split("/"):
        return None
    return HubName(found["repository"], found["revision"] or "main", found["path"].strip("/"))


def opus_name(text: str) -> OpusName | None:
    """Return the parts of `Corpus/version` or `Corpus/version/l1-l2`; None for any other text, and for the version `latest`."""
    found = _CORPUS.fullmatch(text)
    if found is None or found["version"] == "latest" or ".." in text:
        return None
    return OpusName(found["corpus"], found["version"], (found["first"], found["second"]) if found["first"] else None)


def is_mtdata_id(text: str) -> bool:
    """Return whether a text has the form of an mtdata id of parallel text."""
    return bool(_MTDATA.fullmatch(text))


def is_sacrebleu_name(text: str) -> bool:
    """Return whether a text has the form of a name of sacrebleu."""
    return bool(_SACREBLEU.fullmatch(text)) and not set(text.split("/")) & {".", ".."}


_NEWS_TEST_SET = re.compile(r"(wmt(?:17|20))(?:/(?:full|dev))?")
"""Names of the test sets of WMT's news tasks whose pages state a licence. Sets with additions of others have their own."""


def licence_of_test_set(name: str) -> str:
    """Return the licence of a test set of sacreBLEU, which itself states none; empty if it is unknown.

    WMT releases the data of its news task for research, and refers to the owners for other uses.
    """
    found = _NEWS_TEST_SET.fullmatch(name)
    return f"research use, see statmt.org/{found[1]}/translation-task.html" if found else ""


def stated(value: object) -> str:
    """Return the licence in the metadata of a data set, a text or a list of texts; empty if none, or `unknown`, is stated."""
    texts = value[:MAX_LICENCES] if isinstance(value, list) else [value]
    return ", ".join(text[:MAX_LICENCE] for text in texts if isinstance(text, str) and text and text != "unknown")
