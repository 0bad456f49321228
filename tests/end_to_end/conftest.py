"""Settings that the tests of whole runs share."""

import os
from collections.abc import Iterator
from unittest import mock

import pytest


@pytest.fixture(scope="module", autouse=True)
def own_environment() -> Iterator[None]:
    """Restore the environment after each module: a connection to a local Ray cluster leaves variables that later ones obey."""
    with mock.patch.dict(os.environ):
        yield
