"""Public text and outputs of other programs that tests compare with, where they are at hand."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def public_data(name: str) -> Path:
    """File or folder `name` below the folder that FEWSTEP_DATA names, or a usual one; where it is absent the test is skipped."""
    places = [Path(os.environ["FEWSTEP_DATA"])] if "FEWSTEP_DATA" in os.environ else [ROOT / "data", ROOT.parent / "shared/data"]
    found = next((place / name for place in places if (place / name).exists()), None)
    if found is None:
        pytest.skip(f"no {name}: set FEWSTEP_DATA to a folder that holds it")
    return found
