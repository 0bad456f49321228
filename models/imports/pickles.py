"""Checkpoints of `torch.save`, examined before PyTorch reads them.

A file of 2 KB may hold nested lists whose text would have no end, storages of stated terabytes, or records that are compressed a
thousand times. Therefore nothing is built here: the operations of a pickle are followed on nodes without content.
"""

from __future__ import annotations

import pickletools
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from models.imports.files import ForeignModelError

MAX_BYTES = 1 << 26
"""Largest pickle without its tensors."""
MAX_OPERATIONS = 1_000_000
"""Most operations in a pickle: a tensor takes about 40, and a node of each is followed."""
MAX_VALUES = 10_000_000
"""Most values with repeated ones written out."""
MAX_DEPTH = 200
"""Most levels of nesting."""
MAX_TEXT = 1 << 16
"""Longest text that is encoded as bytes."""
MAX_KEYS = 5_000
"""Most keys of dictionaries and sets that are no texts and no small numbers: their hashes may be made equal."""
MAX_KEY_VALUES = 100_000
"""Most values in these keys together, with repeated ones written out: each use of a key goes through them."""
SMALL_NUMBER = 1 << 60
"""Numbers below it have different hashes."""
ARCHIVE = b"PK\x03\x04"
"""First bytes of a file in the format of today."""
PARTS = 5
"""Pickles of a file in the format of old versions: a number, a version, the machine, the content, and the keys of storages."""

ITEM_BYTES = {
    "Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1,
    "Untyped": 1,
}  # fmt: skip
"""Bytes of an element, by the kind of storage."""
FUNCTIONS = {
    "_codecs.encode", "builtins.set", "__builtin__.set", "collections.OrderedDict", "torch.Size", "torch.device",
    "torch._utils._rebuild_parameter", "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2",
    "torch.nn.parameter.Parameter",
}  # fmt: skip
TYPES = {"bfloat16", "bool", "float16", "float32", "float64", "int16", "int32", "int64", "int8", "uint8"}


@dataclass(eq=False, slots=True)
class _Node:
    """A value of a pickle: a constant, or what it consists of."""

    constant: Any = None
    parts: list[_Node] = field(default_factory=list)
    name: str = ""
    """The full name of a class or a function."""


_MARK = _Node()
CONSTANTS = {
    "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING",
    "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8", "BYTEARRAY8",
}  # fmt: skip
EMPTY = {"EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET"}
KEYED = {"SETITEM": 2, "SETITEMS": 2, "DICT": 2, "ADDITEMS": 1, "FROZENSET": 1}
"""Operations that hash values: of how many each the first one is a key."""
HASHING = {"builtins.set", "__builtin__.set", "collections.OrderedDict"}
"""Functions that hash the entries of a list, or the first ones of its pairs."""
TO_MARK = {"TUPLE", "LIST", "DICT", "FROZENSET"}
ADDING = {"APPENDS", "SETITEMS", "ADDITEMS"}
COUNTED = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "REDUCE": 2, "NEWOBJ": 2, "NEWOBJ_EX": 3, "BINPERSID": 1, "STACK_GLOBAL": 2}
"""Operations that take a number of values from the stack and push one."""
INTO = {"APPEND": 1, "SETITEM": 2, "BUILD": 1}
"""Operations that add a number of values to the one below them."""


def check_checkpoint(path: Path, allowed: Sequence[str], kinds: str) -> None:
    """Raise ForeignModelError for a file whose values have no end, that claims more bytes than it has, or that names another class
    or function than those of tensors and the `allowed` ones. `kinds` describes the content for errors. Raises OSError."""
    size = path.stat().st_size
    try:
        claimed = 0
        for stack in _stacks(path):
            claimed += stack.claimed()
            stack.check_values()
            stack.check_names(allowed, kinds)
    except (AttributeError, IndexError, KeyError, MemoryError, OverflowError, TypeError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, ForeignModelError):
            raise ForeignModelError(f"{path.name}: {error}") from error
        raise ForeignModelError(f"{path.name}: expected a file of torch.save, got: {error!r:.200}; copy the file again") from error
    if claimed > size:
        raise ForeignModelError(f"{path.name}: expected tensors of at most its {size} bytes, got {claimed}; copy the file again")


