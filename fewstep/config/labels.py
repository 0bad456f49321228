"""Labels of searches: short names that are derived from all options, and that can be read back.

A label is the strategy, followed by every option that differs from its default, in the order of the fields and joined by hyphens:

- a number as its key and its value: `beam_size4`, `ngram_weight0.043`
- a switch as its key, or its key after `no_`: `adaptive`, `no_rescore`
- a word of a `Literal` as itself: `int8`; with its key in front if the word is also a value of another option:
  `draft_precision_int8`
- an option type that is always present by its own options, and one that may be absent by its key and all of its values:
  `min_tokens3`, `shortlist100x16`; of options that replace one another the later ones have their keys: `shortlist_recall0.999x16`

Distinct searches have distinct labels. Labels consist of letters, digits, `_`, `-` and `.`, so that they are valid in names of
steps, files and MLflow metrics, and need no quotes in a shell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_NUMBERS: dict[Any, str] = {int: r"-?[0-9]+", float: r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?"}
"""The regular expressions of numbers, by their type."""
_SPELLINGS = {"+": "p"}
"""Characters of words that labels may not contain."""


@dataclass(frozen=True)
class _Option:
    """One value of a search, which may lie in an option type."""

    path: tuple[str, ...]
    kind: Any
    """`int`, `float`, `bool`, a tuple of the words of a `Literal`, or an option type that may be absent."""
    default: Any

    @property
    def key(self) -> str:
        return self.path[-1]


def label_of(search: object) -> str:
    """Return the label of a search, which is a frozen dataclass whose first option is `strategy`."""
    kind: Any = type(search)
    shared = _shared_words(kind)
    strategy, *others = _options(kind)
    written = [_word(_value(search, strategy))]
    for option in others:
        value = _value(search, option)
        if value != option.default:
            written.append(_written(option, value, shared))
    return "-".join(written)


def parse_label(text: str, kind: type[T]) -> T | None:
    """Return the search of type `kind` whose label is `text`; None if it is not such a label."""
    known: Any = kind
    match = _pattern(known).fullmatch(text)
    if match is None:
        return None
    shared = _shared_words(known)
    values = {}
    for number, option in enumerate(_options(known)):
        if (part := match[f"o{number}"]) is not None:
            values[option.path] = _read(option, part, shared)
    search = _build(kind, values)
    return search if label_of(search) == text else None


@cache
def _options(kind: type, above: tuple[str, ...] = ()) -> tuple[_Option, ...]:
    """The options of a search in the order of its fields, those of option types in their place."""
    hints = get_type_hints(kind)
    found: list[_Option] = []
    for field in fields(kind):
        hint = _bare(hints[field.name])
        default = _default(field)
        if is_dataclass(hint) and isinstance(hint, type) and default is not None:
            found += _options(hint, (*above, field.name))
        else:
            found.append(_Option((*above, field.name), get_args(hint) if get_origin(hint) is Literal else hint, default))
    return tuple(found)


def _bare(hint: Any) -> Any:
    """Return a type without `Annotated` and without None."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        (one,) = (member for member in get_args(hint) if member is not NoneType)
        return _bare(one)
    return hint


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _value(search: object, option: _Option) -> Any:
    for name in option.path:
        search = getattr(search, name)
    return search


@cache
def _shared_words(kind: type) -> frozenset[str]:
    """Return the words that are values of several options or equal to a switch."""
    counts: Counter[str] = Counter()
    for option in _options(kind)[1:]:
        counts.update({_word(word) for word in option.kind} if isinstance(option.kind, tuple) else _switches(option))
    return frozenset(word for word, count in counts.items() if count > 1)


def _switches(option: _Option) -> tuple[str, ...]:
    return (option.key, f"no_{option.key}")


def _word(word: object) -> str:
    text = str(word)
    for character, spelling in _SPELLINGS.items():
        text = text.replace(character, spelling)
    return text


def _written(option: _Option, value: Any, shared: frozenset[str]) -> str:
    if value is None:
        return f"no_{option.key}"
    if isinstance(option.kind, tuple):
        return _worded(option, value, shared)
    if option.kind is bool:
        return option.key if value else f"no_{option.key}"
    if is_dataclass(option.kind):
        return option.key + "x".join(_numbers(value))
    return f"{option.key}{_number(value)}"


