"""Write `docs/configuration.md` and `configs/schema.json` (for editors) from the config's dataclasses.

Run `python -m pipeline.config.docs` after changing one.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from functools import cache, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt, MinLen, MultipleOf

from models.common.network import SIZES
from pipeline.config.expand import FILES, PRESETS
from pipeline.config.problems import keys, members, metadata, strip
from pipeline.config.schema import WrittenConfig, adapter
from pipeline.config.systems import SEARCHES, strategies

ROOT = Path(__file__).resolve().parents[2]
_WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false", Path: "path"}
_BOUNDS = {Ge: "≥ {ge}", Gt: "> {gt}", Le: "≤ {le}", Lt: "< {lt}", MultipleOf: "a multiple of {multiple_of}"}
_INTRO = """\
# Configuration

Made by `python -m pipeline.config.docs`; change the dataclasses, not this page.

A run is one YAML file. Every key is optional and has a default; unknown keys are errors, and all errors are reported at once with
file, line and nearest valid name. `fewstep plan FILE` checks a file without running anything. Relative paths are relative to the
current directory, except `base`, which is relative to the file that names it.

- `--set a.b=VALUE` on the command line sets one value; VALUE is YAML: `--set 'systems.small={data: distilled}'`. A map is
  merged, as with `base`.
- `base: other.yaml` lays the file over another one, which may have a base, too: maps are merged key by key, everything else is
  replaced. A system or test set of the base that is set to `null` is left out, with `--set systems.small=null` too.
- `defaults` is laid under the teacher and every trained system in the same way.
- `size` fills in the sizes that neither the system nor `defaults` states. A system that states its own `size` ignores the sizes in
  `defaults`.
- `task` changes some defaults, as if they stood in a `base`.
- YAML is read by the rules of YAML 1.2: `no` is text, `1e-9` is a number.

