"""Errors of training workers that lost another one, or did not find it, are repeated; other errors are not."""

import pytest

from stages.errors import StageError, TransientError
from stages.workers.ray_workers import explained

LOST = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:3726: Connection reset by peer"


@pytest.mark.parametrize(
    ("error", "kind"), [(RuntimeError(LOST), TransientError), (RuntimeError("a bug"), StageError), (ValueError(LOST), StageError)]
)
def test_a_lost_connection_between_workers_is_repeated(error: Exception, kind: type[StageError]) -> None:
    assert type(explained(error)) is kind


@pytest.mark.ray
def test_workers_that_do_not_start_are_repeated() -> None:
    """A node that is lost before Ray notices it still counts when the next attempt asks for its workers."""
    from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError
    from ray.train.v2.api.exceptions import ControllerError

    error = ControllerError(WorkerGroupStartupTimeoutError(2))
    assert type(explained(error, (ControllerError,))) is TransientError
