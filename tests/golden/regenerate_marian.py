"""Write the golden Marian network again with transformers: `python -m tests.golden.regenerate_marian`."""

import json
from pathlib import Path

from tests.models.imports.marian_networks import expectations, write_marian

DIRECTORY = Path(__file__).resolve().parent / "marian"

if __name__ == "__main__":
    model = write_marian(DIRECTORY, seed=11, start=True, encoder_layers=1, decoder_layers=1, d_model=8)
    (DIRECTORY / "expected.json").write_text(json.dumps(expectations(model, DIRECTORY)) + "\n")