Every run keeps its resolved config, in which all values are concrete, in its `run.json`.
"""


def documentation() -> str:
    """The page."""
    sections: dict[type, list[str]] = {}
    _collect(WrittenConfig, "", sections)
    parts = [_INTRO, "## Sizes\n\n" + _sizes(), "## Tasks\n\n" + _tasks()]
    for kind, places in sections.items():
        title = ", ".join(f"`{place}`" for place in dict.fromkeys(places) if place) or "Top level"
        parts.append(f"## {title}\n\n{inspect.getdoc(kind)}\n\n{_table(kind)}")
    return "\n".join(parts)


def schema() -> str:
    """JSON schema of what a file may hold, the short forms included."""
    result = adapter().json_schema(by_alias=True)
    sections: dict[type, list[str]] = {}
    _collect(WrittenConfig, "", sections)
    for kind in sections:
        table = result if kind is WrittenConfig else result["$defs"][kind.__name__]
        for key, name in keys(kind).items():
            table["properties"][key]["description"] = docstrings(kind)[name]
            if name == "search":
                searched = get_args(strip(get_type_hints(kind, include_extras=True)[name]))[0]
                table["properties"][key] = _search_schema(table["properties"][key], strategies(searched))
    for system in result["properties"]["systems"]["patternProperties"].values():
        system["oneOf"].append({"type": "null"})
    tests = result["$defs"]["Corpus"]["properties"]["test"]["patternProperties"]
    for pattern, test in tests.items():
        tests[pattern] = {"anyOf": [test, {"type": "null"}]}
    text = result["$defs"]["TextConfig"]["properties"]
    for key in (*FILES, "references"):
        text[key] = _one_or_list(text[key])
    return json.dumps(result, indent=1, ensure_ascii=False) + "\n"


def _one_or_list(entry: dict[str, Any]) -> dict[str, Any]:
    one: dict[str, Any] = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/RemoteFile"}]}
    items = {"anyOf": [one, {"type": "array", "items": one}]} if entry["items"].get("type") == "array" else one
    return {"description": entry["description"], "anyOf": [one, {"type": "array", "items": items}]}


def _search_schema(entry: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    full = entry["items"]
    short = {"type": "object", "properties": dict.fromkeys(names, full), "additionalProperties": False, "maxProperties": 1}
    item = {"anyOf": [{"enum": list(names)}, short, full]}
    return {"description": entry["description"], "anyOf": [item, {"type": "array", "items": item, "minItems": 1}]}


def _collect(kind: type, place: str, sections: dict[type, list[str]]) -> None:
    """Every dataclass under `kind` with the places where it stands, outermost first."""
    sections.setdefault(kind, []).append(place)
    hints = get_type_hints(kind, include_extras=True)
    for key, name in keys(kind).items():
        for inner, suffix in _dataclasses(hints[name]):
            _collect(inner, f"{place}.{key}{suffix}".removeprefix("."), sections)


def _dataclasses(hint: Any) -> list[tuple[type, str]]:
    """Dataclasses in a type, and how one gets to each from the key."""
    found: list[tuple[type, str]] = []
    for member in members(hint):
        bare = strip(member)
        if is_dataclass(bare):
            found.append((bare, ""))  # type: ignore[arg-type]
        elif get_origin(bare) is dict:
            found += [(kind, f".<{_key_word(bare)}>{rest}") for kind, rest in _dataclasses(get_args(bare)[1])]
        elif get_origin(bare) is tuple:
            found += _dataclasses(get_args(bare)[0])
    return found


def _key_word(bare: Any) -> str:
    return "stage" if get_origin(strip(get_args(bare)[0])) is Literal else "name"


def _table(kind: type) -> str:
    hints = get_type_hints(kind, include_extras=True)
    by_name = {f.name: f for f in fields(kind)}
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, name in keys(kind).items():
        meaning = " ".join(docstrings(kind)[name].split())
        rows.append(f"| `{key}` | {_words(hints[name])} | {_default(by_name[name])} | {meaning} |".replace("  ", " "))
    return "\n".join(rows) + "\n"


def _sizes() -> str:
    names = list(SIZES["tiny"])
    rows = [f"| `size` | {' | '.join(f'`{n}`' for n in names)} |", "|---" * (len(names) + 1) + "|"]
    rows += [f"| {size} | {' | '.join(str(values[n]) for n in names)} |" for size, values in SIZES.items()]
    return "\n".join(rows) + "\n"


def _tasks() -> str:
    """What the tasks preset, beside the usual defaults."""
    leaves = {task: dict(_leaves(preset, ())) for task, preset in PRESETS.items()}
    rows = [f"| key | translation | {' | '.join(PRESETS)} |", "|---" * (len(PRESETS) + 2) + "|"]
    rows.append(
        f"| `languages` | `{_yaml(asdict(WrittenConfig().languages))}` |" + " both `en`, or the one that is stated |" * len(PRESETS)
    )
    for path in dict.fromkeys(path for preset in leaves.values() for path in preset):
        usual = reduce(getattr, path, WrittenConfig())
        values = [_yaml(preset.get(path, usual)) for preset in leaves.values()]
        rows.append(f"| {' | '.join(f'`{cell}`' for cell in ('.'.join(path), _yaml(usual), *values))} |")
    return "Defaults that follow from `task`. In the tables below, defaults are those of translation.\n\n" + "\n".join(rows) + "\n"


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    else:
        yield path, tuple(value) if isinstance(value, list) else value


def _words(hint: Any) -> str:
    return " or ".join(dict.fromkeys(_word(member) for member in members(hint)))


def _word(hint: Any) -> str:
    bare = strip(hint)
    origin, inner = get_origin(bare), get_args(bare)
    if is_dataclass(bare):
        return "map"
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin is tuple:
        return f"list of {_words(inner[0])}"
    if origin is not None:
        return f"map of {_words(inner[1])}"
    return f"{_WORDS[bare]} {', '.join(b for m in metadata(hint) if (b := _bound(m)))}".strip()


def _bound(limit: Any) -> str:
    if isinstance(limit, MinLen):
        return "that is not empty"
    return _BOUNDS[type(limit)].format(**{s: getattr(limit, s) for s in limit.__slots__}) if type(limit) in _BOUNDS else ""


def _default(field: Field[Any]) -> str:
    if field.name in SIZES["tiny"]:
        return "by `size`"
    value = field.default if field.default_factory is MISSING else field.default_factory()
    if value is MISSING:
        return "required"
    if is_dataclass(value) and value == type(value)():  # type: ignore[misc]
        return ""
    text = _yaml(value)
    return "" if text in ("", "{}", "[]") else f"`{text}`"


def _yaml(value: Any) -> str:
    """A default as one would write it; of a map only what differs from the map's own defaults."""
    if isinstance(value, tuple(SEARCHES.values())):
        return str(value.strategy)  # type: ignore[attr-defined]
    if is_dataclass(value):
        usual = type(value)()  # type: ignore[misc]
        return _yaml({f.name: v for f in fields(value) if (v := getattr(value, f.name)) != getattr(usual, f.name)})
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_yaml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(_yaml(v) for v in value) + "]"
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def docstrings(kind: type) -> dict[str, str]:
    """The docstring below each field of a dataclass and of its bases."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not is_dataclass(base):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        for statement, below in pairwise(body):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and isinstance(below, ast.Expr):
                found[statement.target.id] = inspect.cleandoc(ast.literal_eval(below.value))
    return found


def main() -> None:
    (ROOT / "docs/configuration.md").write_text(documentation(), encoding="utf-8")
    (ROOT / "configs/schema.json").write_text(schema(), encoding="utf-8")


if __name__ == "__main__":
    main()
