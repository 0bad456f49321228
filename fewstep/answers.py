"""Answers of web servers: a limit on their bytes beside the content.

Informational answers, headers, extensions of chunks and trailers may be of any number in HTTP/1.1, and the libraries read them
without an end, each a line of at most 64 KiB.
"""

from __future__ import annotations

import io
from functools import cache
from http.client import HTTPResponse
from typing import Any

from fewstep.patience import GivenUpError

MAX_BYTES_BESIDE_CONTENT = 1 << 20
"""Bytes of an answer beyond twice its content, its head included."""


class _Counted(io.RawIOBase):
    """The bytes of an answer as they arrive, of which `left` more may do so."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        self.left = MAX_BYTES_BESIDE_CONTENT

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self.left < 0:
            raise GivenUpError(
                f"expected at most {MAX_BYTES_BESIDE_CONTENT:,} bytes beyond twice the content of an answer, got more: headers, "
                "extensions of chunks or trailers"
            )
        size = self._raw.readinto(buffer)
        self.left -= size or 0
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(HTTPResponse):
    """An answer whose content is read by `read1`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._counted = _Counted(self.fp.detach())
        self.fp = io.BufferedReader(self._counted)

    def read1(self, n: int = -1) -> bytes:
        block = super().read1(n)
        self._counted.left += 2 * len(block)
        return block


@cache
def limited(connections: Any) -> Any:
    """Return a class of connections like `connections` whose answers have this limit, and raise GivenUpError beyond it."""
    return type("Limited", (connections,), {"response_class": _Answer})


def limit_answers(adapter: Any) -> None:
    """Let the connections of an adapter of `requests`, or of a class of adapters, have such answers."""
    own = adapter.get_connection_with_tls_context

    def limited_pool(*args: Any, **options: Any) -> Any:
        pool = own(*args, **options)
        if not issubclass(pool.ConnectionCls.response_class, _Answer):
            pool.ConnectionCls = limited(pool.ConnectionCls)
        return pool

    adapter.get_connection_with_tls_context = limited_pool
