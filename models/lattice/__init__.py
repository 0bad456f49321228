"""Sequence-to-lattice translation (Deng and Rush 2021): counts propose the tokens of each slot, and one pass scores all pairs."""
