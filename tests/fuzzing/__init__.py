"""Mutated files of systems and stores: their readers have to answer or to refuse."""
