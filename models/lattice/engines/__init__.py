"""Engines that decode a lattice network."""
