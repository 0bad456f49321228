"""Directed Acyclic Transformer (Huang et al. 2022): one pass writes a graph of tokens, whose paths are the translations."""
