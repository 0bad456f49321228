"""Objectives over large vocabularies, computed without holding all logits."""
