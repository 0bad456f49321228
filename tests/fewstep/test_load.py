"""Directories that are not a system of this version are refused with the file at fault."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import fewstep
from fewstep.system.description import OLDEST_SYSTEM_FORMAT, SYSTEM_FORMAT, read_description
from fewstep.system.format import WEIGHTS, write_json
from fewstep.system.integrity import seal
from models.bundle.directory import load_system
from tests.fewstep.systems import LINES, SYSTEMS

PARTS = [
    ("autoregressive", "model.safetensors"),
    ("autoregressive", "codes.safetensors"),
    ("autoregressive", "source.spm"),
    ("autoregressive", "target.spm"),
    ("autoregressive", "ngram/model.ngram"),
    ("autoregressive", "tables/tables.bin"),
    ("ensemble", "members/2/model.safetensors"),
    ("aggressive", "verifier/model.safetensors"),
    ("aggressive", "verifier/system.json"),
    ("aggressive", "drafter/codes.safetensors"),
]


def copied(systems: dict[str, Path], name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(systems[name], tmp_path / "system"))


def describe(directory: Path, **changes: Any) -> None:
    """Change the description as a program of another version would: with its own digest. None removes a key."""
    content = json.loads((directory / "system.json").read_text()) | changes
    del content["sha256"]
    write_json(directory / "system.json", seal({key: value for key, value in content.items() if value is not None}))


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_is_complete_wherever_it_lies(systems: dict[str, Path], tmp_path: Path, name: str) -> None:
    moved = copied(systems, name, tmp_path)
    described = {*read_description(moved)["parts"], "system.json"}
    assert {str(path.relative_to(moved)) for path in moved.rglob("*") if path.is_file()} == described
    assert fewstep.load(moved).translate(LINES) == fewstep.load(systems[name]).translate(LINES)


def test_foreign_directories(systems: dict[str, Path], tmp_path: Path) -> None:
    trained = systems["autoregressive"].parent / "autoregressive-trained"
    for directory in (tmp_path, tmp_path / "nowhere", trained):
        with pytest.raises(fewstep.BundleError, match=rf"{directory}: expected a directory with a system \(it has system.json\)"):
            fewstep.load(directory)
    for content, found in (("", "expected JSON"), ("[]", "got list"), ('{"format": 4', "expected JSON"), ("\xff", "expected JSON")):
        (tmp_path / "system.json").write_bytes(content.encode("latin-1"))
        with pytest.raises(fewstep.BundleError, match=f"system.json: .*{found}.*damaged"):
            fewstep.load(tmp_path)
    (tmp_path / "system.json").write_text('{"name": "a program of another kind"}')
    with pytest.raises(fewstep.BundleError, match=f"expected a system of format {SYSTEM_FORMAT}, got None"):
        fewstep.load(tmp_path)


@pytest.mark.parametrize(
    ("version", "remedy"), [(OLDEST_SYSTEM_FORMAT - 1, "create it again"), (SYSTEM_FORMAT + 1, "or a later one")]
)
def test_older_and_newer_directories(systems: dict[str, Path], tmp_path: Path, version: int, remedy: str) -> None:
    directory = copied(systems, "lattice", tmp_path)
    describe(directory, format=version)
    with pytest.raises(fewstep.BundleError, match=f"of format {SYSTEM_FORMAT}, got {version}; .*{remedy}"):
        fewstep.load(directory)


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_parts_that_are_missing_truncated_or_altered(systems: dict[str, Path], tmp_path: Path, name: str, part: str) -> None:
    directory = copied(systems, name, tmp_path)
    path = directory / part
    whole = path.read_bytes()
    altered = bytearray(whole)
    altered[len(whole) // 2] ^= 1
    for content, found in ((whole[: len(whole) // 2], f"expected {len(whole)} bytes"), (altered, "expected crc32"), (b"", "bytes")):
        path.write_bytes(content)
        with pytest.raises(fewstep.BundleError, match=f"{part}: .*{found}.*damaged"):
            fewstep.load(directory)
    path.unlink()
    with pytest.raises(fewstep.BundleError, match=f"{part}: the file is missing"):
        fewstep.load(directory)


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_truncated_parts_are_found_without_checksums(systems: dict[str, Path], tmp_path: Path, name: str, part: str) -> None:
    directory = copied(systems, name, tmp_path)
    path = directory / part
    whole = path.read_bytes()
    refused = {}
    for size in (0, 7, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        try:
            fewstep.load(directory, verify=False).translate(LINES)
        except fewstep.BundleError as error:
            refused[size] = str(error)
    assert all(part.split("/")[0] in message for message in refused.values())
    assert len(refused) == 4 - (part == "verifier/system.json"), "JSON may lack its last byte, a newline"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"family": "martian"}, "family: expected one of stepwise, dag, lattice, aggressive, parallel, got 'martian'"),
        ({"family": "dag"}, "system.json: .*expected (a known key|an integer)"),
        ({"network": {"wdith": 3}}, "wdith"),
        ({"network": []}, "network"),
        ({"searches": {"best": {"beam": 3}}, "search": "best"}, "beam"),
        ({"searches": []}, "system.json"),
        ({"search": "fast"}, "fast"),
        ({"sizes": {"source": 38, "target": 37, "joint": True}}, r"source.spm: expected 38 pieces .* got 37"),
        ({"sizes": 3}, "sizes"),
        ({"languages": {}}, "source"),
        ({"languages": None}, "expected the keys languages, got none of them"),
        ({"parts": None}, "expected the keys parts, got none of them"),
        ({"parts": {"model.safetensors": {}}}, "system.json: .*parts"),
        ({"parts": []}, "system.json: .*parts"),
        ({"parts": {}}, "system.json: parts: expected model.safetensors among them, got none"),
        ({"max_source_tokens": "many"}, "system.json: .*'many'"),
    ],
)
def test_descriptions_that_cannot_be_used(systems: dict[str, Path], tmp_path: Path, changes: dict[str, Any], found: str) -> None:
    directory = copied(systems, "autoregressive", tmp_path)
    describe(directory, **changes)
    with pytest.raises(fewstep.BundleError, match=found):
        fewstep.load(directory)


def test_parts_of_another_system(systems: dict[str, Path], tmp_path: Path) -> None:
    """Weights of another network of the same shape are refused, even when their checksums are right."""
    directory = copied(systems, "autoregressive", tmp_path)
    shutil.copy(systems["interleaved"] / "model.safetensors", directory)
    with pytest.raises(fewstep.BundleError, match=r"model.safetensors: expected .*; the file is damaged"):
        fewstep.load(directory)
    with pytest.raises(fewstep.BundleError, match="order: trained as 'interleaved', described as 'autoregressive'"):
        fewstep.load(directory, verify=False)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(("name", "part"), [("autoregressive", WEIGHTS), ("ensemble", f"members/2/{WEIGHTS}"), ("dag", WEIGHTS)])
def test_weights_that_are_not_finite_are_refused(
    systems: dict[str, Path], tmp_path: Path, name: str, part: str, value: float
) -> None:
    directory = copied(systems, name, tmp_path)
    with safe_open(directory / part, "np") as file:
        metadata, arrays = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 it is no mapping
    arrays["target_embedding.weight"][3, 1] = value
    save_file(arrays, directory / part, metadata)
    for load in (fewstep.load, load_system):
        with pytest.raises(fewstep.BundleError, match=rf"{part}: expected finite weights, got inf or NaN in target_embedding"):
            load(directory, verify=False)
