"""Layers, objectives and the common parts of decoders, which several families share."""
