"""Print the sizes of the source tree: files, functions, import circles, deferred imports, decisions by family.

Run it as `python -m tests.house_sizes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain

from tests.architecture import (
    Module,
    circles,
    deferred_imports,
    families,
    family_dispatches,
    files_per_folder,
    import_graph,
    modules,
    upward_imports,
)

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
