"""The fuzzer of whole system directories (libFuzzer): an input of any bytes is loaded and used, or refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.fewstep.systems import write_systems
from tests.native.fuzz.libfuzzer import fuzz
from tests.native.fuzz.system_directory import packed, unpacked

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
NAMES = ("autoregressive", "dag", "aggressive", "ctc")
"""Systems from which the fuzzer starts."""
RUNS = [1_500, pytest.param(200_000, marks=pytest.mark.exhaustive)]
WORDS = ("4294967296", "9223372036854775807", "1e308", "-1", "NaN", "null", '"parts"', '"network"', '"F16"', '"BOOL"', '"shape"')
"""Words that the fuzzer inserts."""


def build(program: Path) -> None:
    """Compile the fuzzer with the Python of this process."""
    names = ("LIBDIR", "INCLUDEPY", "LDVERSION")
    libraries, includes, version = (str(sysconfig.get_config_var(name)) for name in names)
    if shutil.which("clang++") is None:
        pytest.skip("libFuzzer needs clang++ (on Debian: clang)")
    if not (list(Path(libraries).glob(f"libpython{version}.*")) and (Path(includes) / "Python.h").exists()):
        pytest.skip("the fuzzer needs Python as a library (on Debian: python3-dev)")
    options = ["-std=c++20", "-O1", "-g", "-fsanitize=fuzzer", "-I", includes, "-o", str(program)]
    subprocess.run(
        ["clang++", *options, str(HERE / "system_directory.cc"), f"-L{libraries}", f"-Wl,-rpath,{libraries}", f"-lpython{version}"],
        check=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("runs", RUNS)
def test_a_directory_is_used_or_refused(runs: int, tmp_path: Path) -> None:
    program, given = tmp_path / "fuzzer", tmp_path / "given"
    build(program)
    given.mkdir()
    (tmp_path / "systems").mkdir()
    systems = write_systems(tmp_path / "systems")
    for name in NAMES:
        (given / name).write_bytes(packed(systems[name]))
    (tmp_path / "words").write_text("".join(map(_quoted, WORDS)))
    options = [f"-dict={tmp_path / 'words'}", "-max_len=1000000", "-len_control=0"]
    environment = os.environ | {
        "FUZZED_PYTHON": sys.executable, "FUZZED_DIRECTORY": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    fuzz(program, runs, 1536, options, environment)


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '\\"') + '"\n'


def test_an_input_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "one").write_bytes(b"1" * 300)
    (tmp_path / "two").write_bytes(b"")
    assert dict(unpacked(packed(tmp_path))) == {"two": b"", "folder/one": b"1" * 300}
