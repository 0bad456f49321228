"""Values `auto`: numbers that follow from the amount of training text, by one rule for all pairs of languages.

Some follow from the size and the updates of a network, stated or `auto`. The rule interpolates between recipes that were measured:
29,000 pairs of Multi30k and 4.5 million pairs of WMT14. It is written out in `docs/guide/quickstart.md`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from fewstep.config.problems import KeyPath
from models.training.config import TrainingConfig
from pipeline.config.expand import long_text
from pipeline.config.texts import FORMATS, Walk, matching
from pipeline.config.tree import Node, dotted
from stages.artifacts import ExternalFile
from stages.errors import DataError

AUTO = "auto"
DEFAULTS, VOCABULARY = ("defaults",), ("vocabulary",)
LARGE = 500_000
"""Number of pairs from which networks of size `base` are trained, in larger batches."""
SMALL = 20_000
"""Number of pairs below which vocabularies are smaller, and networks of size `tiny` have more dropout."""
REFERENCE_PAIRS = 29_000
"""The amount of text of the recipe from which others are scaled."""
REFERENCE_UPDATES = 7000
"""The updates of this recipe."""
VALIDATIONS = 14
"""Number of validations of a training, of which the best five checkpoints are averaged by default."""


def updates(pairs: int) -> int:
    """Return the updates of a training: in proportion to the square root of the pairs, from 2,000 to 300,000, with two digits."""
    number: float = REFERENCE_UPDATES * math.sqrt(pairs / REFERENCE_PAIRS)
    digits: int = 10 ** max(math.floor(math.log10(max(number, 1))) - 1, 0)
    return min(max(round(number / digits) * digits, 2000), 300_000)


def pieces(pairs: int) -> int:
    """Return the size of a vocabulary."""
    return next((size for limit, size in ((SMALL, 2000), (100_000, 8000), (LARGE, 16_000)) if pairs < limit), 32_000)


def dropout(pairs: int, size: str) -> float:
    """Return the probability of dropout: a network that is large for its text has to be kept from learning it by heart."""
    limits = ((SMALL, 0.3),) if size == "tiny" else ((100_000, 0.3), (LARGE, 0.2))
    return next((share for limit, share in limits if pairs < limit), 0.1)


class Rule(NamedTuple):
    """The rule by which a value `auto` follows from the number of training pairs and another value of the same network."""

    value: Callable[[int, Any], Any]
    """Takes the pairs and the value of the cause."""
    cause: KeyPath = ()
    """The key of this value, stated or `auto`. Empty: the pairs decide alone, and the rule takes None for it."""


SIZE = ("size",)
UPDATES = ("training", "updates")
USUAL: dict[KeyPath, Any] = {SIZE: "tiny", UPDATES: TrainingConfig.updates}
"""The causes of rules with their values where a config does not state them."""
RULES: dict[KeyPath, Rule] = {
    SIZE: Rule(lambda pairs, _: "base" if pairs >= LARGE else "tiny"),
    ("dropout",): Rule(dropout, SIZE),
    UPDATES: Rule(lambda pairs, _: updates(pairs)),
    ("training", "batch_tokens"): Rule(lambda _, size: 4096 if size == "tiny" else 25_000, SIZE),
    ("training", "learning_rate"): Rule(lambda _, size: 0.002 if size == "tiny" else 0.0007, SIZE),
    ("training", "warmup_updates"): Rule(lambda _, updates: min(updates // 7, 4000), UPDATES),
    ("training", "validate_every"): Rule(lambda _, updates: max(updates // VALIDATIONS, 1), UPDATES),
}
"""Keys of `defaults`, the teacher and systems that may be `auto`, each after its cause."""


class Automatic(NamedTuple):
    """A value `auto` of a section of a config."""

    section: KeyPath
    key: KeyPath
    rule: Rule
    node: Node


@dataclass(frozen=True)
class Resolved:
    """A config as written, without values `auto`."""

    root: Node
    pairs: int | None = None
    """Number of training pairs. None: no value follows from it."""
    values: tuple[tuple[str, Any], ...] = ()
    """The values that follow from it, by their keys."""

    def text(self) -> str:
        """Return the values as one line, which is empty if no value follows from the pairs."""
        if self.pairs is None:
            return ""
        return f"from {self.pairs:,} training pairs: " + ", ".join(f"{key} {value}" for key, value in self.values)


def resolve(root: Node, problems: list[str]) -> Resolved:
    """Replace all values `auto`. Problems in counting the pairs are added to `problems`, and the rule then takes 29,000 for
    them."""
    automatic = list(_automatic(root))
    if not automatic:
        return Resolved(root)
    pairs = _pairs(root, automatic[0], problems)
    found = []
    for section, key, rule, node in automatic:
        value = rule.value(pairs, _in_force(root, section, rule.cause) if rule.cause else None)
        root = _put(root, (*section, *key), replace(node, value=value))
        found.append((dotted((*section, *key)), value))
    if automatic[0].section == VOCABULARY:
        vocabulary = root.map["vocabulary"]
        # A size that follows from a rule must not fail for a text that supports fewer pieces.
        inexact = vocabulary.with_value({"exact": vocabulary.child("exact", False), **vocabulary.map})
        root = _put(root, VOCABULARY, inexact)
    return Resolved(root, pairs, tuple(found))


def _automatic(root: Node) -> Iterator[Automatic]:
    """Yield all values `auto`, each after its cause. A network that states the cause of a value and takes the value from `defaults`
    has a value of its own."""
    size = _stated(root, (*VOCABULARY, "size"))
    if size is not None and size.value == AUTO:
        yield Automatic(VOCABULARY, ("size",), Rule(lambda pairs, _: pieces(pairs)), size)
    for section in (DEFAULTS, ("teacher",), *(("systems", name) for name in _map(root, ("systems",)))):
        for key, rule in RULES.items():
            node = _stated(root, (*section, *key))
            if node is None and rule.cause and _stated(root, (*section, *rule.cause)):
                node = _stated(root, (*DEFAULTS, *key))
            if node is not None and node.value == AUTO:
                yield Automatic(section, key, rule, node)


def _stated(root: Node, path: KeyPath) -> Node | None:
    node, rest = root.locate(path)
    return None if rest else node


def _in_force(root: Node, section: KeyPath, cause: KeyPath) -> Any:
    """Return the value of a cause: of the section, of `defaults`, or the usual one, which also stands for a value of a wrong type,
    which the validation reports."""
    node = _stated(root, (*section, *cause)) or _stated(root, (*DEFAULTS, *cause))
    usual = USUAL[cause]
    return node.value if node is not None and type(node.value) is type(usual) else usual


def _map(root: Node, path: KeyPath) -> dict[str, Node]:
    node = _stated(root, path)
    return {} if node is None else node.map


def _put(root: Node, path: KeyPath, node: Node) -> Node:
    """Return a tree with a node at a path, or as it is if a value on the way is no map, which the validation reports."""
    if not path:
        return node
    if not isinstance(root.value, dict):
        return root
    key = str(path[0])
    return root.with_value({**root.map, key: _put(root.map.get(key) or root.child(key, {}), path[1:], node)})


def _pairs(root: Node, first: Automatic, problems: list[str]) -> int:
    """Return the number of training pairs, stated or counted."""
    corpus = _map(root, ("corpus",))
    stated = corpus["pairs"].value if "pairs" in corpus else None
    if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0:
        return stated
    try:
        found = count_pairs(long_text(corpus["train"]) if "train" in corpus else root.child("train", {}))
        if found:
            return found
        reason = "got no pairs"
    except DataError as error:
        reason = str(error)
    where = f"{first.node.where}: {dotted((*first.section, *first.key))}"
    problems.append(f"{where}: expected training text whose pairs can be counted; {reason}; state their number as corpus.pairs")
    return REFERENCE_PAIRS


NAMED = ("sacrebleu", "mtdata", "opus")
"""Keys of text that is known by name, and counted only when it was downloaded."""


def count_pairs(text: Node) -> int:
    """Return the pairs of a text in its long form; 0 for values of a wrong shape, which the validation reports.

    Raises DataError for a part that cannot be counted: a missing file, or text that is not on this machine.
    """
    for key in NAMED:
        if key in text.map and text.map[key].value:
            raise DataError(f"text by name ({key}) is not on this machine")
    embedded = text.map["embedded"].value if "embedded" in text.map else 0
    found = embedded if isinstance(embedded, int) else 0
    walk = Walk()
    return found + sum(_file_pairs(file, kind, walk) for kind in FORMATS if kind != "target" for file in _files(text, kind))


def _files(text: Node, kind: str) -> Iterator[Node]:
    files = text.map[kind].value if kind in text.map else []
    yield from files if isinstance(files, list) else []


def _file_pairs(file: Node, kind: str, walk: Walk) -> int:
    """Return the pairs of a file: a path, a pattern of paths, or a map of `path` or `url`."""
    path, member = (file.map[key].value if key in file.map else "" for key in ("path", "member"))
    if "url" in file.map:
        raise DataError(f"{file.map['url'].plain()} is not on this machine")
    path = path or file.value
    if not isinstance(path, str) or not isinstance(member, str):
        return 0
    return sum(_count(one, member, *_state(one), kind) for one in matching(Path(path), walk))


def _state(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=256)
def _count(path: Path, member: str, size: int, modified: int, kind: str) -> int:
    """Return the rows of a file, or of its member; `size` and `modified` are part of the key of the cache."""
    from stages.corpus.readers import READERS

    return READERS.get(kind, READERS["lines"]).rows(ExternalFile(path, "", member), None)
