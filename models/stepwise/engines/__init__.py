"""Engines that decode a stepwise network."""
