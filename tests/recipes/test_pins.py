"""Recipes state the digest of every file that they download, except where no digest was published."""

import pytest

from pipeline.config.load import load_config
from pipeline.data.pin import unpinned
from tests.recipes.twins import PAPERS, RECIPES, VARIANTS

COMMIT = "b4b2c429240018a0f6c44cf1040e0223c4936e48"
"""Commit of LingEval97, which its address names; no digest of its file has been published."""


@pytest.mark.parametrize("name", [*RECIPES, *VARIANTS])
def test_downloads_are_pinned(name: str) -> None:
    found = unpinned(load_config(PAPERS / f"{name}.yaml"))
    assert not {one for names in found.values() for one in names if COMMIT not in one}
