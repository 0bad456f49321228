"""Access to a server: the bearer token, and the rate of requests by client address."""

from __future__ import annotations

import hmac
import math
import time
from collections import OrderedDict
from collections.abc import Callable

from fewstep.serve.messages import Application, Receive, Scope, Send, header, send_error
from fewstep.serve.settings import Settings

OPEN = frozenset({"/", "/healthz"})
"""Paths that need no token and have no rate: the page, which holds no data, and the probe of load balancers."""
MAX_CLIENTS = 10_000
"""Client addresses that are remembered."""


class Access:
    """An ASGI application that passes permitted requests to another one."""

    def __init__(self, application: Application, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._application = application
        self._token = None if settings.token is None else settings.token.encode()
        rate = settings.requests_per_second
        self._rates = None if rate is None else Rates(rate, settings.burst, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401 or 429, or let the application answer."""
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._application(scope, receive, send)
        elif wait := self._rates.wait((scope.get("client") or ("",))[0]) if self._rates else 0.0:
            detail = f"too many requests from this address; try again in {wait:.1f} s"
            await send_error(send, 429, detail, [(b"retry-after", str(math.ceil(wait)).encode())])
        elif not self._permitted(header(scope, b"authorization")):
            detail = "expected the header 'Authorization: Bearer TOKEN' with the token of this server"
            await send_error(send, 401, detail, [(b"www-authenticate", b"Bearer")])
        else:
            await self._application(scope, receive, send)

    def _permitted(self, given: bytes | None) -> bool:
        if self._token is None:
            return True
        scheme, _, token = (given or b"").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)


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
