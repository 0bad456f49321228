"""Metrics in the format of Prometheus."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter as Counts
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

log = logging.getLogger("fewstep.serve")

CONTENT_TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SECONDS_BETWEEN_WARNINGS = 10.0
"""Seconds between warnings about cut sentences, with which clients could otherwise fill the log."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        self._requests = Counter("fewstep_requests", "Answered requests.", ("path", "status"), registry=registry)
        self._seconds = Histogram("fewstep_request_seconds", "Time to answer.", ("path",), buckets=SECONDS, registry=registry)
        self._sentences = Counter("fewstep_sentences", "Decoded sentences.", ("system", "search"), registry=registry)
        self._decode = Histogram(
            "fewstep_decode_seconds", "Time of a batch.", ("system", "search"), buckets=SECONDS, registry=registry
        )
        self._batch = Histogram(
            "fewstep_batch_sentences", "Sentences in a batch.", ("system", "search"), buckets=SIZES, registry=registry
        )
        self._steps = Counter("fewstep_steps", "Decoder calls, summed over sentences.", ("system", "search"), registry=registry)
        self._cut = Counter("fewstep_cut_sentences", "Sentences that were cut, being too long.", ("system",), registry=registry)
        self._clock = clock
        self._unreported = Counts[str]()
        self._reported = -math.inf
        self.waiting = Gauge("fewstep_waiting_sentences", "Sentences that wait or are being decoded.", registry=registry)
        self.hung_up = Counter("fewstep_hung_up", "Requests whose client closed the connection early.", registry=registry)
        self.draining = Gauge("fewstep_draining", "1 while the server shuts down.", registry=registry)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def batch(self, system: str, search: str, sentences: int, seconds: float) -> None:
        """Count a batch."""
        self._sentences.labels(system, search).inc(sentences)
        self._decode.labels(system, search).observe(seconds)
        self._batch.labels(system, search).observe(sentences)

    def steps(self, system: str, search: str, steps: int) -> None:
        """Count the decoder calls of a request."""
        self._steps.labels(system, search).inc(steps)

    def cut(self, system: str, sentences: int) -> None:
        """Count the sentences of a request that were cut, and warn about them, at most once in `SECONDS_BETWEEN_WARNINGS`."""
        self._cut.labels(system).inc(sentences)
        self._unreported[system] += sentences
        if sentences and self._clock() - self._reported >= SECONDS_BETWEEN_WARNINGS:
            found = ", ".join(f"{count} of system {name}" for name, count in self._unreported.items() if count)
            log.warning("cut sentences that have too many tokens: %s; the answers have the number of tokens as `cut`", found)
            self._unreported.clear()
            self._reported = self._clock()

    def text(self) -> bytes:
        """Return the metrics as Prometheus reads them."""
        return generate_latest(self.registry)
