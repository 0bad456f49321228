"""The memory of `fewstep serve` under minutes of mixed requests.

    python -m benchmarks.serving.soak DIR [DIR ...] [--minutes 10] [--clients 16] [--threads 2] [--json FILE]

Clients translate with all systems and searches, one to sixteen sentences at a time, and ask for graphs and lattices. One request in
ten is invalid or too large, and one in ten is given up after a moment. The resident memory of the server is read every second.
Growth is the slope of a straight line through the readings of the second half, during which the caches of allocators are full.
The program ends with 1 if a valid request was not answered with 200, an invalid one with 4xx, or the server ended.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from benchmarks.record import publish
from benchmarks.serving.load import lines_of
from benchmarks.serving.servers import fewstep_server

INVALID = (b"{", b"\xff\xfe", b'{"sentences": []}', b'{"sentences": ["a"], "search": "none"}', b"x" * (2 << 20))
"""Bodies that are refused."""
MOMENT = 0.002
"""Seconds after which a request is given up."""
Readings = list[tuple[float, float]]
"""Seconds and megabytes."""


def resident(process: int) -> float:
    """Return the resident memory of a process in megabytes. Raises OSError if the process has ended."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1000


def growth(readings: Readings) -> float:
    """Return the slope of the second half in megabytes per minute."""
    seconds, megabytes = np.array(readings[len(readings) // 2 :]).T
    return 60 * float(np.polyfit(seconds, megabytes, 1)[0])


async def soak(url: str, process: int, lines: Sequence[str], clients: int, seconds: float) -> tuple[Readings, Counter[str]]:
    """Return the readings of the server's memory, and the number of answers by kind; `wrong` are unexpected ones."""
    answers: Counter[str] = Counter()
    readings: Readings = []
    begin = time.monotonic()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        async with session.get(f"{url}/systems") as answer:
            systems = (await answer.json())["systems"]
        end = begin + seconds
        tasks = [
            asyncio.create_task(_ask_on(session, url, systems, lines, random.Random(one), end, answers)) for one in range(clients)
        ]
        while time.monotonic() < end:
            readings.append((time.monotonic() - begin, resident(process)))
            await asyncio.sleep(1)
        await asyncio.gather(*tasks)
    return readings, answers


async def _ask_on(
    session: aiohttp.ClientSession,
    url: str,
    systems: Sequence[Mapping[str, Any]],
    lines: Sequence[str],
    draw: random.Random,
    end: float,
    answers: Counter[str],
) -> None:
    while time.monotonic() < end:
        kind = draw.choices(("translate", "explain", "invalid", "given up"), (7, 1, 1, 1))[0]
        system = draw.choice(systems)
        search = draw.choice(list(system["searches"]))
        sentences = {"sentences": draw.choices(lines, k=draw.randint(1, 16)), "systems": [system["name"]], "search": search}
        one = {"sentence": draw.choice(lines), "system": system["name"], "search": search}
        body: dict[str, Any] = {"data": draw.choice(INVALID)} if kind == "invalid" else {"json": sentences}
        try:
            if kind == "explain":
                status = await _status(session, f"{url}/explain", {"json": one}, None)
            else:
                status = await _status(session, f"{url}/translate", body, MOMENT if kind == "given up" else None)
        except TimeoutError:
            status = 200 if kind == "given up" else 0
        except aiohttp.ClientError as error:
            answers[f"wrong: {kind}, {type(error).__name__}"] += 1
            continue
        right = 400 <= status < 500 if kind == "invalid" else status == 200
        answers[kind if right else f"wrong: {kind}, {status}"] += 1


async def _status(session: aiohttp.ClientSession, url: str, body: Mapping[str, Any], seconds: float | None) -> int:
    headers = {"content-type": "application/json"}
    async with session.post(url, headers=headers, timeout=aiohttp.ClientTimeout(seconds), **body) as answer:
        await answer.read()
        return answer.status


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The memory of fewstep serve under mixed requests.")
    parser.add_argument("systems", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=16, metavar="N")
    parser.add_argument("--threads", type=int, default=2, help="Threads of the server.")
    parser.add_argument("--text", type=Path, help="Sentences, one a line. Default: those of the embedded corpus.")
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Soak, print and publish. Return 1 for unexpected answers."""
    arguments = parse(argv)
    with fewstep_server(arguments.systems, arguments.threads) as (url, process):
        lines = lines_of(arguments.text)
        seconds = 60 * arguments.minutes
        readings, answers = asyncio.run(soak(url, process, lines, arguments.clients, seconds))
    wrong = {kind: count for kind, count in answers.items() if kind.startswith("wrong")}
    memory = [megabytes for _, megabytes in readings]
    cells = [f"{memory[0]:.0f}", f"{memory[len(memory) // 2]:.0f}", f"{memory[-1]:.0f}", f"{max(memory):.0f}"]
    publish(
        arguments,
        section="Serving",
        explanation=(
            f"Resident memory of `fewstep serve` in MB, under {arguments.clients} clients with mixed, invalid and abandoned "
            "requests. Growth is the slope over the second half."
        ),
        columns=("minutes", "start", "half time", "end", "most", "growth MB/minute", "requests", "wrong answers"),
        rows=[[f"{arguments.minutes:g}", *cells, f"{growth(readings):+.2f}", f"{answers.total():,}", str(sum(wrong.values()))]],
        seed=0,
        rounds=1,
        spread="one run; the readings of each second are in `figures`",
        figures={"answers": dict(answers), "megabytes": [round(value, 1) for value in memory]},
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
