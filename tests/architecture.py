"""Measurements of the source tree: its packages, imports and import circles.

`tests/test_architecture.py` holds the tree to limits on these numbers; `python -m tests.architecture` prints them.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("fewstep", "durable", "kernels", "models", "stages", "pipeline")
"""The source packages. Each may import itself and those before it."""


@dataclass(frozen=True)
class Import:
    """One imported module name. `deferred`: inside a function."""

    name: str
    line: int
    deferred: bool


@dataclass(frozen=True)
class Module:
    """A Python file and its dotted name."""

    name: str
    path: Path

    @property
    def folder(self) -> str:
        """The folder that the file lies in, relative to the root."""
        package = self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]
        return package.replace(".", "/")

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def imports(self) -> list[Import]:
        """All imports of the file, type-only and deferred ones included; `from a import b` is the name `a.b`."""
        found = _import_statements(self.tree)
        return [Import(name, node.lineno, deferred) for node, deferred in found for name in _imported_names(node)]

    @cached_property
    def function_lines(self) -> list[tuple[str, int]]:
        """`module.function:line` and the number of lines of each function and method."""
        return [
            (f"{self.name}.{node.name}:{node.lineno}", (node.end_lineno or node.lineno) - node.lineno + 1)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]


def _import_statements(node: ast.AST, deferred: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield the imports below a node, and whether each stands inside a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, deferred
        elif not isinstance(child, ast.expr):
            yield from _import_statements(child, deferred or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def modules(root: Path = ROOT, packages: tuple[str, ...] = PACKAGES) -> dict[str, Module]:
    """Return the modules of `packages` below `root` by dotted name; a package that does not exist has no modules."""
    found = (
        Module(_dotted(path.relative_to(root)), path) for package in packages for path in sorted((root / package).rglob("*.py"))
    )
    return {module.name: module for module in found}


def import_graph(known: Mapping[str, Module]) -> dict[str, set[str]]:
    """Return for each module the modules of `known` that it imports anywhere in its file."""
    return {
        name: {target for entry in module.imports if (target := _module_of(entry.name, known)) and target != name}
        for name, module in known.items()
    }


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module, each sorted by name."""
    reached = {module: _reachable(module, graph) for module in graph}
    components = {tuple(sorted(other for other in reached[module] if module in reached[other])) for module in graph}
    return sorted(list(component) for component in components if len(component) > 1)


def upward_imports(known: Mapping[str, Module], packages: tuple[str, ...] = PACKAGES) -> list[str]:
    """Return `module:line imports name` for each import of a package above the module's own."""
    return [
        f"{name}:{entry.line} imports {entry.name}"
        for name, module in known.items()
        for entry in module.imports
        if (package := entry.name.split(".")[0]) in packages and packages.index(package) > packages.index(name.split(".")[0])
    ]


def deferred_imports(known: Mapping[str, Module]) -> list[str]:
    """Return `module:line imports name` for each import of a module of the project's inside a function."""
    found = {
        (name, entry.line, target)
        for name, module in known.items()
        for entry in module.imports
        if entry.deferred and (target := _module_of(entry.name, known))
    }
    return [f"{name}:{line} imports {target}" for name, line, target in sorted(found)]


def nested_conditionals(known: Mapping[str, Module]) -> list[str]:
    """Return `module:line` for each conditional expression that contains another one, in whatever part of it."""
    return [
        f"{name}:{node.lineno}"
        for name, module in known.items()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.IfExp) and sum(isinstance(part, ast.IfExp) for part in ast.walk(node)) > 1
    ]


def files_per_folder(known: Mapping[str, Module]) -> Counter[str]:
    """Return the number of Python files that lie directly in each folder."""
    return Counter(module.folder for module in known.values())


def family_dispatches(known: Mapping[str, Module], families: tuple[str, ...]) -> list[str]:
    """Return the modules outside a family's own folder that a new family would have to change.

    Such a module imports two or more families, or names one as text where a decision is taken: in a comparison, a `Literal`,
    a key of a dict, a tuple of families or the default of a parameter. A module that serves a single family (an analysis
    of its graphs, say) and only imports it is not counted.
    """
    packages = tuple(f"models.{family}" for family in families)
    return [
        name
        for name, module in known.items()
        if not f"{name}.".startswith(tuple(f"{package}." for package in packages))
        if len({package for entry in module.imports for package in packages if f"{entry.name}.".startswith(f"{package}.")}) > 1
        or any(_decides_by(node, set(families)) for node in ast.walk(module.tree))
    ]


