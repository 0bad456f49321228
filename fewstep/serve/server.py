"""A server in one process, with uvicorn: its socket, its start, and its graceful end."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import uvicorn

from fewstep.serve.app import create_app
from fewstep.serve.connections import BACKLOG, Connection
from fewstep.serve.observe import Observer
from fewstep.serve.settings import ServeError, Settings
from fewstep.system.system import System

SIGNALS = (signal.SIGTERM, signal.SIGINT)
MAX_HEADER_BYTES = 64 << 10
ARRIVAL_SECONDS = 0.25
"""Time between the end of listening and the end of idle connections."""


def bind(settings: Settings) -> socket.socket:
    """Return a socket at the address of the settings, not yet listening. Raises ServeError for an address that cannot be used."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ServeError(f"--host: expected an address of this machine, got {settings.host} ({error.strerror})") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)  # now: of two servers that start at the same time, one fails here
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            place = f"{settings.host}:{settings.port}"
            raise ServeError(f"{place}: expected a free port, but another program listens there; stop it, or use --port") from error
        raise ServeError(
            f"{settings.host}:{settings.port}: cannot listen there: {error.strerror}; choose another address"
        ) from error
    return bound


def url(settings: Settings, bound: socket.socket) -> str:
    """Return the address of the server for a browser."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{bound.getsockname()[1]}"


def serve(systems: Mapping[str, System], settings: Settings, bound: socket.socket) -> None:
    """Serve systems until SIGTERM or SIGINT; then answer the requests in flight, and return. A second signal ends it at once."""
    app = create_app(systems, settings)
    # All that uvicorn has an option for is an option here. Two classes replace parts of it: `Connection`, since `limit_concurrency`
    # also refuses the probe, and `timeout_keep_alive` ends with the first byte of a request; and `Graceful`, since uvicorn stops to
    # listen at once and drops connections whose request it has not read.
    config = uvicorn.Config(
        app,
        http=Connection,
        loop="asyncio",
        ws="none",
        access_log=False,
        log_level="error",
        log_config=None,  # the log of fewstep, which escapes foreign text
        server_header=False,
        proxy_headers="FORWARDED_ALLOW_IPS" in os.environ,  # otherwise any local client could choose its address
        backlog=BACKLOG,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_graceful_shutdown=int(settings.drain_seconds),
    )
    Graceful(config, app, settings).run(sockets=[bound])


class Graceful(uvicorn.Server):
    """A server that announces its end before it stops listening."""

    def __init__(self, config: uvicorn.Config, app: Observer, settings: Settings) -> None:
        super().__init__(config)
        self._app = app
        self._settings = settings

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals within the context, and end normally afterwards; uvicorn would raise them again."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._end)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, let requests on connections that were just accepted arrive, and answer all that did.

        By itself uvicorn closes connections whose request it has not read yet, and the kernel those that wait to be accepted.
        """
        waiting = [connection for bound in sockets or () for connection in _waiting(bound)]
        for server in self.servers:
            server.close()
        loop = asyncio.get_running_loop()
        config = self.config
        for connection in waiting:
            await loop.connect_accepted_socket(
                lambda: config.http_protocol_class(  # type: ignore[call-arg]
                    config=config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop
                ),
                connection,
            )
        await asyncio.sleep(ARRIVAL_SECONDS)
        await super().shutdown(sockets)

    def _end(self) -> None:
        if self._app.draining:
            self.should_exit = self.force_exit = True
            return
        self._app.drain()
        asyncio.get_running_loop().call_later(self._settings.notice_seconds, self._stop_listening)

    def _stop_listening(self) -> None:
        self.should_exit = True


def _waiting(bound: socket.socket) -> Iterator[socket.socket]:
    """Yield the connections that wait to be accepted."""
    while True:
        try:
            connection, _ = bound.accept()
        except OSError:
            return
        connection.setblocking(False)
        yield connection
