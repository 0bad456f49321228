"""Mutated files: every file of a system and of a store is flipped, cut, spliced or edited, and its readers have to answer or refuse."""
