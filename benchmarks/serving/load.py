"""Latency of servers under load: `fewstep serve`, the same server with CTranslate2, and `mlflow models serve`.

    python -m benchmarks.serving.load DIR [DIR ...] [--clients 1 4 16 64] [--seconds 5] [--rounds 3] [--threads 2] [--text FILE]
        [--without-ctranslate2] [--without-mlflow] [--json FILE]

DIR are directories of systems; each is served with its default search. CTranslate2 and MLflow serve the first one, which is
autoregressive for CTranslate2. All servers run at the same time, and the clients ask one after the other, in turns: A B A B ...
Each client has one connection and one request in flight, of one sentence. The clients share the machine with the servers, so that
their work is part of the times. Percentiles are over the requests of all rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from benchmarks.record import publish, spread
from benchmarks.serving.servers import fewstep_server, mlflow_server
from fewstep.system.description import read_description
from stages.shared.embedded import pairs


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


COLUMNS = ("server", "clients", "p50 ms", "p95 ms", "p99 ms", "requests/s", "errors")
CTRANSLATE2 = "benchmarks.serving.ctranslate2_server"
Loads = dict[tuple[str, int], list[Load]]
"""The rounds of each server and number of clients."""


def lines_of(file: Path | None) -> list[str]:
    """Return the lines of a file, by default 200 of the embedded corpus' test text."""
    return file.read_text(encoding="utf-8").splitlines() if file else [source for source, _ in pairs("test", 0, 200)]


def started_targets(stack: ExitStack, arguments: argparse.Namespace) -> dict[str, Target]:
    """Start all servers within a stack of contexts; return where their systems are."""
    described = [read_description(directory, False) for directory in arguments.systems]
    labels = [f"{one['name']} {one['search']}" for one in described]
    url, _ = stack.enter_context(fewstep_server(arguments.systems, arguments.threads))
    found = {label: _fewstep(url, one["name"]) for label, one in zip(labels, described, strict=True)}
    first = arguments.systems[:1]
    if not arguments.without_ctranslate2:
        url, _ = stack.enter_context(fewstep_server(first, arguments.threads, CTRANSLATE2))
        found[f"{labels[0]}, CTranslate2"] = _fewstep(url, described[0]["name"])
    if not arguments.without_mlflow:
        url = stack.enter_context(mlflow_server(first[0]))
        found[f"{labels[0]}, MLflow"] = Target(f"{url}/invocations", lambda line: {"dataframe_records": [{"source": line}]})
    return found


def _fewstep(url: str, system: str) -> Target:
    return Target(f"{url}/translate", lambda line: {"sentences": [line], "systems": [system]})


def measured(targets: Mapping[str, Target], lines: Sequence[str], arguments: argparse.Namespace) -> Loads:
    """Return the loads of all servers and numbers of clients, in interleaved rounds."""
    found: Loads = {}
    for target in targets.values():
        drive(target, lines, clients=2, seconds=min(1.0, arguments.seconds))  # warm up
    for turn in range(arguments.rounds):
        for clients in arguments.clients:
            for name, target in targets.items():
                load = drive(target, lines, clients=clients, seconds=arguments.seconds, seed=1000 * turn)
                found.setdefault((name, clients), []).append(load)
                print(f"round {turn + 1}: {name}, {clients} clients: {load.percentile(0.5):.2f} ms", file=sys.stderr, flush=True)
    return found


def row(name: str, clients: int, rounds: Sequence[Load]) -> list[str]:
    """Return a row of the table."""
    whole = Load(
        sum(one.seconds for one in rounds),
        [time for one in rounds for time in one.milliseconds],
        sum((one.errors for one in rounds), start=Counter()),
    )
    times = [f"{whole.percentile(share):.2f}" for share in (0.5, 0.95, 0.99)]
    return [name, str(clients), *times, f"{whole.rate:,.0f}", str(whole.errors.total())]


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Latency of servers under load.")
    parser.add_argument("systems", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64], metavar="N")
    parser.add_argument("--seconds", type=float, default=5.0, help="Seconds of each server, number of clients and round.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="Threads of each server but MLflow's, which has no such option.")
    parser.add_argument("--text", type=Path, help="Sentences, one a line. Default: those of the embedded corpus.")
    parser.add_argument("--without-ctranslate2", action="store_true")
    parser.add_argument("--without-mlflow", action="store_true")
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and publish. Return 1 if a request was not answered with 200."""
    arguments = parse(argv)
    with ExitStack() as stack:
        found = measured(started_targets(stack, arguments), lines_of(arguments.text), arguments)
    publish(
        arguments,
        section="Serving",
        explanation=(
            f"Times of requests of one sentence to servers with `--threads {arguments.threads}`, by the number of clients that ask "
            "without a pause, on the machine that also runs the clients. CTranslate2 is the engine of an otherwise equal server."
        ),
        columns=COLUMNS,
        rows=[row(name, clients, rounds) for (name, clients), rounds in found.items()],
        seed=0,
        rounds=arguments.rounds,
        spread=spread([one.percentile(0.5) for one in rounds] for rounds in found.values()),
        figures={f"{name}, {clients}": [dict(one.errors) for one in rounds] for (name, clients), rounds in found.items()},
    )
    return 1 if any(one.errors for rounds in found.values() for one in rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
