"""Clients that each ask a server, wait for its answer, and ask again."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import numpy as np


@dataclass(frozen=True)
class Target:
    """A server, and its requests."""

    url: str
    body: Callable[[str], Mapping[str, Any]]
    """Return the JSON of the request that translates a line."""


@dataclass
class Load:
    """The answers that clients had."""

    seconds: float
    milliseconds: list[float] = field(default_factory=list)
    """Time of each answer, from the request to the last byte."""
    errors: Counter[str] = field(default_factory=Counter)
    """Number of other answers and of broken connections, by status or error."""

    def percentile(self, share: float) -> float:
        """Return the time that this share of the answers did not exceed; NaN without answers."""
        return float(np.quantile(self.milliseconds, share)) if self.milliseconds else math.nan

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.milliseconds) / self.seconds


def drive(target: Target, lines: Sequence[str], *, clients: int, seconds: float, seed: int = 1) -> Load:
    """Let clients ask for random lines for some seconds. Each has one connection and one request in flight."""
    return asyncio.run(_drive(target, lines, clients, seconds, seed))


async def _drive(target: Target, lines: Sequence[str], clients: int, seconds: float, seed: int) -> Load:
    load = Load(seconds)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(_ask_on(session, target, lines, random.Random(seed + one), end, load) for one in range(clients)))
    return load


async def _ask_on(
    session: aiohttp.ClientSession, target: Target, lines: Sequence[str], draw: random.Random, end: float, load: Load
) -> None:
    while (begin := time.perf_counter()) < end:
        try:
            async with session.post(target.url, json=target.body(draw.choice(lines))) as answer:
                await answer.read()
        except aiohttp.ClientError as error:
            load.errors[type(error).__name__] += 1
            continue
        if answer.status == 200:
            load.milliseconds.append(1000 * (time.perf_counter() - begin))
        else:
            load.errors[str(answer.status)] += 1
