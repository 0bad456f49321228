"""Observation of a server: it counts requests, and asks clients to close their connections while it drains."""

from __future__ import annotations

import time

from fewstep.serve.messages import Application, Message, Receive, Scope, Send
from fewstep.serve.metrics import Metrics

PATHS = frozenset(
    {
        "/",
        "/translate",
        "/explain",
        "/systems",
        "/languages",
        "/detect",
        "/v2/translate",
        "/health",
        "/healthz",
        "/metrics",
        "/openapi.json",
    }
)
"""Paths that are counted by name; all others are counted together."""


class Observer:
    """An ASGI application that counts the answers of another one."""

    def __init__(self, application: Application, metrics: Metrics) -> None:
        self._application = application
        self._metrics = metrics
        self.draining = False

    def drain(self) -> None:
        """Ask clients to close their connections from now on."""
        self.draining = True
        self._metrics.draining.set(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        start = time.perf_counter()
        status = 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.draining:
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        scope["fewstep.draining"] = self.draining
        try:
            await self._application(scope, receive, counted)
        finally:
            # Without an answer the client has closed the connection.
            if status:
                path = scope["path"] if scope["path"] in PATHS else "other"
                self._metrics.request(path, status, time.perf_counter() - start)
            else:
                self._metrics.hung_up.inc()
