"""Write golden files again: `python -m tests.golden.regenerate {defaults,marian}`; `marian` is a network of transformers.

Review the difference before committing it.
"""

import json
import sys
from pathlib import Path

MARIAN = Path(__file__).resolve().parent / "marian"


def defaults() -> None:
    """Write the defaults that enter fingerprints."""
    from tests.pipeline.plan.test_step import GOLDEN, fingerprinted

    GOLDEN.write_text(json.dumps(fingerprinted(), indent=1, sort_keys=True) + "\n")


def marian() -> None:
    """Write the Marian network, and its outputs."""
    from tests.models.imports.marian_networks import expectations, write_marian

    model = write_marian(MARIAN, seed=11, start=True, encoder_layers=1, decoder_layers=1, d_model=8)
    (MARIAN / "expected.json").write_text(json.dumps(expectations(model, MARIAN)) + "\n")


if __name__ == "__main__":
    {"defaults": defaults, "marian": marian}[sys.argv[1]]()
