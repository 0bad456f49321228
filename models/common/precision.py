"""Copies of a network in half precision, for decoding on GPUs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Generic, TypeVar

import torch
from torch import nn

from fewstep.config.options import HALF_PRECISIONS, Precision
from fewstep.config.problems import Problem

N = TypeVar("N", bound=nn.Module)


class Precisions(Generic[N]):
    """A network in float32 and its copies in half precision, which are made when a search asks for them."""

    def __init__(self, network: N, *, frozen: bool) -> None:
        """`frozen` states that the weights do not change any more."""
        self._networks: dict[str, N] = {"float32": network}
        self._frozen = frozen

    def __getitem__(self, precision: Precision) -> N:
        """Return the network in a precision."""
        if precision not in self._networks:
            self._networks[precision] = copy.deepcopy(self._networks["float32"]).to(getattr(torch, precision))
        return self._networks[precision]

    def problems(self, precision: Precision) -> Iterator[Problem]:
        """Yield a problem for a precision other than float32, unless it is a half precision of a frozen network on a GPU."""
        on_gpu = self._frozen and next(self._networks["float32"].parameters()).device.type != "cpu"
        if precision != "float32" and not (on_gpu and precision in HALF_PRECISIONS):
            expected = "float32, float16 or bfloat16" if on_gpu else "float32"
            yield Problem(("precision",), f"{expected} in torch on this device", precision)
