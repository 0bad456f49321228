"""Directed Acyclic Transformers, which write a graph of vertices at once (Huang et al. 2022)."""
