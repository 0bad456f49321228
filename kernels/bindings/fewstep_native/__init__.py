"""The compiled extension: one module for each instruction-set level, of which the best that the processor runs is loaded.

`ABI` is the version of its signatures, `LEVEL` the level in use, and `LEVELS` are those that are installed and that this processor
runs, lowest first. `MISSING` are the levels of the architecture that were not compiled. The environment variable FEWSTEP_ISA names
another level than the best.
"""

import os as _os
from importlib import import_module as _import_module
from importlib.machinery import EXTENSION_SUFFIXES as _SUFFIXES
from pathlib import Path as _Path
from types import ModuleType as _ModuleType

from fewstep_native import _processor


def _installed() -> list[str]:
    """Return the levels whose modules lie in this folder."""
    names = {path.name.split(".")[0] for suffix in _SUFFIXES for path in _Path(__file__).parent.glob(f"_*{suffix}")}
    return sorted(name.removeprefix("_").replace("_", "-") for name in names - {"_processor"})


def _available(installed: list[str]) -> tuple[str, ...]:
    """Return the installed levels that the processor runs. Raises ImportError without such a level."""
    runs = _processor.levels()
    found = tuple(level for level in runs if level in installed)
    if not found:
        raise ImportError(
            f"fewstep_native: expected a processor that runs one of the levels {', '.join(installed)}, "
            f"got one that runs {', '.join(runs) or 'none, not even x86-64-v2 (SSE4.2 and POPCNT)'}; use a newer machine"
        )
    return found


def _chosen(levels: tuple[str, ...]) -> str:
    level = _os.environ.get("FEWSTEP_ISA") or levels[-1]
    if level not in levels:
        raise ImportError(
            f"FEWSTEP_ISA: expected one of {', '.join(levels)} (levels that are installed and that this processor runs), "
            f"got {level}; unset it to use the best"
        )
    return level


def _loaded(level: str) -> _ModuleType:
    name = f"fewstep_native._{level.replace('-', '_')}"
    try:
        return _import_module(name)
    except ImportError as error:
        raise ImportError(f"{name}: expected the module of the level {level}, got: {error}; reinstall the package") from error


LEVELS = _available(_installed())
MISSING = tuple(level for level in _processor.architecture().split(",") if level not in _installed())
LEVEL = _chosen(LEVELS)
globals().update({name: value for name, value in vars(_loaded(LEVEL)).items() if not name.startswith("_")})
