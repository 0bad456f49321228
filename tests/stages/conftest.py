"""Settings of the tests of stages."""

from collections.abc import Iterator

import pytest

import durable


@pytest.fixture(autouse=True, scope="module")
def _quick_disk() -> Iterator[None]:
    """Leave out the syncs, which many small files would wait for. Tests of the store look at them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable.RealDisk, "sync", lambda self, path: None)
        yield
