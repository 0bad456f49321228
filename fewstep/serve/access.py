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

OPEN = frozenset({"/", "/frontend/settings", "/health", "/healthz", "/languages"})
"""Paths that need no token and have no rate: the page, which holds no data, the probes of load balancers, and the languages and
limits, for which clients of LibreTranslate ask without a token."""
FORMS = frozenset({"/translate", "/detect", "/v2/translate"})
"""Paths that take forms as well as JSON."""
MULTIPART = b"multipart/form-data"
KEYED = frozenset({"/translate", "/detect"})
"""Paths whose clients may have the token in the body."""
KEY_BYTES = 64 << 10
"""Size of a body that is read although the head of its request has no token."""
KEY_IN_BODY = "fewstep.key_in_body"
"""The key of a request's scope that is true if the token is still to be found in the body, or in a form behind the path."""
SCHEMES = (b"bearer", b"deepl-auth-key")
"""The word in front of the token in the header `Authorization`."""
MAX_CLIENTS = 10_000
"""Client addresses that are remembered."""


class Access:
    """An ASGI application that passes permitted requests to another one, those for `OPEN` paths to a second one."""

    def __init__(
        self, application: Application, opened: Application, settings: Settings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._application = application
        self._opened = opened
        self._settings = settings
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
            if not _may_have_key(scope):
                detail = "expected the header 'Authorization: Bearer TOKEN' with the token of this server"
                # Clients of DeepL take 403, and no other status, for a wrong key.
                return 403 if scope["path"].startswith("/v2/") else 401, detail, [(b"www-authenticate", b"Bearer")]
            scope[KEY_IN_BODY] = True
        return self._refused_type(scope) if scope["method"] == "POST" else None

    def _refused_type(self, scope: Scope) -> tuple[int, str, Headers] | None:
        """Return the answer to a body that is neither JSON nor a permitted form.

        Pages of other sites cannot send JSON unless the server agrees (`cors_origins`). They can send forms.
        """
        if _is_json(header(scope, b"content-type")):
            return None
        if scope["path"] not in FORMS or not (is_form(scope) or is_form_in_url(scope)):
            detail = "content-type: expected application/json, got another type or none; send the header 'Content-Type"
            return 415, f"{detail}: application/json' (curl -H 'Content-Type: application/json')", ()
        origin = header(scope, b"origin")
        if origin is None or self._is_permitted(origin) or origin.partition(b"://")[2] == header(scope, b"host"):
            return None
        return 403, "Origin: expected this server, got another site; forms of its pages are not answered", ()

    def _is_permitted(self, origin: bytes) -> bool:
        """Return whether pages of a site may use the server."""
        origins = self._settings.cors_origins
        return "*" in origins or origin.decode("latin-1") in origins

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
        if origin is not None and not self._is_permitted(origin) and not self._is_own(_host_name(origin)):
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
        return scheme.lower() in SCHEMES and hmac.compare_digest(token.strip(), self._token)


def _may_have_key(scope: Scope) -> bool:
    """Return whether a request without a token in its head may have one in its body, which is small."""
    if scope["method"] != "POST" or scope["path"] not in KEYED or header(scope, b"authorization") is not None:
        return False
    length = header(scope, b"content-length") or b""
    short = length.isdigit() and 0 < int(length) <= KEY_BYTES and header(scope, b"transfer-encoding") is None
    return short or is_form_in_url(scope)


def _host_name(url: bytes) -> str | None:
    try:
        return urlsplit(url.decode("ascii")).hostname
    except ValueError:
        return None


def is_form(scope: Scope) -> bool:
    """Return whether the body of a request is a form."""
    return _kind(header(scope, b"content-type")) in (b"application/x-www-form-urlencoded", MULTIPART)


def is_form_in_url(scope: Scope) -> bool:
    """Return whether a request has no body, but fields behind its path, as some clients of LibreTranslate send them."""
    empty = (header(scope, b"content-length") or b"0") == b"0" and header(scope, b"transfer-encoding") is None
    return empty and scope["path"] in KEYED and bool(scope.get("query_string"))


def _kind(content_type: bytes | None) -> bytes:
    return (content_type or b"").partition(b";")[0].strip().lower()


def _is_json(content_type: bytes | None) -> bool:
    kind = _kind(content_type)
    return kind == b"application/json" or (kind.startswith(b"application/") and kind.endswith(b"+json"))


class Rates:
    """A token bucket for each client address: `burst` requests at once, `rate` per second in the long run."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
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
