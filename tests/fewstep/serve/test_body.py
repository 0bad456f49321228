"""Bodies that are too large, too slow or no text are answered; no connection is dropped."""

import asyncio
import json

import pytest

from fewstep.serve import body
from fewstep.serve.body import BodyLimit
from fewstep.serve.settings import Settings

SETTINGS = Settings(max_request_bytes=10, body_seconds=0.2)


async def echo(scope, receive, send):
    """Answer with the body, after which the client hangs up."""
    message = await receive()
    assert (await receive())["type"] == "http.disconnect"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


def ask(*parts, headers=(), settings=SETTINGS, silent=False):
    """Return the status and the body of the answer to a request in parts, and the number of parts that were not read."""
    waiting = [{"type": "http.request", "body": part, "more_body": True} for part in parts[:-1]]
    waiting += [{"type": "http.request", "body": part, "more_body": silent} for part in parts[-1:]]
    sent = []

    async def receive():
        if waiting:
            return waiting.pop(0)
        if silent:
            await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    asyncio.run(BodyLimit(echo, settings)({"type": "http", "path": "/explain", "headers": list(headers)}, receive, send))
    if not sent:
        return None, b"", len(waiting)
    return sent[0]["status"], sent[1]["body"], len(waiting)


def test_a_body_in_parts_arrives_whole():
    assert ask(b"01234", b"", b"56789") == (200, b"0123456789", 0)


def test_a_body_beyond_the_limit_is_read_to_its_end_before_the_answer():
    status, answer, unread = ask(b"01234", b"567890", b"x", b"y")
    assert (status, unread) == (413, 0)
    assert json.loads(answer) == {"detail": "body: expected at most 10 bytes, got more; send several requests"}


def test_a_client_that_waits_for_permission_is_refused_before_it_sends():
    status, _, unread = ask(b"x" * 11, headers=[(b"content-length", b"11"), (b"expect", b"100-continue")])
    assert (status, unread) == (413, 1)


def test_a_body_without_end_is_answered(monkeypatch):
    monkeypatch.setattr(body, "MAX_DROPPED", 50)
    status, _, unread = ask(*[b"0123456789"] * 100)
    assert (status, unread) == (413, 94)


def test_a_body_that_stops_is_answered_after_a_while():
    status, answer, _ = ask(b"0123", silent=True)
    assert status == 408
    assert b"expected it within 0.2 s" in answer


def test_a_client_that_hangs_up_within_its_body_gets_no_answer():
    assert ask(b"01", b"23")[0] == 200

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        raise AssertionError(message)

    asyncio.run(BodyLimit(echo, SETTINGS)({"type": "http", "headers": []}, receive, send))


@pytest.mark.parametrize(
    ("sent", "place"), [(b"ab\xff", "0xff at position 2"), (b"\xc3", "0xc3 at position 0"), (b"\xed\xa0\x80", "0xed")]
)
def test_bytes_that_are_not_text_are_named(sent, place):
    status, answer, _ = ask(sent)
    assert status == 400
    assert place in json.loads(answer)["detail"]


def test_a_body_has_a_least_rate(monkeypatch):
    """A part now and then does not hold a connection for the whole time of a body."""
    monkeypatch.setattr(body, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(body, "MIN_BYTES_PER_SECOND", 100)
    sent, asked = [], 0

    async def receive():
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.04)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message):
        sent.append(message)

    settings = Settings(body_seconds=60)
    asyncio.run(BodyLimit(echo, settings)({"type": "http", "path": "/explain", "headers": []}, receive, send))
    assert sent[0]["status"] == 408
    assert asked < 10
