"""Public names of a package that are imported from their modules on first use, as SPEC 1 of Scientific Python describes."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def attach(file: str) -> tuple[Callable[[str], Any], list[str]]:
    """Return `__getattr__` and `__all__` of a package from the stub beside its `__init__.py`, which is `file`.

    Type checkers read the same stub, so that each name is listed once.
    """
    tree = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    modules = {alias.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}

    def load(name: str) -> Any:
        if (module := modules.get(name)) is None:
            raise AttributeError(f"module {Path(file).parent.name!r} has no attribute {name!r}")
        return getattr(import_module(module), name)

    return load, sorted(modules)
