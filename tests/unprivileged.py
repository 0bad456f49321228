"""Tests of permissions for root, whom they do not bind."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

VERSION = 0x20080522
OVERRIDES = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (capabilities(7))."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


@contextmanager
def unprivileged() -> Iterator[None]:
    """Let the modes of files bind this thread, also if it is root's. Skip the test where that is impossible."""
    libc, header, data = ctypes.CDLL(None, use_errno=True), _Header(VERSION, 0), (_Data * 2)()
    if libc.capget(ctypes.byref(header), data):
        pytest.skip(f"the capabilities cannot be read: {os.strerror(ctypes.get_errno())}")
    before = data[0].effective
    data[0].effective = before & ~OVERRIDES
    if libc.capset(ctypes.byref(header), data):
        pytest.skip(f"the capabilities cannot be changed: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        data[0].effective = before
        libc.capset(ctypes.byref(header), data)
