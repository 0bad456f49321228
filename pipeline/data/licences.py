"""Licences of named data sets, as their publishers state them. Those that are not known for certain are left out."""

from __future__ import annotations

import re

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
    texts = value if isinstance(value, list) else [value]
    return ", ".join(text for text in texts if isinstance(text, str) and text and text != "unknown")
