"""A server that speaks OpenAI's protocol, as a translator of texts: requests, their repetition, and the tokens that they take.

Answers are untrusted: their size and time are limited, redirections are not followed, and the key is in no message.
"""

from __future__ import annotations

import json
import math
import os
import random
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import requests
from requests.exceptions import InvalidSchema, InvalidURL, MissingSchema
from urllib3.exceptions import HTTPError

from fewstep.answers import limit_answers
from fewstep.patience import Patience, SlowError, waited_for
from stages.errors import DataError, TransientError
from stages.external import ExternalConfig
from stages.external.prompts import Answer, estimate, prompt, translation

AGAIN = frozenset({408, 409, 425, 429})
"""Statuses below 500 after which a request is repeated."""
REJECTED = frozenset({400, 413, 422})
"""Statuses of a text that the server does not take, such as one that is too long."""
CONNECT_SECONDS = 10.0
FIRST_WAIT_SECONDS = 0.5
"""Seconds in front of the first repetition; they double each time."""
MAX_WAIT_SECONDS = 60.0
"""Most seconds in front of a repetition."""
MAX_RETRY_AFTER_SECONDS = 600.0
"""Most seconds that a server may ask to wait (`Retry-After`)."""
BYTES_OF_A_TOKEN = 64
"""Bytes of an answer for each of its tokens, JSON included."""
MIN_ANSWER_BYTES = 256 << 10
"""Bytes that every answer may have."""
BLOCK = 64 << 10
SHOWN = 200
"""Characters of a server's message that are shown."""


