"""From a system directory to its decoder."""

from __future__ import annotations

from pathlib import Path

from models.bundle.weights import make_model, read_json
from models.common.layers.linear import pack
from models.common.tables import load_tables
from models.lattice.decode import LatticeDecoder
from models.lattice.engines.native import NativeDecoder
from models.lattice.model import LatticeModel
from models.lattice.tables import bigram_tables


def load(directory: Path, device: str) -> LatticeDecoder:
    """The decoder of a system directory. Raises `models.bundle.weights.BundleError`."""
    description = read_json(directory / "system.json", "a system")
    model = make_model(directory, description, device)
    assert isinstance(model, LatticeModel)
    tables = load_tables(directory, model.sizes.source, model.sizes.target, str(description.get("links", "")))
    pack(model)
    bigrams = bigram_tables(model)
    return NativeDecoder(model, tables, bigrams) if device == "cpu" else LatticeDecoder(model, tables, bigrams)
