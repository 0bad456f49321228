"""The location of public text."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def multi30k() -> Path:
    """Return the folder of Multi30k below the folder that FEWSTEP_DATA names, or below the first usual one that has it."""
    places = [Path(os.environ["FEWSTEP_DATA"])] if "FEWSTEP_DATA" in os.environ else [ROOT / "data", ROOT.parent / "shared/data"]
    return next((place / "multi30k" for place in places if (place / "multi30k").is_dir()), places[0] / "multi30k")
