"""Transformers that write their target step by step: one network, orders of generation as data."""
