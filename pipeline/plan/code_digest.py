"""Digests of a stage's code: its module and all modules of this project that it imports, without comments, docstrings and layout.

The module `fewstep.native` stands for the sources of the compiled extension.
"""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path

import fewstep
from models.family import FAMILIES

PACKAGES = ("fewstep", "durable", "kernels", "models", "stages")
ROOT = Path(__file__).resolve().parents[2]
RUNTIME = Path(fewstep.__file__).resolve().parents[1]
"""The folder of `fewstep`, which an image installs apart from the pipeline."""


@cache
def code_digest(module: str) -> str:
    """Return 16 hex digits over the syntax trees of `module` and of all modules in `PACKAGES` that it imports."""
    trees: dict[str, str] = {}
    _collect(module, trees)
    return hashlib.sha256("\n".join(f"{name} {trees[name]}" for name in sorted(trees)).encode()).hexdigest()[:16]


def _collect(module: str, trees: dict[str, str]) -> None:
    path = _file(module)
    if module in trees or path is None:
        return
    trees[module], imported = _parsed(path)
    if "models.family.family_named" in imported:
        imported |= {f"{entry.package}.{part}" for entry in FAMILIES.values() for part in ("family", "system")}
    if "stages.shared.report_parts.part_of" in imported:
        imported |= {f"stages.{path.parent.name}.report" for path in ROOT.glob("stages/*/report.py")}
    if module == "fewstep.native":
        trees["csrc"] = _native_digest()
    for name in imported:
        _collect(name, trees)


@cache  # most stages import most of the modules
def _parsed(path: Path) -> tuple[str, frozenset[str]]:
    """Return the digest of the syntax tree of a file, and the names that it imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = frozenset(_imports(tree))
    if (stub := path.with_suffix(".pyi")).is_file():  # names that are imported on first use
        imported |= _imports(ast.parse(stub.read_text(encoding="utf-8")))
    return hashlib.sha256(ast.dump(_without_docstrings(tree)).encode()).hexdigest(), imported


def _native_digest() -> str:
    """Return the digest of the extension's sources, which a wheel does not contain."""
    sources = sorted(path for folder in ("csrc", "bindings") for path in (ROOT / "kernels" / folder).rglob("*.*"))
    return hashlib.sha256(b"\n".join(path.name.encode() + b" " + path.read_bytes() for path in sources)).hexdigest()


def _file(module: str) -> Path | None:
    package = module.split(".")[0]
    if package not in PACKAGES:
        return None
    path = (RUNTIME if package == "fewstep" else ROOT).joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _imports(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [
                s
                for s in body
                if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) and isinstance(s.value.value, str))
            ]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return tree


@cache
def git_revision() -> str:
    """Return the commit of the code, with `+` if the work tree differs from it.

    Outside a repository it is the environment variable FEWSTEP_REVISION, which `submit` sets for jobs, else `unknown`.
    """
    try:
        revision = _git("rev-parse", "--short=12", "HEAD").strip()
        return revision + ("+" if _git("status", "--porcelain", "--untracked-files=no").strip() else "")
    except (OSError, subprocess.SubprocessError):
        return os.environ.get("FEWSTEP_REVISION", "unknown")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True, timeout=10).stdout
