"""Triton counterparts of the kernels that training and decoding on a GPU need.

They run on the current stream and never stop a device.
"""
