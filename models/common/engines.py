"""The choice of the engine that runs a search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from fewstep.config.problems import Problem, refuse

AUTOMATIC = ("native", "torch")
"""The engines among which the option `engine: auto` chooses, in order of preference."""


class Engine(Protocol):
    """The common part of the engines of all families; `decode` differs by what a family prepares."""

    def problems(self, search: Any, network: Any) -> list[Problem]:
        """Return the reasons why this engine cannot run a search of a network with the config `network`."""
        ...


E = TypeVar("E", bound=Engine)


def choose_engine(engines: Mapping[str, E], requested: str, search: Any, network: Any) -> E:
    """Return the requested engine or, for `auto`, the first of `AUTOMATIC` that can run the search.

    `engines` are those that this decoder has. Raises ValueError, with the reasons, if no engine can run it.
    """
    names = [name for name in AUTOMATIC if name in engines] if requested == "auto" else [requested]
    problems: list[Problem] = []
    for name in names:
        if name not in engines:
            refuse([Problem(("engine",), f"auto or one of {', '.join(engines)} for this network", name)])
        found = engines[name].problems(search, network)
        if not found:
            return engines[name]
        problems += found
    refuse(problems)
    raise AssertionError("an engine without problems was not chosen")