def _worded(option: _Option, word: object, shared: frozenset[str]) -> str:
    text = _word(word)
    return f"{option.key}_{text}" if text in shared else text


def _numbers(value: Any) -> list[str]:
    """Return the values of an option type: those that replace one another as one text, the later ones with their keys, and the
    others."""
    alternative, others = _alternative_fields(type(value))
    present = {field: part for field in alternative if (part := getattr(value, field)) is not None}
    first = "".join(_key(field, alternative) + _number(part) for field, part in present.items())
    return [*([first] if alternative else []), *(_number(getattr(value, field)) for field in others)]


def _alternative_fields(kind: Any) -> tuple[list[str], list[str]]:
    """Return the fields of an option type that may be absent, since they replace one another, and the others."""
    optional = [field.name for field in fields(kind) if field.default is None]
    return optional, [field.name for field in fields(kind) if field.name not in optional]


def _key(field: str, alternative: list[str]) -> str:
    return "" if field == alternative[0] else f"_{field}"


def _number(value: float) -> str:
    """Return the shortest text that reads as the same number."""
    if isinstance(value, int):
        return str(value)
    text = repr(value + 0.0).replace("e+", "e").replace("e-0", "e-")
    return text.removesuffix(".0")


@cache
def _pattern(kind: type) -> re.Pattern[str]:
    """Return a regular expression with one group for each option."""
    shared = _shared_words(kind)
    strategy, *others = _options(kind)
    groups = [f"(?P<o0>{_alternatives(_word(word) for word in strategy.kind)})"]
    groups += [f"(?:-(?P<o{number}>{_part(option, shared)}))?" for number, option in enumerate(others, 1)]
    return re.compile("".join(groups))


def _part(option: _Option, shared: frozenset[str]) -> str:
    absent = f"|no_{option.key}" if option.default is not None else ""
    if isinstance(option.kind, tuple):
        return _alternatives(_worded(option, word, shared) for word in option.kind) + absent
    if option.kind is bool:
        return _alternatives(_switches(option))
    if is_dataclass(option.kind):
        return option.key + _parts_pattern(option.kind) + absent
    return option.key + _NUMBERS[option.kind] + absent


def _parts_pattern(kind: Any, *, named: bool = False) -> str:
    """Return a regular expression of the values of an option type, with a group for each of them if `named`."""
    hints = get_type_hints(kind)
    numbers = {name: f"({f'?P<{name}>' if named else '?:'}{_NUMBERS[_bare(hint)]})" for name, hint in hints.items()}
    alternative, others = _alternative_fields(kind)
    first = "".join(f"(?:{_key(name, alternative)}{numbers[name]})?" for name in alternative)
    return "x".join([*([first] if alternative else []), *(numbers[name] for name in others)])


def _alternatives(words: Iterator[str] | tuple[str, ...]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


def _read(option: _Option, text: str, shared: frozenset[str]) -> Any:
    if isinstance(option.kind, tuple):
        named = {_worded(option, word, shared): word for word in option.kind} | {_word(word): word for word in option.kind}
        return named.get(text)
    if option.kind is bool:
        return text == option.key
    if text == f"no_{option.key}":
        return None
    numbers = text.removeprefix(option.key)
    if is_dataclass(option.kind):
        return _read_parts(option.kind, numbers)
    return option.kind(numbers)


def _read_parts(kind: Any, text: str) -> Any:
    """Return the option type whose values are in `text`."""
    match = re.fullmatch(_parts_pattern(kind, named=True), text)
    hints = get_type_hints(kind)
    assert match is not None  # the whole label has matched
    return kind(**{name: _bare(hints[name])(part) for name, part in match.groupdict().items() if part is not None})


def _build(kind: type[T], values: dict[tuple[str, ...], Any]) -> T:
    """Return the search with these options, given by their paths. Missing options have their defaults."""
    hints = get_type_hints(kind)
    chosen = {}
    for name in dict.fromkeys(path[0] for path in values):
        if (name,) in values:
            chosen[name] = values[name,]
        else:
            inner = {path[1:]: value for path, value in values.items() if path[0] == name}
            chosen[name] = _build(_bare(hints[name]), inner)
    return kind(**chosen)


def labelled(*searches: T) -> dict[str, T]:
    """Return searches by their labels."""
    return {label_of(search): search for search in searches}
