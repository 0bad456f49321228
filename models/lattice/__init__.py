"""Sequence-to-lattice translation (Deng and Rush 2021): counts propose the words of each slot, one pass scores all pairs."""
