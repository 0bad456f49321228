"""Write the figures of the pages on methods:  python docs/methods/figures/draw.py [DIRECTORY]."""

from __future__ import annotations

import sys
from pathlib import Path

import decoding
import structures

FIGURES = {
    "autoregressive": decoding.autoregressive,
    "orders": decoding.orders,
    "masks": decoding.masks,
    "double-token": decoding.double_token,
    "aggressive": decoding.aggressive,
    "dag": structures.dag,
    "lattice": structures.lattice,
    "shortlists": structures.shortlists,
    "candidate-tables": structures.candidate_tables,
    "word-alignment": structures.word_alignment,
    "ngram": structures.ngram,
}


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, draw in FIGURES.items():
        draw().write(directory / f"{name}.svg")


if __name__ == "__main__":
    main()
