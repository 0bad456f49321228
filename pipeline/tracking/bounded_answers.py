"""Limits on the answers of an MLflow server, which MLflow's client reads whole into memory and waits for without an end."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from fewstep.answers import limit_answers
from fewstep.bounded_files import MAX_JSON_VALUES
from fewstep.patience import MIN_JSON_RATE, WAIT_SECONDS, Patience, flowing, waited_for
from pipeline.store.streams import at_most
from stages.errors import StageError

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

MAX_BYTES = 32 << 20
"""Bytes of an answer: those of 1,000 runs with their parameters."""
BLOCK_BYTES = 1 << 16
UPLOAD_SECONDS = 86_400.0
"""Seconds for which the answer to an artifact is waited for, which has to be sent first."""
MAX_PAGES = 100
"""Pages of a list, of 1,000 runs each."""
LIST_SECONDS = 60.0
"""Seconds after which no further page of a list is asked for."""


def bound_answers() -> None:
    """Let MLflow's client refuse answers of more than `MAX_BYTES`, compressed ones, and those that let it wait for more than
    WAIT_SECONDS beside a second for each MIN_JSON_RATE bytes."""
    from mlflow.utils import request_utils

    adapter: Any = request_utils.TCPKeepAliveHTTPAdapter
    own = adapter.send
    if own.__module__ == __name__:
        return

    def send(self: Any, request: PreparedRequest, **options: Any) -> Response:
        return _whole(partial(own, self), request, options)

    adapter.send = send
    limit_answers(adapter)


def _whole(send: Callable[..., Response], request: PreparedRequest, options: dict[str, Any]) -> Response:
    """Return an answer whose content was read. Raises OSError for one that is refused."""
    request.headers["Accept-Encoding"] = "identity"

    def answer() -> Generator[Any, None, None]:
        with closing(send(request, **options)) as response:
            yield response
            while block := response.raw.read1(BLOCK_BYTES, decode_content=False):
                yield block

    patience = Patience(UPLOAD_SECONDS if hasattr(request.body, "read") else WAIT_SECONDS)
    with closing(waited_for(answer(), patience)) as items:
        response: Response = next(items)
        if (coding := response.headers.get("Content-Encoding", "identity")) != "identity":
            raise OSError(f"expected an answer that is not compressed, as it was asked for, got {coding[:100]!r}")
        patience.seconds = min(patience.seconds, WAIT_SECONDS)
        content = b"".join(at_most(MAX_BYTES, flowing(items, patience, MIN_JSON_RATE)))
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_JSON_VALUES:
        raise OSError(f"expected at most {MAX_JSON_VALUES:,} values of JSON, got more")
    response._content, response._content_consumed = content, True
    response.encoding = "utf-8"
    return response


def all_pages(search: Callable[[str | None], Any]) -> Iterator[Any]:
    """Yield the items of all pages of a list, which `search` returns by their tokens. Raises StageError for a list without an
    end."""
    token = None
    started = time.monotonic()
    for _ in range(MAX_PAGES):
        page = search(token)
        yield from page
        token = page.token
        if not token:
            return
        if time.monotonic() - started > LIST_SECONDS:
            break
    raise StageError(
        f"expected at most {MAX_PAGES} pages of a list of MLflow within {LIST_SECONDS:g} s, got a token for another; "
        "name another experiment in tracking.experiment, or check the server"
    )
