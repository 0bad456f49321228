"""Files of weights in 16 bits: the same safetensors header, with float16 in place of float32."""

from __future__ import annotations

import json

import numpy as np


def header_bytes(data: bytes) -> int:
    """Return the length of the header of a safetensors file with its own length in front."""
    return 8 + int.from_bytes(data[:8], "little")


def halved(data: bytes) -> bytes | None:
    """Return a safetensors file with its values rounded to float16, or None if it holds other values than float32, or values that
    float16 cannot hold."""
    start = header_bytes(data)
    kinds = {entry["dtype"] for name, entry in json.loads(data[8:start]).items() if name != "__metadata__"}
    with np.errstate(over="ignore"):
        values = np.frombuffer(data, "<f4", offset=start).astype("<f2") if kinds == {"F32"} else None
    return None if values is None or not np.isfinite(values).all() else data[:start] + values.tobytes()


def restored(data: bytes) -> bytes:
    """Return the file in float32 again. It is the original if all its values were those of float16."""
    start = header_bytes(data)
    return data[:start] + np.frombuffer(data, "<f2", offset=start).astype("<f4").tobytes()
