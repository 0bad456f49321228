"""ASGI messages: whole answers in JSON, and the type of applications."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]


ERROR_NAMES = {
    "/translate": ("detail", "error"),
    "/detect": ("error",),
    "/v2/glossary-language-pairs": ("message",),
    "/v2/languages": ("message",),
    "/v2/translate": ("message",),
}
"""The names under which the clients of a path read the message of an error; those of all other paths read `detail`."""


def problem(path: str, detail: str) -> dict[str, str]:
    """Return the content of an answer with an error status."""
    return dict.fromkeys(ERROR_NAMES.get(path, ("detail",)), detail)


async def send_error(scope: Scope, send: Send, status: int, detail: str, headers: Headers = (), last: bool = True) -> None:
    """Send an answer with an error status (`problem`), its end only if it is the `last` message."""
    body = json.dumps(problem(scope["path"], detail)).encode()
    described = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": described})
    await send({"type": "http.response.body", "body": body, "more_body": not last})


LINGER_BYTES = 64 << 10
"""Bytes of a body that are read and dropped after a refusal."""
LINGER_SECONDS = 1.0
"""Seconds in which they may arrive."""


async def refuse(scope: Scope, receive: Receive, send: Send, status: int, detail: str, headers: Headers = ()) -> None:
    """Send an answer with an error status (`problem`) before the body of the request is read.

    The kernel resets a connection that is closed while the client still sends, and the client may not see the answer. A short body
    is therefore dropped before the answer ends. The connection of another one, which has no end or is split into small chunks, is
    closed.
    """
    length = header(scope, b"content-length") or b"0"
    short = header(scope, b"transfer-encoding") is None and length.isdigit() and int(length) <= LINGER_BYTES
    close = () if short else ((b"connection", b"close"),)
    await send_error(scope, send, status, detail, (*headers, *close), last=False)
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            await _drop(receive)
    await send({"type": "http.response.body", "body": b""})


async def _drop(receive: Receive) -> None:
    size = 0
    more = True
    while more and size <= LINGER_BYTES:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return the first header of this lower-case name, or None."""
    return next((value for key, value in scope["headers"] if key == name), None)
