"""The process group of training workers on Ray, each of which notes SIGTERM. Importing this module takes seconds."""

from __future__ import annotations

from typing import Any

from ray.train.torch import TorchConfig

from stages.workers.interrupts import note_sigterm


class StoppableConfig(TorchConfig):  # type: ignore[misc]
    """Ray Train's setup of torch.distributed, after which SIGTERM asks a training to save its state and end.

    Machines that are taken back send SIGTERM first. Ray would end the worker at once. Trainings run in a thread of their worker,
    where Python handles no signals, so the main thread notes them.
    """

    @property
    def backend_cls(self) -> type[Any]:
        original: type[Any] = super().backend_cls

        class StoppableBackend(original):  # type: ignore[misc]
            def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
                super().on_start(worker_group, backend_config)
                worker_group.execute(note_sigterm)

        return StoppableBackend
