"""Connections of clients: how long they may be silent, how many there are, and how small the parts of a body may be."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from fewstep.serve.access import OPEN
from fewstep.serve.messages import Application, Receive, Scope, Send, refuse

BACKLOG = 128
"""Connections that the kernel keeps until they are accepted. As many are accepted at once, before any of them is looked at."""
RESERVED_FILES = 32
"""Open files that are no connections."""
SPARE = 16
"""Connections beyond the limit, on which the page and the probe are answered while every other connection has a request in
progress."""
HEAD_SECONDS = 30.0
"""Time from the opening of a connection, or the end of an answer, until the head of the next request is complete."""
WRITE_SECONDS = 30.0
"""Time in which a client must take `WRITE_BYTES` of an answer that waits for it."""
WRITE_BYTES = 30_000
MAX_PARTS = 4096
"""Parts of a body of any size: chunks of a byte cost the server 20 microseconds each."""
PART_BYTES = 64
"""Bytes that parts beyond this number must have on average."""
MAX_FRAMING_BYTES = 1 << 19
"""Bytes beyond twice the body that its parts may take with their extensions, each of which costs the server 30 ms. As many as
256 KiB may have arrived that are not looked at yet."""


def max_connections() -> int:
    """Return the number of connections for which the process may open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(SPARE, min(files, 1 << 16) - RESERVED_FILES - BACKLOG - SPARE)


class Connection(H11Protocol):
    """A connection of uvicorn with limits for clients that are slow on purpose.

    uvicorn closes connections that are silent after an answer, but neither those whose next request has begun nor those that never
    send one.
    """

    limit = max_connections()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = _BoundedParts(h11.SERVER, self.config.h11_max_incomplete_event_size or 64 << 10)
        self._head_due: asyncio.TimerHandle | None = None
        self._write_due: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request. Beyond the limit, close the connection that has waited longest."""
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) <= self.limit:
            return
        waiting = [one for one in self.connections if isinstance(one, Connection) and one is not self and one.is_waiting]
        if waiting:
            min(waiting, key=Connection._due).transport.abort()
        elif len(self.connections) <= self.limit + SPARE:
            self.app = _only_open(self.app)
        else:
            transport.abort()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        for due in (self._head_due, self._write_due):
            if due:
                due.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the client to take what was written. uvicorn waits without an end then, with the next request in progress."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """Stop waiting."""
        if self._write_due:
            self._write_due.cancel()
        super().resume_writing()

    def _await_reader(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._write_due = self.loop.call_later(WRITE_SECONDS, self._check_reader, left)

    def _check_reader(self, before: int) -> None:
        if before - self.transport.get_write_buffer_size() < WRITE_BYTES:
            self.transport.abort()
        else:
            self._await_reader()

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request, or end an answer that has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def _await_head(self) -> None:
        if self._head_due:
            self._head_due.cancel()
        self._head_due = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _due(self) -> float:
        return self._head_due.when() if self._head_due else 0.0

    def _give_up(self) -> None:
        if self.is_waiting and self.flow.write_paused:  # its client still reads the answer, or loses the connection for that
            self._await_head()
        elif self.is_waiting:
            self.transport.abort()


class _BoundedParts(h11.Connection):
    """The parser of a connection, which refuses bodies in many small parts, and parts with much beside the body."""

    _parts = _bytes = _received = 0

    def receive_data(self, data: bytes) -> None:
        """Take bytes of the client, and count them where they are of a body."""
        if self.their_state is h11.SEND_BODY:
            self._received += len(data)
        super().receive_data(data)

    def next_event(self) -> Any:
        """Return the next event. Raises RemoteProtocolError for too many parts, or too much beside the body."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._parts = self._bytes = self._received = 0
        elif isinstance(event, h11.Data):
            self._parts += 1
            self._bytes += len(event.data)
            if self._parts > MAX_PARTS + self._bytes // PART_BYTES:
                raise h11.RemoteProtocolError("body in too small parts")
            if self._received > MAX_FRAMING_BYTES + 2 * self._bytes:
                raise h11.RemoteProtocolError("body in parts with too long headers")
        return event


def _only_open(application: Application) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN:
            await application(scope, receive, send)
        else:
            detail = "too many connections have a request in progress; try again later"
            await refuse(scope, receive, send, 503, detail, [(b"retry-after", b"1"), (b"connection", b"close")])

    return answer
