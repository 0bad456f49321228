"""Native copies of a network, one for each precision that is used."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

import fewstep.networks.arrays
from fewstep.config.options import Precision

N = TypeVar("N")


class Copies(Generic[N]):
    """Networks by precision. A copy is made when its precision is first used; several threads may ask at the same time."""

    def __init__(self, build: Callable[[fewstep.networks.arrays.Precision], N]) -> None:
        self._build = build
        self._made = dict[Precision, N]()
        self._lock = Lock()

    def __getitem__(self, precision: Precision) -> N:
        """Return the copy with this precision. Raises ValueError for float16, which native code does not support."""
        if precision not in self._made:
            with self._lock:
                if precision not in self._made:
                    self._made[precision] = self._build(native_precision(precision))
        return self._made[precision]

    def made(self, precision: fewstep.networks.arrays.Precision) -> N | None:
        """Return the copy with this precision, if it was made."""
        return self._made.get(precision)


def native_precision(precision: Precision) -> fewstep.networks.arrays.Precision:
    """Return a precision that native code supports. Raises ValueError for float16."""
    if precision == "float16":
        raise ValueError(f"precision: expected float32, bfloat16 or int8 in native code, got {precision}")
    return precision
