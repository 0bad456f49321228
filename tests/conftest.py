"""Settings that all tests share."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("fewstep", deadline=None)  # machines are shared, so the time of an example means nothing
settings.load_profile("fewstep")


@pytest.fixture(scope="session")
def systems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directories of small systems of every family, by name. Tests must not change them."""
    from tests.fewstep.systems import write_systems

    return write_systems(tmp_path_factory.mktemp("systems"))
