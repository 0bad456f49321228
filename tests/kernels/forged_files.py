"""Files with chosen fields and right checksums: what a reader must refuse although nothing is damaged."""

from __future__ import annotations

import struct
from collections.abc import Mapping

RUN_HEADER, TABLE_HEADER, MODEL_HEADER = 144, 296, 104
"""Sizes of headers, in bytes; the last 8 are the checksum of the others."""

RUN_FIELDS = {"source_size": (16, "I"), "target_size": (20, "I"), "max_offset": (24, "I"), "max_length": (28, "I")}
RUN_FIELDS |= {name: (32 + 8 * n, "Q") for n, name in enumerate(("pairs", "source", "target", "squared", "product"))}
RUN_FIELDS |= {name: (72 + 8 * n, "Q") for n, name in enumerate(("empty", "too_long", "linked", "unlinked", "dropped"))}
RUN_FIELDS |= {"lexical": (112, "Q"), "prior": (120, "Q"), "body": (128, "Q")}
TABLE_FIELDS = {**RUN_FIELDS, "top": (32, "I"), "id_bytes": (40, "I"), "max_source": (44, "I"), "rows": (48, "I")}
TABLE_FIELDS |= {"entries": (52, "I"), "slope": (64, "d"), "intercept": (72, "d"), "tension": (80, "d"), "backoff": (88, "d")}
TABLE_FIELDS |= {"file_bytes": (184, "Q")}
MODEL_FIELDS = {name: (8 + 8 * n, "Q") for n, name in enumerate(("rows", "cells", "words", "letters"))}
MODEL_FIELDS |= {"tension": (40, "d"), "length_ratio": (48, "d"), "p0": (56, "d"), "alpha": (64, "d"), "max_length": (72, "q")}
MODEL_FIELDS |= {"diagonal": (80, "B"), "body": (88, "Q")}
"""Places and types of fields."""


def checksum(content: bytes, before: int = 0) -> int:
    """Return FNV-1a over little-endian words of 8 bytes, as the files use it."""
    value = before ^ 14695981039346656037
    for start in range(0, len(content), 8):
        word = int.from_bytes(content[start : start + 8], "little")
        value = (value ^ word) * 1099511628211 % (1 << 64)
    return value


def forged(content: bytes, header: int, places: Mapping[str, tuple[int, str]], **values: float) -> bytes:
    """Return the content with these fields and the checksum of the altered header."""
    changed = bytearray(content)
    for name, value in values.items():
        place, kind = places[name]
        struct.pack_into(f"<{kind}", changed, place, value)
    struct.pack_into("<Q", changed, header - 8, checksum(bytes(changed[: header - 8])))
    return bytes(changed)


def forged_run(content: bytes, **values: float) -> bytes:
    """Return a file of counts with these fields."""
    return forged(content, RUN_HEADER, RUN_FIELDS, **values)


def forged_tables(content: bytes, **values: float) -> bytes:
    """Return a file of candidate tables with these fields."""
    return forged(content, TABLE_HEADER, TABLE_FIELDS, **values)


def forged_model(content: bytes, sections: list[bytes], **values: float) -> bytes:
    """Return an alignment model with these sections (starts, probabilities, columns, ends, text) and fields."""
    body = 0
    for section in sections:
        body = checksum(section, body)
    padding = [b""] * 2 + [b"\0" * (-len(sections[2]) % 8)] + [b""] * 2
    content = content[:MODEL_HEADER] + b"".join(a + b for a, b in zip(sections, padding, strict=True))
    return forged(content, MODEL_HEADER, MODEL_FIELDS, **{"body": body, **values})
