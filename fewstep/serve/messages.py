"""ASGI messages: whole answers in JSON, and the type of applications."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]


async def send_error(send: Send, status: int, detail: str, headers: Headers = ()) -> None:
    """Send an answer `{"detail": ...}`."""
    body = json.dumps({"detail": detail}).encode()
    described = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": described})
    await send({"type": "http.response.body", "body": body})


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return the first header of this lower-case name, or None."""
    return next((value for key, value in scope["headers"] if key == name), None)
