"""Greedy search, beam search and sampling with a network in torch."""