class _RepeatError(Exception):
    """A request may succeed if it is repeated, not before a number of seconds."""

    def __init__(self, reason: str, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.seconds = seconds


class _Key(requests.auth.AuthBase):
    """The key of a request. Being `auth`, it takes precedence over `~/.netrc`."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request


class Server:
    """The server of a language model. `ask` may be called by several threads."""

    def __init__(self, config: ExternalConfig, sleep: Callable[[float], object] = time.sleep) -> None:
        """Raise DataError for an environment variable that is missing."""
        self._config = config
        assert config.openai is not None
        self._options = config.openai
        self._sleep = sleep
        self._key = _key(self._options.key_variable)
        self._local = threading.local()
        path = "chat/completions" if self._options.protocol == "chat" else "completions"
        self._url = f"{self._options.url.rstrip('/')}/{path}"

    def ask(self, text: str) -> Answer:
        """Return the answer for a text. A server that writes fewer outputs than asked for is asked again for the others.

        Raises TransientError if all tries of a request fail, DataError for a request that no try mends.
        """
        answer = self._ask(text, self._config.n_best)
        while answer.outputs and (missing := self._config.n_best - len(answer.outputs)) > 0:
            more = self._ask(text, missing)
            if more.problem:
                break
            cut = (*answer.cut, *(len(answer.outputs) + index for index in more.cut))
            prompt_tokens, answer_tokens = answer.prompt_tokens + more.prompt_tokens, answer.answer_tokens + more.answer_tokens
            answer = Answer([*answer.outputs, *more.outputs], prompt_tokens, answer_tokens, cut=cut)
        return answer

    def _ask(self, text: str, outputs: int) -> Answer:
        """Return the answer to a request for a number of outputs, which may have fewer."""
        body = self._body(text, outputs)
        wait = FIRST_WAIT_SECONDS
        for attempt in range(self._options.retries + 1):
            try:
                return self._answer(*self._post(body), text, outputs)
            except _RepeatError as error:
                if attempt == self._options.retries:
                    tries = f"{attempt + 1} tries" if attempt else "1 try"
                    raise TransientError(
                        f"teacher.openai: {self._url}: expected an answer, got after {tries}: {self._shown(str(error))}; the "
                        "answers so far are kept"
                    ) from None
                self._sleep(max(error.seconds, wait * random.uniform(0.5, 1.0)))
                wait = min(2 * wait, MAX_WAIT_SECONDS)
        raise AssertionError

    def _body(self, text: str, outputs: int) -> bytes:
        options = self._options
        asked = prompt(self._config, text)
        body: dict[str, Any] = {
            "model": options.model,
            "max_tokens": options.max_tokens,
            "temperature": options.temperature,
            "top_p": options.top_p,
            "n": outputs,
        }
        body |= {"messages": [{"role": "user", "content": asked}]} if options.protocol == "chat" else {"prompt": asked}
        if options.output == "json":
            body["response_format"] = {"type": "json_object"}
        return json.dumps(body).encode()

    def _post(self, body: bytes) -> tuple[int, bytes]:
        """Return the status and the content of an answer. Raises _RepeatError for one that does not arrive whole in time."""
        with closing(waited_for(self._asked(self._session(), body), Patience(self._options.timeout_seconds))) as answers:
            try:
                return next(answers)
            except SlowError:
                del self._local.session  # the other thread may wait with it
                raise _RepeatError(f"an answer that is not complete after {self._options.timeout_seconds:g} s") from None

    def _asked(self, session: requests.Session, body: bytes) -> Generator[tuple[int, bytes], None, None]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        try:
            with session.post(
                self._url,
                data=body,
                headers=headers,
                auth=_Key(self._key),
                timeout=(CONNECT_SECONDS, self._options.timeout_seconds),
                allow_redirects=False,
                stream=True,
            ) as response:
                if response.status_code in AGAIN or response.status_code >= 500:
                    raise _RepeatError(f"status {response.status_code}", _retry_after_seconds(response.headers.get("Retry-After")))
                yield response.status_code, self._content(response)
        except (InvalidURL, InvalidSchema, MissingSchema):
            raise DataError(f"teacher.openai.url: expected an http or https address, got {self._options.url}") from None
        except (requests.RequestException, HTTPError, OSError) as error:
            raise _RepeatError(f"{type(error).__name__}: {error}") from None

    def _content(self, response: requests.Response) -> bytes:
        limit = MIN_ANSWER_BYTES + BYTES_OF_A_TOKEN * self._options.max_tokens * self._config.n_best
        content = bytearray()
        while block := response.raw.read1(BLOCK):
            content += block
            if len(content) > limit:
                raise _RepeatError(f"an answer of more than {limit} bytes")
        return bytes(content)

    def _answer(self, status: int, content: bytes, text: str, number: int) -> Answer:
        if status in REJECTED:
            return Answer([], 0, 0, f"status {status}: {self._shown(content.decode('utf-8', 'replace'))}")
        if status != 200:
            found = self._shown(content.decode("utf-8", "replace"))
            remedy = "check the key" if status in (401, 403) else "check url, model and protocol"
            raise DataError(f"teacher.openai: {self._url}: expected an answer, got status {status}: {found}; {remedy}")
        try:
            value = json.loads(content)
            choices = value["choices"][:number]
            outputs: list[str | None] = [_text(choice) for choice in choices]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _RepeatError(f"no JSON of the protocol ({type(error).__name__})") from None
        if not outputs:
            raise _RepeatError("no choices")
        if self._options.output == "json":
            outputs = [output and translation(output) for output in outputs]
        asked, answered = estimate(self._config, [text])
        usage = value.get("usage")
        prompt_tokens = _count(usage, "prompt_tokens", math.ceil(asked))
        answer_tokens = _count(usage, "completion_tokens", math.ceil(answered * len(outputs) / self._config.n_best))
        cut = tuple(index for index, choice in enumerate(choices) if choice.get("finish_reason") == "length")
        return Answer(outputs, prompt_tokens, answer_tokens, cut=cut)

    def _session(self) -> requests.Session:
        if not hasattr(self._local, "session"):
            self._local.session = requests.Session()
            for adapter in self._local.session.adapters.values():
                limit_answers(adapter)
        session: requests.Session = self._local.session
        return session

    def _shown(self, message: str) -> str:
        masked = message.replace(self._key, "***") if self._key else message
        return repr(masked if len(masked) <= SHOWN else f"{masked[:SHOWN]}...")


def _key(variable: str) -> str:
    if not variable:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise DataError(
            f"teacher.openai.key_variable: expected the key in the environment variable {variable}, got none; set it on every "
            "machine that asks the server"
        )
    if not (key.isascii() and key.isprintable()):
        raise DataError(f"teacher.openai.key_variable: expected printable ASCII characters in {variable}, got others")
    return key


def _retry_after_seconds(value: str | None) -> float:
    """Return the seconds that a header `Retry-After` asks for, a number or a date; 0 for none."""
    if not value:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS) if math.isfinite(seconds) else 0.0


def _text(choice: Any) -> str:
    """Return the text of a choice, of either protocol, empty for null. Raises TypeError and KeyError for others."""
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    if text is not None and not isinstance(text, str):
        raise TypeError("expected text")
    return text or ""


def _count(usage: Any, name: str, otherwise: int) -> int:
    """Return a number of tokens that the server states, or an estimate where it states none."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and 0 <= value < 1 << 40 else otherwise
