"""Requests of the clients of other servers: forms in place of JSON, and tokens in the body.

A form is passed on as JSON with the same fields, so that one description of a request holds for both.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

from fewstep.serve.access import KEY_IN_BODY, MULTIPART, is_form, is_form_in_url
from fewstep.serve.body import replay
from fewstep.serve.messages import Application, Receive, Scope, Send, header, send_error
from fewstep.serve.settings import Settings

MAX_FIELDS = 2_000
KEY = "api_key"
"""The field with the token in requests of LibreTranslate's clients."""
_BOUNDARY = re.compile(r"""boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
_NAME = re.compile(r"""^content-disposition:[^\r\n]*[;\s]name="([^"\r\n]*)\"""", re.IGNORECASE | re.MULTILINE)
_FILE = re.compile(r"""^content-disposition:[^\r\n]*[;\s]filename\*?=""", re.IGNORECASE | re.MULTILINE)
LISTS = frozenset({"text"})
"""Fields that are lists even if they occur once."""


class Forms:
    """An ASGI application that passes requests to another one, forms as JSON. A request without a token in its head must have the
    right one in its body. The body must arrive in one message."""

    def __init__(self, application: Application, settings: Settings) -> None:
        self._application = application
        self._token = (settings.token or "").encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 400, 401 or 403, or let the application answer."""
        posted = scope["type"] == "http" and scope["method"] == "POST"
        in_url = posted and is_form_in_url(scope)
        form = in_url or (posted and is_form(scope))
        if not form and not scope.get(KEY_IN_BODY):
            await self._application(scope, receive, send)
            return
        body: bytes = (await receive())["body"]
        fields: Any
        try:
            content = scope["query_string"] if in_url else body
            fields = _fields(_pairs(content, header(scope, b"content-type") or b"")) if form else json.loads(body)
        except (ValueError, RecursionError) as error:
            if form:
                detail = f"body: expected a form of at most {MAX_FIELDS} fields, as the content-type says, got: {error}"
                await send_error(scope, send, 400, f"{detail}; for JSON send the header 'Content-Type: application/json'")
                return
            fields = None  # no JSON has no token either
        if refusal := self._refusal(fields) if scope.get(KEY_IN_BODY) else None:
            await send_error(scope, send, *refusal)
            return
        if form:
            if scope["path"] == "/translate":
                fields.setdefault("q", "")  # the server's own requests are no forms
            body = json.dumps(fields).encode()
            scope = {**scope, "headers": [*_others(scope), (b"content-type", b"application/json")]}
        await self._application(scope, replay(body, receive), send)

    def _refusal(self, fields: Any) -> tuple[int, str] | None:
        """Return the status and the message of the answer to a request whose fields lack the token."""
        key = fields.get(KEY) if isinstance(fields, Mapping) else None
        if key is None:
            return 401, f"expected the token of this server in the header 'Authorization: Bearer TOKEN', or as {KEY}"
        if not isinstance(key, str) or not hmac.compare_digest(key.encode("utf-8", "replace"), self._token):
            return 403, f"{KEY}: expected the token of this server, got another one"
        return None


def _pairs(body: bytes, content_type: bytes) -> list[tuple[str, str]]:
    """Return the fields of a form in their order. Raises ValueError for no form and for too many fields."""
    if content_type.lower().startswith(MULTIPART):
        return list(_parts(body, content_type.decode("latin-1")))
    return parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body), errors="strict", max_num_fields=MAX_FIELDS)


def _parts(body: bytes, content_type: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a form in parts (RFC 7578). Raises ValueError for no such form, files and too many fields."""
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        raise ValueError("no boundary")
    delimiter = f"\r\n--{boundary[1] or boundary[2]}".encode("latin-1")
    if body.count(delimiter) > MAX_FIELDS:
        raise ValueError("more fields")
    _, *parts = (b"\r\n" + body).split(delimiter)
    if not parts or not parts.pop().startswith(b"--"):
        raise ValueError("no end of the last part")
    for part in parts:
        head, separator, value = part.partition(b"\r\n\r\n")
        named = _NAME.search(head.decode())
        if not separator or named is None:
            raise ValueError("a part without a name")
        if _FILE.search(head.decode()):
            raise ValueError(f"the file {named[1]!r:.80}")
        yield named[1], value.decode()


def _fields(pairs: Iterable[tuple[str, str]]) -> dict[str, str | list[str]]:
    """Return the fields of a form by name, repeated ones as lists."""
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 and name not in LISTS else values for name, values in found.items()}


def _others(scope: Scope) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in scope["headers"] if name not in (b"content-type", b"content-length")]
