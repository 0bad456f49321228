"""Greedy search, beam search and sampling in torch, in buffers of fixed shapes, on any device."""
