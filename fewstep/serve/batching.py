"""Dynamic batching: sentences that wait at the same time are decoded together.

A batch starts as soon as the system is free; the requests that arrive meanwhile form the next one. A batch takes one sentence of
each waiting request in turn, so that a short request passes a long one. The output of a sentence does not depend on its batch,
except for near-ties of rounding.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from fewstep.serve.metrics import Metrics
from fewstep.text.glossary import Glossary
from fewstep.translation import Translation

T = TypeVar("T")
Outputs = list[list[Translation]]
"""The translations of each sentence, best first."""


class BusyError(Exception):
    """The queue is full."""


class Options(NamedTuple):
    """The options of a request. Requests with equal options share batches."""

    search: str
    n_best: int
    refuse_long: bool = False
    glossary: Glossary | None = None


class Translate(Protocol):
    """The function that decodes a batch. It is called in a thread."""

    def __call__(self, lines: Sequence[str], options: Options) -> Outputs: ...


class Answer(NamedTuple):
    """The answer to a request."""

    outputs: Outputs
    milliseconds: float
    """Time that the batches with sentences of this request took."""
    waited_milliseconds: float
    """Time before the first of these batches."""
    largest_batch: int
    """Number of sentences in the largest of these batches."""


@dataclass(eq=False)
class Job:
    """The sentences of one request to one system."""

    lines: Sequence[str]
    options: Options
    answer: asyncio.Future[Answer]
    submitted: float
    outputs: dict[int, list[Translation]] = field(default_factory=dict)
    taken: int = 0
    """Number of sentences that are in a batch or done."""
    started: float | None = None
    seconds: float = 0.0
    largest_batch: int = 0

    @property
    def finished(self) -> bool:
        """Whether nobody waits for further sentences: all are decoded, one failed, or the client has gone."""
        return self.answer.done()

    def take(self, started: float) -> int:
        """Return the index of the next sentence, which goes into a batch."""
        self.started = started if self.started is None else self.started
        self.taken += 1
        return self.taken - 1

    def receive(self, share: dict[int, list[Translation]], seconds: float, size: int) -> None:
        """Add the outputs of a batch of `size` sentences, and answer if they are the last ones."""
        self.outputs |= share
        self.seconds += seconds
        self.largest_batch = max(self.largest_batch, size)
        if len(self.outputs) == len(self.lines) and not self.finished:
            waited = (self.submitted if self.started is None else self.started) - self.submitted
            ordered = [self.outputs[index] for index in range(len(self.lines))]
            self.answer.set_result(Answer(ordered, 1000 * self.seconds, 1000 * waited, self.largest_batch))

    def fail(self, error: Exception) -> None:
        """Answer with an error."""
        if not self.finished:
            self.answer.set_exception(error)


class Backlog:
    """The number of sentences in all queues of a server, and its limit."""

    def __init__(self, max_waiting: int, metrics: Metrics) -> None:
        self.max_waiting = max_waiting
        self.waiting = 0
        self._gauge = metrics.waiting

    def enter(self, count: int) -> None:
        """Add sentences. Raises BusyError when they exceed the limit."""
        if self.waiting + count > self.max_waiting:
            raise BusyError(f"{self.waiting} sentences are waiting, and at most {self.max_waiting} may; try again later")
        self._set(self.waiting + count)

    def leave(self, count: int) -> None:
        """Remove sentences that were answered or given up."""
        self._set(self.waiting - count)

    def _set(self, waiting: int) -> None:
        self.waiting = waiting
        self._gauge.set(waiting)


class Batcher:
    """The queue of one system. All methods are called in one event loop; batches are decoded by `executor`."""

    def __init__(
        self, name: str, translate: Translate, executor: Executor, backlog: Backlog, metrics: Metrics, max_batch: int
    ) -> None:
        self._name = name
        self._translate = translate
        self._executor = executor
        self._backlog = backlog
        self._metrics = metrics
        self._max_batch = max_batch
        self._jobs: deque[Job] = deque()
        self._wake = asyncio.Event()

    async def translate(self, lines: Sequence[str], options: Options) -> Answer:
        """Return the answer for `lines`. If the caller is cancelled, the sentences that are still waiting are dropped.

        Raises BusyError when the queue is full, and the error of the system.
        """
        self._backlog.enter(len(lines))
        try:
            job = Job(lines, options, asyncio.get_running_loop().create_future(), time.perf_counter())
            self._jobs.append(job)
            self._wake.set()
            return await job.answer
        finally:
            self._backlog.leave(len(lines))

    async def run(self) -> None:
        """Decode batches until cancelled."""
        while True:
            await self._wake.wait()
            if batch := self._next_batch():
                await self._decode(batch)
            else:
                self._wake.clear()

    async def call(self, function: Callable[[], T]) -> T:
        """Return the result of a function, called in turn with the batches of all systems. Raises BusyError for a full queue."""
        self._backlog.enter(1)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, function)
        finally:
            self._backlog.leave(1)

    def _next_batch(self) -> list[tuple[Job, int]]:
        """Return sentences of jobs with the options of the first job, one of each in turn."""
        self._jobs = deque(job for job in self._jobs if not job.finished)
        if not self._jobs:
            return []
        now = time.perf_counter()
        options = self._jobs[0].options
        turns = deque(job for job in self._jobs if job.options == options)
        batch: list[tuple[Job, int]] = []
        while turns and len(batch) < self._max_batch:
            job = turns.popleft()
            batch.append((job, job.take(now)))
            if job.taken < len(job.lines):
                turns.append(job)
        # A job with sentences left goes behind the others, also behind those with other options.
        rest = [job for job in self._jobs if job.taken == 0]
        self._jobs = deque([*rest, *(job for job in self._jobs if 0 < job.taken < len(job.lines))])
        return batch

    async def _decode(self, batch: list[tuple[Job, int]]) -> None:
        """Decode a batch, or its jobs one by one if that fails, so that only the request whose sentence fails gets the error."""
        try:
            await self._decode_together(batch)
        except Exception as error:
            jobs = list(dict.fromkeys(job for job, _ in batch))
            if len(jobs) == 1:
                jobs[0].fail(error)
                return
            for job in jobs:
                await self._decode([entry for entry in batch if entry[0] is job])

    async def _decode_together(self, batch: list[tuple[Job, int]]) -> None:
        lines = [job.lines[index] for job, index in batch]
        options = batch[0][0].options
        outputs, seconds = await asyncio.get_running_loop().run_in_executor(self._executor, self._timed, lines, options)
        self._metrics.batch(self._name, options.search, len(lines), seconds)
        shares: dict[Job, dict[int, list[Translation]]] = {}
        for (job, index), translations in zip(batch, outputs, strict=True):
            shares.setdefault(job, {})[index] = translations
        for job, share in shares.items():
            job.receive(share, seconds, len(lines))

    def _timed(self, lines: Sequence[str], options: Options) -> tuple[Outputs, float]:
        start = time.perf_counter()
        return self._translate(lines, options), time.perf_counter() - start
