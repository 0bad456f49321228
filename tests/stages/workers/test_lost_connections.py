"""Errors of training workers that lost another one, or did not find it, are repeated; other errors are not."""

import pytest
import torch
from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import ActorDiedError

from stages.errors import StageError, TransientError
from stages.workers.ray_errors import explained

LOST = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:3726: Connection reset by peer"


@pytest.mark.parametrize(
    ("error", "kind"), [(RuntimeError(LOST), TransientError), (RuntimeError("a bug"), StageError), (ValueError(LOST), StageError)]
)
def test_a_lost_connection_between_workers_is_repeated(error: Exception, kind: type[StageError]) -> None:
    assert type(explained(error)) is kind


def test_the_reason_is_below_the_traceback_of_another_process() -> None:
    error = RuntimeError(f"ray::train() (pid=1, ip=10.99.0.3)\n  File ...\nRuntimeError: {LOST}")
    assert str(explained(error)) == f"a training worker lost the connection to another one: RuntimeError: {LOST}"


def test_errors_of_the_process_group_are_repeated() -> None:
    error = torch.distributed.DistNetworkError("The client socket has timed out after 60000ms")
    assert type(explained(error)) is TransientError


def test_the_machine_of_a_dead_worker_is_named() -> None:
    context = ActorDiedErrorContext(
        node_ip_address="10.99.0.2",
        pid=14023,
        actor_id=bytes(16),
        error_message="The actor died because its node has died. Node Id: 9e81\n\thealth check failed",
    )
    expected = "a worker or its node was lost: The actor died because its node has died (ip: 10.99.0.2)"
    assert str(explained(ActorDiedError(context))) == expected


@pytest.mark.ray
def test_workers_that_do_not_start_are_repeated() -> None:
    """A node that is lost before Ray notices it still counts when the next attempt asks for its workers."""
    from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError
    from ray.train.v2.api.exceptions import ControllerError

    error = ControllerError(WorkerGroupStartupTimeoutError(2))
    assert type(explained(error, (ControllerError,))) is TransientError


WORKER_ERROR = "One of the worker actors failed to initialize due to error:\nTraceback (most recent call last):\n  ...\n"


@pytest.mark.ray
@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            WORKER_ERROR
            + "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tip: 10.0.0.7\n"
            "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR\n",
            TransientError,
            "a worker or its node was lost: The actor is dead because its worker process has died (ip: 10.0.0.7)",
        ),
        (
            "At least one of the worker actors failed to initialize.",
            TransientError,
            "a worker or its node was lost: At least one of the worker actors failed to initialize.",
        ),
        (
            WORKER_ERROR + "ImportError: no module named 'torch'\n",
            StageError,
            "WorkerGroupStartupFailedError: ImportError: no module named 'torch'",
        ),
    ],
)
def test_workers_that_die_while_they_start_are_repeated(text: str, kind: type[Exception], message: str) -> None:
    from ray.train.v2._internal.exceptions import WorkerGroupStartupFailedError
    from ray.train.v2.api.exceptions import ControllerError

    found = explained(ControllerError(WorkerGroupStartupFailedError(text)), (ControllerError,))
    assert (type(found), str(found)) == (kind, message)
