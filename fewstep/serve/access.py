"""Access to a server: the names of a loopback server, the bearer token, the rate of requests by client address, the content type.

All of this is decided by the head of a request, before its body is read.
"""

from __future__ import annotations

import hmac
import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import urlsplit

from fewstep.serve.messages import Application, Headers, Receive, Scope, Send, header, refuse
from fewstep.serve.settings import Settings

OPEN = frozenset({"/", "/healthz"})
"""Paths that need no token and have no rate: the page, which holds no data, and the probe of load balancers."""
MAX_CLIENTS = 10_000
"""Client addresses that are remembered."""


class Access:
    """An ASGI application that passes permitted requests to another one, those for `OPEN` paths to a second one."""

    def __init__(
        self, application: Application, opened: Application, settings: Settings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._application, self._opened, self._settings = application, opened, settings
        self._token = None if settings.token is None else settings.token.encode()
        rate = settings.requests_per_second
        self._rates = None if rate is None else Rates(rate, settings.burst, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, 403, 415, 421 or 429, or let one of the applications answer."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
        elif refusal := self._refusal(scope):
            await refuse(scope, receive, send, *refusal)
        else:
            await (self._opened if scope["path"] in OPEN else self._application)(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str, Headers] | None:
        """Return the status, the message and the headers of the answer to a request that is not permitted."""
        if foreign := self._foreign(scope):
            return *foreign, ()
        if scope["path"] in OPEN:
            return None
        if wait := self._rates.wait((scope.get("client") or ("",))[0]) if self._rates else 0.0:
            detail = f"too many requests from this address; try again in {wait:.1f} s"
            return 429, detail, [(b"retry-after", str(math.ceil(wait)).encode())]
        if not self._permitted(header(scope, b"authorization")):
            detail = "expected the header 'Authorization: Bearer TOKEN' with the token of this server"
            return 401, detail, [(b"www-authenticate", b"Bearer")]
        if scope["method"] == "POST" and not _is_json(header(scope, b"content-type")):
            # Pages of other sites cannot send this type unless the server agrees, which it never does.
            detail = "content-type: expected application/json, got another type or none; send the header 'Content-Type"
            return 415, f"{detail}: application/json' (curl -H 'Content-Type: application/json')", ()
        return None

    def _foreign(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and the message for a request that a page of another site makes to a loopback server without a token.

        A site may let its own name lead to 127.0.0.1 (DNS rebinding): the browser then takes the server for a part of the site.
        """
        if self._token is not None or not self._settings.is_loopback:
            return None
        expected = f"expected localhost or {self._settings.host}"
        host, origin = header(scope, b"host"), header(scope, b"origin")
        if host is not None and not self._is_own(_host_name(b"//" + host)):
            return 421, f"Host: {expected}, got another name; use that address, or start the server with a token"
        if origin is not None and not self._is_own(_host_name(origin)):
            return 403, f"Origin: {expected}, got another site; requests of its pages are not answered"
        return None

    def _is_own(self, name: str | None) -> bool:
        if name in ("localhost", self._settings.host.lower()):
            return True
        try:
            return ipaddress.ip_address(name or "").is_loopback
        except ValueError:
            return False

    def _permitted(self, given: bytes | None) -> bool:
        if self._token is None:
            return True
        scheme, _, token = (given or b"").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)


def _host_name(url: bytes) -> str | None:
    try:
        return urlsplit(url.decode("ascii")).hostname
    except ValueError:
        return None


def _is_json(content_type: bytes | None) -> bool:
    kind = (content_type or b"").partition(b";")[0].strip().lower()
    return kind == b"application/json" or (kind.startswith(b"application/") and kind.endswith(b"+json"))


class Rates:
    """A token bucket for each client address: `burst` requests at once, `rate` per second in the long run."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float]) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Count a request. Return 0 if it is permitted, else the seconds until the next one is."""
        now = self._clock()
        level, since = self._buckets.pop(client, (float(self._burst), now))
        level = min(float(self._burst), level + (now - since) * self._rate)
        permitted = level >= 1
        self._buckets[client] = (level - permitted, now)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if permitted else (1 - level) / self._rate
