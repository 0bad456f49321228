"""A Marian network with the outputs that transformers computed for it, which needs no transformers."""

import json
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "marian"


def test_the_golden_network_decodes_as_in_transformers(tmp_path):
    from tests.models.imports.marian_checks import check

    check(GOLDEN, tmp_path / "system", json.loads((GOLDEN / "expected.json").read_text()))
