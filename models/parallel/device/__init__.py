"""Slots that are ranked and filled in buffers of fixed shapes, for decoding on GPUs."""
