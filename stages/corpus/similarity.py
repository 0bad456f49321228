"""Near-duplicates by MinHash and locality-sensitive hashing (Leskovec et al., "Mining of Massive Datasets", section 3.4).

A pair is the set of its adjacent words, of both sides. Its signature is cut into bands; two pairs with equal values in a band are
similar, with a probability that rises steeply at the threshold. Equal bands are found as equal pairs are, by partitions of hashes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from hashlib import blake2b
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fewstep.text.languages import WITHOUT_SPACES, base_code

PACKAGE = "datasketch"
HASHES = 64
"""Hash functions of a signature."""


def similarity_problem() -> str | None:
    """Return why near-duplicates cannot be found; None if they can."""
    if find_spec(PACKAGE) is None:
        return f"needs the package {PACKAGE}, which is not installed; run: pip install {PACKAGE}, or set it to 1"
    return None


def bands(threshold: float) -> tuple[int, int]:
    """Return the number of bands for a threshold of the Jaccard similarity, and the hash functions of each."""
    from datasketch import MinHashLSH

    index = MinHashLSH(threshold=threshold, num_perm=HASHES)
    return index.b, index.r


def band_hashes(table: pa.Table, languages: tuple[str, str], threshold: float) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each band of each pair [N, bands]."""
    from datasketch import MinHash

    number, width = bands(threshold)
    signatures = MinHash.generator(_shingles(table, languages), num_perm=HASHES, seed=1, hashfunc=zlib.crc32, scheme="affine32")
    digests = [
        blake2b(signature.hashvalues[band * width : (band + 1) * width].tobytes(), digest_size=8, salt=bytes([band])).digest()
        for signature in signatures
        for band in range(number)
    ]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64).reshape(-1, number)


def _shingles(table: pa.Table, languages: tuple[str, str]) -> Iterator[list[bytes]]:
    columns = [table[side].to_pylist() for side in ("source", "target")]
    split = [list if base_code(language) in WITHOUT_SPACES else str.split for language in languages]
    for sides in zip(*columns, strict=True):
        found: list[bytes] = []
        for name, text, units in zip("st", sides, split, strict=True):
            words = ["", *units(text.casefold()), ""]
            found += [f"{name} {left} {right}".encode() for left, right in pairwise(words)]
        yield found
