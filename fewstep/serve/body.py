"""Limits on the body of a request: its size, its time and its encoding.

The body is read whole before the application answers. A server that answers an early part of a request and closes the connection
makes the kernel reset it, and the client, still sending, never sees the answer; therefore the rest of a body that is too large is
read and dropped.
"""

from __future__ import annotations

import asyncio

from fewstep.serve.messages import Application, Message, Receive, Scope, Send, header, send_error
from fewstep.serve.settings import Settings

MAX_DROPPED = 256 << 20
"""Bytes of a body that is too large that are read and dropped before the answer."""
GRACE_SECONDS = 5.0
"""Seconds after which the rate of a body counts."""
MIN_BYTES_PER_SECOND = 1000
"""Lowest rate at which a body may arrive."""
CLOSE = [(b"connection", b"close")]


class HungUpError(Exception):
    """The client closed the connection before its request was complete."""


class TooLargeError(Exception):
    """The body exceeds the limit."""


class BodyLimit:
    """An ASGI application that passes requests with acceptable bodies to another one."""

    def __init__(self, application: Application, settings: Settings) -> None:
        self._application = application
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 400, 408 or 413, or let the application answer."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        try:
            body = await self._read(scope, receive)
            body.decode("utf-8")
        except HungUpError:
            return
        except TimeoutError:
            seconds = self._settings.body_seconds
            rate = MIN_BYTES_PER_SECOND
            detail = f"body: expected it within {seconds:g} s and at least {rate} bytes/s, got a part; send it faster"
            await send_error(scope, send, 408, detail, CLOSE)
        except TooLargeError:
            limit = self._settings.max_request_bytes
            detail = f"body: expected at most {limit} bytes, got more; send several requests"
            await send_error(scope, send, 413, detail, CLOSE)
        except UnicodeDecodeError as error:
            found = f"the byte 0x{error.object[error.start]:02x} at position {error.start}"
            await send_error(scope, send, 400, f"body: expected UTF-8, got {found}")
        else:
            await self._application(scope, replay(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        limit = self._settings.max_request_bytes
        parts = []
        size = 0
        if _announced(scope) > limit and header(scope, b"expect") is not None:
            raise TooLargeError  # the client has not begun to send
        more = True
        start = asyncio.get_running_loop().time()
        clock = self._settings.body_seconds
        while more and size <= MAX_DROPPED:
            async with asyncio.timeout_at(start + min(clock, GRACE_SECONDS + size / MIN_BYTES_PER_SECOND)):
                message = await receive()
            if message["type"] == "http.disconnect":
                raise HungUpError
            size += len(message.get("body", b""))
            if size <= limit:
                parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        if size > limit:
            raise TooLargeError
        return b"".join(parts)


def _announced(scope: Scope) -> int:
    length = header(scope, b"content-length")
    return int(length) if length is not None and length.isdigit() else 0


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a function that gives the body first, in one message, and what `receive` gives afterwards."""
    waiting = [body]

    async def replayed() -> Message:
        return {"type": "http.request", "body": waiting.pop(), "more_body": False} if waiting else await receive()

    return replayed
