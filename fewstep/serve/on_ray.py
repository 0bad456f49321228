"""A server on a Ray cluster, with Ray Serve: replicas that each load all systems, as many as the load asks for."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray import serve as ray_serve

from fewstep.local_ray import check_answers
from fewstep.serve.app import create_app
from fewstep.serve.settings import ServeError, Settings
from fewstep.serve.systems import Load, SystemLocation, load_all
from fewstep.text.escape import escaped

NAME = "fewstep"
"""Name of the application and its deployment."""
TARGET_ONGOING = 8
"""Requests in flight of a replica above which another one is started."""


@dataclass(frozen=True)
class Replicas:
    """The number of replicas and their size."""

    min_replicas: int = 1
    max_replicas: int = 4
    cpus: float = 1.0
    """Processors that Ray reserves for a replica."""

    def __post_init__(self) -> None:
        if not 1 <= self.min_replicas <= self.max_replicas:
            found = f"{self.min_replicas} and {self.max_replicas}"
            raise ServeError(f"--min-replicas, --max-replicas: expected at least 1 and no more than the maximum, got {found}")


class Replica:
    """One copy of the systems with its server."""


def deployment(locations: Sequence[SystemLocation], load: Load, settings: Settings, replicas: Replicas, local: bool) -> Any:
    """Return the application for `ray.serve.run`. The directories of systems must be readable on all nodes, or on this one
    (`local`).

    A replica has queues, limits and batches of its own, as the server in one process has: limits on rates and queues count per
    replica, and Serve's own queue, which answers 503 when it is full, is not limited.
    """

    def build() -> Any:
        if local:
            _keep_grpc_on_loopback()
        return create_app(load_all(locations, load), settings)

    deployed: Any = ray_serve.deployment(
        name=NAME,
        ray_actor_options={"num_cpus": replicas.cpus},
        autoscaling_config={
            "min_replicas": replicas.min_replicas,
            "max_replicas": replicas.max_replicas,
            "target_ongoing_requests": TARGET_ONGOING,
        },
        max_ongoing_requests=max(settings.max_waiting, TARGET_ONGOING),
        max_queued_requests=-1,
        graceful_shutdown_timeout_s=settings.drain_seconds,
    )(ray_serve.ingress(build)(Replica))
    return deployed.bind()


def _keep_grpc_on_loopback() -> None:
    """Let the gRPC servers of this process listen on the loopback interface where they would on all interfaces.

    A replica of Ray Serve opens a port for other deployments, whose messages it unpickles. It does so after the application is
    built, and there is no option for its address.
    """
    from grpc.aio._server import Server

    bind = Server.add_insecure_port
    Server.add_insecure_port = lambda server, address: bind(server, address.replace("[::]", "127.0.0.1"))


def _connect(address: str, local: bool) -> None:
    """Connect to a cluster, or start one on this machine. Raises ServeError if none answers or Ray does not start."""
    try:
        check_answers(address)  # Ray would try for minutes
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, include_dashboard=False if local else None)
    except (OSError, RuntimeError, ValueError) as error:
        if local:
            remedy = "check its memory and load, and the length of TMPDIR, below which Ray has sockets"
            raise ServeError(f"--ray: expected Ray to start on this machine, got: {error}; {remedy}") from error
        raise ServeError(f"--ray: expected a cluster that answers at {address}, got: {error}; check RAY_ADDRESS") from error


def serve(locations: Sequence[SystemLocation], load: Load, settings: Settings, replicas: Replicas, address: str) -> None:
    """Serve on the cluster at `address` until SIGTERM or SIGINT; then answer the requests in flight, and return."""
    absolute = [replace(one, directory=one.directory.absolute()) for one in locations]
    names = ", ".join(load_all(absolute, load))  # a directory that cannot be loaded is reported here, and not by a replica
    ended = threading.Event()
    local = address == "local"
    _connect(address, local)
    previous = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        ray_serve.start(http_options={"host": settings.host, "port": settings.port})
        ray_serve.run(deployment(absolute, load, settings, replicas, local), name=NAME, route_prefix="/")
        print(escaped(f"serving {names} on Ray at http://{settings.host}:{settings.port}"), file=sys.stderr, flush=True)
        ended.wait()
        ray_serve.delete(NAME)  # waits for the requests in flight; `shutdown` alone ends the proxies under them
    finally:
        ray_serve.shutdown()
        for number, handler in previous.items():
            signal.signal(number, handler)
