"""The settings of a server: where it listens, who may ask, and how much."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::[0-9]+)?")


class ServeError(Exception):
    """A server cannot start because of its arguments: a port in use, a directory that holds no system (exit code 2)."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a server."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8080
    """Port to listen on; 0: any free one."""
    token: str | None = field(default=None, repr=False)
    """Bearer token that requests must carry, except those for the page and `/healthz`; None: no token."""
    without_token: bool = False
    """Whether a server that other machines can reach may do without a token."""
    threads: int | None = None
    """Threads that decode a batch; None: the runtime's default."""
    max_request_bytes: int = 1 << 20
    """Maximum size of a request's body (413)."""
    max_sentences: int = 256
    """Maximum number of sentences in a request (413)."""
    max_characters: int = 10_000
    """Maximum number of characters in a sentence (413)."""
    max_waiting: int = 1024
    """Maximum number of sentences that wait or are being decoded, over all systems (429)."""
    max_batch: int = 32
    """Maximum number of sentences that are decoded together."""
    max_n_best: int = 32
    """Maximum number of translations of a sentence (422)."""
    requests_per_second: float | None = None
    """Requests that one client address may make per second in the long run (429); None: any number."""
    burst: int = 20
    """Requests that one client address may make at once under `requests_per_second`."""
    cors_origins: tuple[str, ...] = ()
    """Sites whose pages may use the server (`https://example.org`), or `*` for all; it has a token then."""
    body_seconds: float = 30.0
    """Seconds in which a client must send the body of its request (408)."""
    notice_seconds: float = 1.0
    """Seconds between SIGTERM and the end of listening: load balancers see `/healthz` fail, and clients are asked to close their
    connections."""
    drain_seconds: float = 30.0
    """Seconds that requests in flight have after the end of listening."""

    def problems(self) -> Iterator[str]:
        """Yield the settings that are not valid."""
        for name in ("max_request_bytes", "max_sentences", "max_characters", "max_batch", "max_n_best", "burst"):
            if getattr(self, name) < 1:
                yield f"{name}: expected at least 1, got {getattr(self, name)}"
        if self.max_waiting < self.max_sentences:
            yield (
                f"max_waiting: expected at least max_sentences ({self.max_sentences}), got {self.max_waiting}; "
                "a full request must fit into the queue"
            )
        if self.requests_per_second is not None and self.requests_per_second <= 0:
            yield f"requests_per_second: expected a positive number, got {self.requests_per_second}"
        if not 0 <= self.port < 1 << 16:
            yield f"port: expected 0 to 65535, got {self.port}"
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            yield "token: expected printable ASCII characters, got others or an empty token"
        for origin in self.cors_origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                yield f"cors_origins: expected sites such as https://example.org or http://localhost:3000, or *, got {origin!r}"
        if "*" in self.cors_origins and self.token is None:
            yield "cors_origins: expected a bearer token (--token-file) for pages of any site, got none; or name the sites"
        if self.token is None and not self.is_loopback and not self.without_token:
            yield (
                f"host: {self.host} can be reached from other machines; expected a bearer token (--token-file), got none; "
                "--without-token serves everyone"
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only processes on this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
