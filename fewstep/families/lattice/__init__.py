"""Sequence-to-lattice networks, which score the candidates of slots (Deng and Rush 2021)."""