def stage_lists(known: Mapping[str, Module], stages: Iterable[str]) -> list[str]:
    """Return the modules that list three or more stages by name, which a new stage would have to change."""
    names = set(stages)
    return [name for name, module in known.items() if any(len(_elements(node) & names) > 2 for node in ast.walk(module.tree))]


def families(root: Path = ROOT) -> tuple[str, ...]:
    """Return the folders of `models/` that define a family."""
    return tuple(sorted(path.parent.name for path in (root / "models").glob("*/family.py")))


def _imported_names(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif node.module and not node.level:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _module_of(name: str, known: Mapping[str, Module]) -> str | None:
    """The module that an imported name is or lies in: `a.b` for `a.b`, `a` for an object `b` of `a`."""
    return next((candidate for candidate in (name, name.rpartition(".")[0]) if candidate in known), None)


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    """The modules that `start` imports directly or through others."""
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting.extend(graph[module])
    return found


def _decides_by(node: ast.AST, families: set[str]) -> bool:
    """True where the syntax takes a decision by the name of a family."""
    if isinstance(node, ast.Compare):
        return "family" in ast.unparse(node) and bool(_texts([node.left, *node.comparators]) & families)
    if isinstance(node, ast.Subscript):
        return ast.unparse(node.value) == "Literal" and bool(_texts([node.slice]) & families)
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return len(_texts(node.elts) & families) > 1
    if isinstance(node, ast.Dict):
        return len(_texts([key for key in node.keys if key]) & families) > 1
    if isinstance(node, ast.arguments):
        defaults = zip(reversed([*node.posonlyargs, *node.args]), reversed(node.defaults), strict=False)
        return any(argument.arg == "family" and _texts([default]) & families for argument, default in defaults)
    return False


def _elements(node: ast.AST) -> set[str]:
    """The texts that are elements of a tuple, list or set."""
    elements = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else []
    return {element.value for element in elements if isinstance(element, ast.Constant) and isinstance(element.value, str)}


def _texts(nodes: Iterable[ast.expr]) -> set[str]:
    constants = (part.value for node in nodes for part in ast.walk(node) if isinstance(part, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


LONG_FUNCTION = 60
"""Lines beyond which a function counts as long."""


def report(known: Mapping[str, Module]) -> Iterator[str]:
    """Yield the measurements as lines of text."""
    return chain(
        _files(known),
        _functions(known),
        _listed("import circles", [" <-> ".join(circle) for circle in circles(import_graph(known))]),
        _listed("imports of a higher package", upward_imports(known)),
        [f"imports inside functions: {len(deferred_imports(known))}"],
        _listed("modules that decide by family outside its folder", family_dispatches(known, families())),
    )


def _files(known: Mapping[str, Module]) -> Iterator[str]:
    lines = Counter({name: len(module.text.splitlines()) for name, module in known.items()})
    longest = ", ".join(f"{name} {count}" for name, count in lines.most_common(3))
    yield f"Python files: {len(known)}"
    yield "files of a folder: " + ", ".join(f"{folder} {count}" for folder, count in files_per_folder(known).most_common(5))
    yield f"lines of a file: {_quantiles([*lines.values()])}; longest {longest}"


def _functions(known: Mapping[str, Module]) -> Iterator[str]:
    sizes = Counter(dict(entry for module in known.values() for entry in module.function_lines))
    long = sum(size > LONG_FUNCTION for size in sizes.values())
    longest = ", ".join(f"{name} {size}" for name, size in sizes.most_common(3))
    yield f"lines of a function: {_quantiles([*sizes.values()])}; longest {longest}"
    yield f"functions above {LONG_FUNCTION} lines: {long} of {len(sizes)} ({long / len(sizes):.2%})"


def _quantiles(values: list[int]) -> str:
    values = sorted(values)
    return f"p50 {values[len(values) // 2]}, p90 {values[len(values) * 9 // 10]}, max {values[-1]}"


def _listed(title: str, entries: list[str]) -> Iterator[str]:
    yield f"{title}: {len(entries)}"
    yield from (f"    {entry}" for entry in entries)


if __name__ == "__main__":
    print("\n".join(report(modules())))
