"""A kernel with its C++, bindings and reference implementation (docs/contributing/add-a-kernel.md).

The C++ is compiled into a module of its own, whose function is then lent to the extension, so that the example's `lcs.py` is
written as a module of `kernels/` is.
"""

import os
import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from itertools import combinations
from pathlib import Path

import nanobind
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep.native import fewstep_native
from tests.examples.kernel import reference
from tests.examples.kernel.lcs import Ints, lcs_lengths

pytestmark = pytest.mark.slow  # nanobind is compiled
HERE = Path(__file__).parent
ROOT = HERE.parents[2]


@pytest.fixture(scope="module", autouse=True)
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    library = tmp_path_factory.mktemp("example") / "fewstep_example.so"
    compile_module(library)
    loader = ExtensionFileLoader("fewstep_example", str(library))
    spec = spec_from_loader("fewstep_example", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fewstep_native, "lcs_lengths", module.lcs_lengths, raising=False)
        yield


def compile_module(library: Path) -> None:
    """Compile the example's sources and nanobind without optimisation, which takes a few seconds."""
    include = Path(nanobind.include_dir())
    folders = [HERE, ROOT / "kernels", include, include.parent / "ext/robin_map/include", sysconfig.get_paths()["include"]]
    sources = [*HERE.rglob("*.cc"), Path(nanobind.source_dir()) / "nb_combined.cpp"]
    flags = ["-std=c++20", "-O0", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-strict-aliasing"]
    command = [os.environ.get("CXX", "g++"), *flags, *(f"-I{folder}" for folder in folders), *map(str, sources)]
    subprocess.run([*command, "-o", str(library)], check=True)


def padded(rows: Sequence[Sequence[int]], width: int = 0, filler: int = -1) -> tuple[Ints, Ints]:
    """Return rows [B,N] of at least `width` tokens, and their lengths [B]."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    array = np.full((len(rows), max(width, *lengths)), filler, dtype=np.int64)
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array, lengths


def lengths_of(pairs: Sequence[tuple[Sequence[int], Sequence[int]]], width: int = 0, filler: int = -1) -> list[int]:
    first, first_lengths = padded([one for one, _ in pairs], width, filler)
    second, second_lengths = padded([other for _, other in pairs], width, filler)
    return lcs_lengths(first, second, first_lengths, second_lengths).tolist()


def by_brute_force(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the longest subsequence of `a` that is one of `b`."""
    of_b = {chosen for count in range(len(b) + 1) for chosen in combinations(b, count)}
    return max(count for count in range(len(a) + 1) for chosen in combinations(a, count) if chosen in of_b)


TOKENS = st.lists(st.integers(0, 3), max_size=6)
PAIRS = st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=4)


@given(pairs=PAIRS)
def test_equals_the_reference_and_brute_force(pairs: list[tuple[list[int], list[int]]]) -> None:
    found = lengths_of(pairs)
    assert found == [reference.lcs_length(*pair) for pair in pairs]
    assert found == [by_brute_force(*pair) for pair in pairs]


@given(pairs=PAIRS, filler=st.integers(-1, 3))
def test_does_not_depend_on_padding_and_other_rows(pairs: list[tuple[list[int], list[int]]], filler: int) -> None:
    assert lengths_of(pairs, width=9, filler=filler) == [lengths_of([pair])[0] for pair in pairs]


def test_bad_input_is_named() -> None:
    rows, lengths = padded([[1, 2], [3]])
    with pytest.raises(ValueError, match="second: expected 2 rows and lengths"):
        lcs_lengths(rows, rows[:1], lengths, lengths[:1])
    with pytest.raises(ValueError, match="first_lengths: expected 0 to 2, got 3"):
        lcs_lengths(rows, rows, lengths + 1, lengths)
    with pytest.raises(TypeError):
        lcs_lengths(rows.astype(np.float64), rows, lengths, lengths)