def check_tensors(path: Path, tensors: Mapping[Any, Any]) -> None:
    """Raise ForeignModelError for tensors with more elements than their storages, or of which many share one."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors.values()}
    total = 0
    for name, tensor in tensors.items():
        bytes_ = tensor.numel() * tensor.element_size()
        total += bytes_
        if bytes_ > tensor.untyped_storage().nbytes():
            raise ForeignModelError(
                f"{path.name}: {str(name)[:100]!r}: expected at most as many elements as its storage has, got {list(tensor.shape)}"
            )
    if total > SHARED * sum(storages.values()):
        raise ForeignModelError(
            f"{path.name}: expected tensors of at most {SHARED} times the bytes that are stored, got {total} of "
            f"{sum(storages.values())}"
        )


SHARED = 4
"""How many tensors may share a storage, on average: tied embeddings are three."""


def _stacks(path: Path) -> Iterator[_Stack]:
    """Yield the pickles of a file, followed to their ends. The first bytes distinguish the formats of PyTorch."""
    with path.open("rb") as file:
        is_archive = file.read(len(ARCHIVE)) == ARCHIVE
        if is_archive:
            _check_end(file)
    if is_archive:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            _check_names(entries)
            if any(entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size for entry in entries):
                raise ForeignModelError("expected records that are stored, got compressed ones; copy the file again")
            for entry in entries:
                if entry.filename.lower().endswith(".pkl"):
                    with archive.open(entry) as file:
                        yield _Stack(file, entry.file_size)
        return
    with path.open("rb") as file:
        for _ in range(PARTS):
            yield _Stack(file, path.stat().st_size)


END, END64, LOCATOR = struct.Struct("<4sHHHHIIH"), struct.Struct("<4sQHHIIQQQQ"), struct.Struct("<4sIQI")
"""The end of an archive, and in front of it that of one with sizes of 64 bits, with the place of that one."""


def _check_end(file: IO[bytes]) -> None:
    """Raise ForeignModelError unless the directory of an archive stands at the stated place, and at its end.

    zipfile reads what stands at the end, and PyTorch what stands at the place: of two directories each would read another one.
    """
    size = file.seek(0, 2)
    file.seek(max(0, size - END.size - LOCATOR.size - END64.size))
    last = file.read()
    if len(last) < END.size:
        raise ValueError("no end of the archive")
    mark, *_, length, place, comment = END.unpack(last[-END.size :])
    begin = size - END.size
    agree = mark == b"PK\x05\x06" and comment == 0
    if last[: -END.size][-LOCATOR.size :].startswith(b"PK\x06\x07"):
        begin = size - len(last)
        _, _, stated, _ = LOCATOR.unpack(last[END64.size : -END.size])
        mark, *_, length, place = END64.unpack(last[: END64.size])
        agree = agree and mark == b"PK\x06\x06" and stated == begin
    if not agree or place + length != begin:
        raise ForeignModelError("expected one directory, at the end of the archive, got another place of it; copy the file again")


def _check_names(entries: Sequence[zipfile.ZipInfo]) -> None:
    """Raise ForeignModelError for a name that occurs twice; PyTorch does not tell capital letters from others."""
    if len({entry.filename.lower() for entry in entries}) < len(entries):
        raise ForeignModelError("expected each record once, got one again; copy the file again")


class _Stack:
    """The machine of a pickle."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        """Follow one pickle. Raises ForeignModelError for a large one, and ValueError, IndexError or KeyError for other bytes."""
        self.nodes: list[_Node] = []
        self.memo: dict[Any, _Node] = {}
        self.made: list[_Node] = []
        self.storages: list[_Node] = []
        self.keys: list[_Node] = []
        start = file.tell()
        for number, (operation, argument, _) in enumerate(pickletools.genops(file)):
            if number > MAX_OPERATIONS or file.tell() - start > MAX_BYTES:
                raise ForeignModelError(f"expected a pickle of at most {MAX_BYTES} bytes and {MAX_OPERATIONS} operations, got more")
            if operation.name == "STOP":
                break
            self._follow(operation.name, argument)
        (self.result,) = self.nodes

    def _follow(self, name: str, argument: Any) -> None:
        if name in CONSTANTS:
            self._push(_Node(argument))
        elif name in EMPTY:
            self._push(_Node())
        elif name == "MARK":
            self.nodes.append(_MARK)
        elif name in TO_MARK:
            parts = self._to_mark()
            self._hash(name, parts)
            self._push(_Node(parts=parts))
        elif name in ADDING:
            parts = self._to_mark()
            self._hash(name, parts)
            self.nodes[-1].parts += parts
        elif name in COUNTED:
            self._take(name, COUNTED[name])
        elif name in INTO:
            parts = self._pop(INTO[name])
            self._hash(name, parts)
            self.nodes[-1].parts += parts
        elif name == "GLOBAL":
            self._push(_Node(name=argument.replace(" ", ".")))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.nodes[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.nodes[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.nodes.append(self.memo[argument])
        elif name in ("POP", "DUP"):
            self._pop(1) if name == "POP" else self.nodes.append(self.nodes[-1])
        elif name == "POP_MARK":
            self._to_mark()
        elif name not in ("PROTO", "FRAME"):
            raise ForeignModelError(f"expected a pickle of tensors, got the operation {name}")

    def _take(self, name: str, count: int) -> None:
        parts = self._pop(count)
        node = _Node(parts=parts)
        if name == "STACK_GLOBAL":
            node = _Node(name=f"{parts[0].constant}.{parts[1].constant}")
        elif name == "BINPERSID":
            self.storages.append(node)
        elif (
            name == "REDUCE"
            and parts[0].name == "_codecs.encode"
            and any(isinstance(part.constant, str) and len(part.constant) > MAX_TEXT for part in parts[1].parts)
        ):
            raise ForeignModelError(f"expected a text of at most {MAX_TEXT} characters as bytes")
        elif name == "REDUCE" and parts[0].name in HASHING:
            entries = [entry for argument in parts[1].parts for entry in argument.parts]
            self._add_keys([*entries, *(entry.parts[0] for entry in entries if entry.parts)])
        self._push(node)

    def _hash(self, name: str, parts: list[_Node]) -> None:
        if name in KEYED:
            self._add_keys(parts[:: KEYED[name]])

    def _add_keys(self, keys: list[_Node]) -> None:
        """Raise ForeignModelError for many keys of dictionaries and sets whose hashes may be made equal."""
        self.keys += [key for key in keys if not _has_own_hash(key.constant)]
        if len(self.keys) > MAX_KEYS:
            raise ForeignModelError(f"expected at most {MAX_KEYS} keys other than texts and small numbers, got more")

    def _push(self, node: _Node) -> None:
        self.nodes.append(node)
        self.made.append(node)

    def _pop(self, count: int) -> list[_Node]:
        if count > len(self.nodes) or _MARK in self.nodes[-count:]:
            raise ValueError("a stack that is empty")
        parts = self.nodes[-count:]
        del self.nodes[-count:]
        return parts

    def _to_mark(self) -> list[_Node]:
        place = len(self.nodes) - 1
        while self.nodes[place] is not _MARK:
            place -= 1
            if place < 0:
                raise ValueError("no mark")
        parts = self.nodes[place + 1 :]
        del self.nodes[place:]
        return parts

    def claimed(self) -> int:
        """Return the bytes of all storages. Raises ForeignModelError for one of another kind."""
        found: dict[Any, int] = {}
        for node in self.storages:
            parts = node.parts[0].parts
            if len(parts) < MIN_STORAGE_PARTS or not isinstance(count := parts[4].constant, int) or count < 0:
                raise ForeignModelError("expected storages with a number of elements, got others")
            kind = parts[1].name.removeprefix("torch.storage.").removeprefix("torch.").removesuffix("Storage")
            if kind not in ITEM_BYTES:
                raise ForeignModelError(f"expected storages of numbers, got {parts[1].name[:100]!r}")
            key = parts[2].constant
            found[key] = max(found.get(key, 0), count * ITEM_BYTES[kind])
        return sum(found.values())

    def check_names(self, allowed: Sequence[str], kinds: str) -> None:
        """Raise ForeignModelError for a class or a function that is not listed."""
        for node in self.made:
            name = node.name
            listed = name in FUNCTIONS or name in allowed or name.removeprefix("torch.") in TYPES
            kind = name.removeprefix("torch.storage.").removeprefix("torch.").removesuffix("Storage")
            if name and not listed and not (name.endswith("Storage") and kind in ITEM_BYTES):
                raise ForeignModelError(f"refused global {name[:200]}; only {kinds} are read")

    def check_values(self) -> None:
        """Raise ForeignModelError for values that are too many or too deep with repeated ones written out, or that hold
        themselves."""
        sizes: dict[_Node, tuple[int, int]] = {}
        for root in self.made:  # also those that are dropped, since PyTorch builds them
            open_: list[tuple[_Node, Iterator[_Node]]] = [(root, iter(root.parts))] if root not in sizes else []
            above = {root}
            while open_:
                node, parts = open_[-1]
                part = next((part for part in parts if part not in sizes), None)
                if part is not None:
                    if part in above:
                        raise ForeignModelError("expected values that do not hold themselves; copy the file again")
                    above.add(part)
                    open_.append((part, iter(part.parts)))
                    continue
                total = min(MAX_VALUES + 1, 1 + sum(sizes[part][0] for part in node.parts))
                depth = 1 + max((sizes[part][1] for part in node.parts), default=0)
                if total > MAX_VALUES or depth > MAX_DEPTH:
                    raise ForeignModelError(
                        f"expected at most {MAX_VALUES} values, with repeated ones written out, in {MAX_DEPTH} levels; copy the "
                        "file again"
                    )
                sizes[node] = total, depth
                above.discard(node)
                open_.pop()
        if sum(sizes[key][0] for key in self.keys) > MAX_KEY_VALUES:
            raise ForeignModelError(f"expected keys of at most {MAX_KEY_VALUES} values together, with repeated ones written out")


def _has_own_hash(constant: object) -> bool:
    """Return whether a value is one of which many with the same hash cannot be made: texts are hashed with a secret."""
    return isinstance(constant, str | bytes) or (isinstance(constant, int) and abs(constant) < SMALL_NUMBER)


MIN_STORAGE_PARTS = 5
"""`storage`, its type, its key, its device and its number of elements."""
