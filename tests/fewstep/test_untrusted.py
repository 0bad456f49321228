"""System directories that came from elsewhere: no file outside of them is read or written, and nothing is built before it fits."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

import fewstep
from fewstep import bounded_files
from fewstep.bounded_files import expanded, json_value, read_bounded
from fewstep.families.dag.config import DagSearch
from fewstep.families.parallel.config import ParallelSearch
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.system.description import read_description
from fewstep.system.format import BundleError, write_json
from fewstep.system.integrity import measure, seal
from models.bundle.directory import load_model, load_system
from tests.fewstep.systems import LINES, SIZES, SYSTEMS, write, write_systems

NOBODY = 65534
"""A user without files."""


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_systems(tmp_path_factory.mktemp("systems"))


@pytest.fixture
def directory(systems: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(systems["autoregressive"], tmp_path / "system")


def edit(path: Path, **changes: Any) -> dict[str, Any]:
    """Change a description, with a digest that agrees."""
    description = json.loads(path.read_text())
    description |= changes
    write_json(path, seal(description))
    return description


def with_part(directory: Path, name: str, entry: object) -> None:
    edit(directory / "system.json", parts={**read_description(directory)["parts"], name: entry})


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/hostname", "a/../../secret", "a//b", "./a", "..", ".", "", "a\0b", "x" * 300, "a/"]
)
@pytest.mark.parametrize("verify", [True, False])
def test_a_part_lies_below_the_directory(directory: Path, name: str, verify: bool) -> None:
    (directory.parent / "secret").write_text("secret")
    with_part(directory, name, measure(directory.parent / "secret"))
    with pytest.raises(BundleError, match=r"system.json: parts: expected the (relative )?name of a file"):
        fewstep.load(directory, verify=verify)


def test_a_part_is_no_folder_of_another(directory: Path) -> None:
    with_part(directory, "model.safetensors/x", {"bytes": 1, "crc32": "00000000"})
    with pytest.raises(BundleError, match=r"expected names of files, got 'model.safetensors', which is also the folder of another"):
        fewstep.load(directory)


def test_a_system_is_not_copied_out_of_another(directory: Path, tmp_path: Path, systems: dict[str, Path]) -> None:
    """Its companions are copied by the names of their parts: such a part was read, and written beside the new system."""
    (directory.parent / "secret").write_text("secret")
    with_part(directory, "../secret", measure(directory.parent / "secret"))
    root, (family, config, searches) = systems["aggressive"].parent, SYSTEMS["aggressive"]
    target = tmp_path / "new" / "system"
    with pytest.raises(BundleError, match="expected the relative name of a file"):
        write(
            target, family, config, searches, root / "aggressive-trained" / "model.safetensors", root / "joint.model",
            companions={"verifier": directory},
        )  # fmt: skip
    assert not target.exists() or not list(target.rglob("secret"))
    assert not (target.parent / "secret").exists()


@pytest.mark.parametrize("place", ["model.safetensors", "tables", "tables/tables.bin"])
def test_a_part_is_no_link(directory: Path, place: str) -> None:
    elsewhere = directory.parent / "elsewhere"
    (directory / place).rename(elsewhere)
    (directory / place).symlink_to(elsewhere)
    with pytest.raises(BundleError, match=f"parts: expected a file, got the link {place}; copy the file"):
        fewstep.load(directory)


def test_the_directory_itself_may_be_a_link(directory: Path) -> None:
    (directory.parent / "latest").symlink_to(directory)
    assert len(fewstep.load(directory.parent / "latest").translate(LINES)) == len(LINES)


def test_a_file_that_is_not_described_is_not_read(directory: Path) -> None:
    expected = fewstep.load(directory).translate(LINES)
    description = read_description(directory)
    parts = {name: entry for name, entry in description["parts"].items() if not name.startswith("ngram")}
    edit(directory / "system.json", parts=parts)
    (directory / "ngram" / "model.ngram").write_bytes(b"FSNGRAM\n damaged")
    assert fewstep.load(directory).translate(LINES) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parts": []}, "parts: expected an object"),
        ({"parts": {}}, "parts: expected model.safetensors among them, got none"),
        ({"family": 3}, "family: expected text, got 3"),
        ({"family": "martian"}, "family: expected one of"),
        ({"searches": []}, "searches: expected an object"),
        ({"searches": {"greedy": []}}, "StepwiseSearch: expected a mapping"),
        ({"search": "none"}, "search: expected one of beam, .* got none"),
        ({"languages": {"source": "en"}}, "languages: expected source and target as text"),
        ({"sizes": {"source": 37, "target": "37", "joint": True}}, "expected sizes of two vocabularies"),
        ({"sizes": {"source": -1, "target": 37, "joint": True}}, "expected sizes of two vocabularies"),
        ({"max_source_tokens": 0}, "max_source_tokens: expected at least 1, got 0"),
        ({"max_source_tokens": None}, "max_source_tokens: expected an integer, got None"),
        ({"links": 7}, "links: expected text, got 7"),
        ({"name": None}, "name: expected text, got None"),
        ({"format": True}, "expected a system of format 5, got True"),
        ({"format": 4.0}, "expected a system of format 5, got 4.0"),
    ],
)
def test_a_description_has_the_types_of_its_keys(directory: Path, changes: dict[str, Any], message: str) -> None:
    edit(directory / "system.json", **changes)
    for load in (fewstep.load, load_system):
        with pytest.raises(BundleError, match=message):
            load(directory)


@pytest.mark.parametrize(
    "text", ["[1]", '{"a": "\\ud800"}', "[" * 100_000, '{"a": ' * 100_000, "\xff\xfe", "{" + " " * (1 << 24) + "}"]
)
def test_text_that_is_no_description_is_refused(directory: Path, text: str) -> None:
    (directory / "system.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(BundleError, match=r"system.json: expected JSON"):
        fewstep.load(directory)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feed_forward": 1 << 16}, "expected at least [0-9]+ numbers, got"),
        ({"encoder_layers": 256}, "expected at least [0-9]+ numbers, got"),
        ({"decoder_layers": 256}, "expected at least [0-9]+ numbers, got"),
        ({"width": 1 << 16}, "expected at least [0-9]+ numbers, got"),  # a terabyte
        ({"max_positions": 1 << 16, "positions": "learned"}, "expected at least [0-9]+ numbers, got"),
        ({"feed_forward": 1 << 27}, "feed_forward: expected a number of at most 65536, got 134217728"),
        ({"encoder_layers": 10**9}, "encoder_layers: expected a number of at most 256, got 1000000000"),
        ({"decoder_layers": 257}, "decoder_layers: expected a number of at most 256, got 257"),
        ({"width": 1 << 62}, "width: expected a number of at most 65536, got 4611686018427387904"),
        ({"max_positions": 1 << 63}, "max_positions: expected an integer, got 9223372036854775808"),
        ({"heads": 3}, "heads: expected a divisor of width 16, got 3"),
        ({"width": "16"}, "width: expected an integer, got 16"),
        ({"encoder_layers": 2}, "expected at least [0-9]+ numbers, got|missing encoder.layers.1"),
    ],
)
def test_a_network_is_compared_with_its_weights_before_it_is_built(
    systems: dict[str, Path], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    """The config that is stored with the weights agrees, as in a file that was made to deceive."""
    directory = shutil.copytree(systems["autoregressive"], tmp_path / "system")
    trained = shutil.copytree(systems["autoregressive"].parent / "autoregressive-trained", tmp_path / "trained")
    without_config(directory / "model.safetensors")
    without_config(trained / "model.safetensors")
    system, training = directory / "system.json", trained / "model.json"
    for load, path in ((fewstep.load, system), (load_system, system), (load_model, training)):
        description = json.loads(path.read_text())
        parts = {**description["parts"], "model.safetensors": measure(path.with_name("model.safetensors"))}
        edit(path, network={**description["network"], **changes}, parts=parts)
        with pytest.raises(BundleError, match=message):
            load(path.parent)


@pytest.mark.parametrize("heads", [2, 4, 23])
def test_a_drafter_has_the_heads_that_its_network_states(systems: dict[str, Path], tmp_path: Path, heads: int) -> None:
    directory = shutil.copytree(systems["medusa"], tmp_path / "system")
    without_config(directory / "model.safetensors")
    description = read_description(directory)
    parts = {**description["parts"], "model.safetensors": measure(directory / "model.safetensors")}
    edit(directory / "system.json", network={**description["network"], "draft_width": heads}, parts=parts)
    with pytest.raises(BundleError, match=rf"medusa.bias: expected \[{16 * heads}\] for {heads} heads \(draft_width\), got \[48\]"):
        fewstep.load(directory)


def without_config(path: Path) -> None:
    save_file(load_file(path), path)


def test_positions_are_those_of_the_codes(systems: dict[str, Path], tmp_path: Path) -> None:
    directory = shutil.copytree(systems["autoregressive"], tmp_path / "system")
    without_config(directory / "model.safetensors")
    description = read_description(directory)
    parts = {**description["parts"], "model.safetensors": measure(directory / "model.safetensors")}
    edit(directory / "system.json", network={**description["network"], "max_positions": 1 << 16}, parts=parts)
    with pytest.raises(BundleError, match=r"codes.safetensors: source_positions: expected \[65536, 16\], got \[24, 16\]"):
        fewstep.load(directory)


def test_damaged_tables_and_models_of_a_system_are_named(directory: Path) -> None:
    for name in ("tables/tables.bin", "ngram/model.ngram", "target.spm"):
        content = (directory / name).read_bytes()
        for damaged in (b"", content[: len(content) // 2], b"\xff" * len(content)):
            (directory / name).write_bytes(damaged)
            with pytest.raises(BundleError, match=name.replace(".", r"\.")):
                fewstep.load(directory, verify=False)
        (directory / name).write_bytes(content)
    assert isinstance(fewstep.load(directory).search, StepwiseSearch)


def test_pieces_of_a_vocabulary_are_unicode(directory: Path) -> None:
    for name in ("source.spm", "target.spm"):
        content = (directory / name).read_bytes()
        (directory / name).write_bytes(content.replace("läuft".encode(), b"l\xffxuft"))
    with pytest.raises(BundleError, match=r"source.spm: expected a SentencePiece model, got: 'utf-8' codec"):
        fewstep.load(directory, verify=False)


BORDERS: list[tuple[str, str, str, object, str]] = [
    ("ctc", "beam", "candidates", 1 << 62, "a number of at most 1024"),
    ("ctc", "beam", "beam_size", 1 << 32, "a number of at most 4096"),
    ("ctc", "beam", "ngram_weight", 1e308, "a number of at most 1000000.0"),
    ("ctc", "beam", "token_bonus", float("inf"), "a finite number"),
    ("aggressive", "tree", "tree_nodes", 1 << 61, "a number of at most 512"),
    ("aggressive", "gad", "draft_width", (1 << 63) - 1, "an integer"),
    ("cmlm", "passes", "iterations", (1 << 31) - 1, "a number of at most 256"),
    ("cmlm", "lengths", "length_candidates", 1 << 53, "a number of at most 256"),
    ("autoregressive", "beam", "beam_size", 1 << 32, "a number of at most 1024"),
    ("autoregressive", "beam", "length_penalty", float("nan"), "a finite number"),
    ("dag", "beam", "beams_per_length", 1 << 62, "a number of at most 4096"),
    ("lattice", "viterbi", "length_window", 1 << 62, "a number of at most 1024"),
    ("lattice", "best", "n_best", 1 << 31, "a number of at most 1024"),
]


@pytest.mark.parametrize(("name", "label", "option", "value", "expected"), BORDERS)
def test_a_number_of_a_search_is_refused_with_its_bound(
    systems: dict[str, Path], tmp_path: Path, name: str, label: str, option: str, value: object, expected: str
) -> None:
    directory = shutil.copytree(systems[name], tmp_path / "system")
    searches = read_description(directory)["searches"]
    searches[label][option] = value
    edit(directory / "system.json", searches=searches)
    with pytest.raises(BundleError, match=rf"system\.json: {option}: expected {expected}, got "):
        fewstep.load(directory)


@pytest.mark.parametrize(
    ("name", "search"),
    [
        ("dag", DagSearch(strategy="beam", beam_size=10, candidates=SIZES.target)),
        ("ctc", ParallelSearch(strategy="prefix-beam", candidates=SIZES.target)),
    ],
)
def test_more_candidates_than_tokens_are_all_tokens(systems: dict[str, Path], name: str, search: Any) -> None:
    system = fewstep.load(systems[name])
    assert system.translate(LINES, replace(search, candidates=1024)) == system.translate(LINES, search)


def test_codes_of_slots_suffice_for_the_steps_of_the_network(directory: Path) -> None:
    """They did not, and every line was refused."""
    without_config(directory / "model.safetensors")
    network = {**read_description(directory)["network"], "order": "semi-autoregressive", "tokens_per_direction": 25}
    parts = {**read_description(directory)["parts"], "model.safetensors": measure(directory / "model.safetensors")}
    edit(directory / "system.json", network=network, parts=parts)
    with pytest.raises(BundleError, match="slot_codes: expected 25 rows for outputs in steps of 25 tokens, got 24"):
        fewstep.load(directory)


@pytest.mark.parametrize(
    ("key", "value"),
    [("source_prefix", [7] * 65), ("searches", {str(n): {} for n in range(1001)}), ("parts", {str(n): {} for n in range(10_001)})],
)
def test_entries_of_a_description_are_counted(directory: Path, key: str, value: Any) -> None:
    edit(directory / "system.json", **{key: value})
    with pytest.raises(BundleError, match=f"{key}: expected at most {len(value) - 1} entries, got {len(value)}"):
        fewstep.load(directory)


def test_a_system_is_only_read(systems: dict[str, Path]) -> None:
    """By a user who owns nothing, if the tests run as root."""
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o755)
        directory = shutil.copytree(systems["aggressive"], folder / "system")
        for path in (*directory.rglob("*"), directory):
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = [(path, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*"))]
        worker = multiprocessing.get_context("fork").Process(target=_translate_as_nobody, args=(directory,))
        worker.start()
        worker.join()
        assert worker.exitcode == 0
        assert before == [(path, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*"))]
    finally:
        for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            path.chmod(0o755)
        shutil.rmtree(folder)


def _translate_as_nobody(directory: Path) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    assert len(fewstep.load(directory).translate(LINES)) == len(LINES)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_are_finite(directory: Path, value: float) -> None:
    path = directory / "model.safetensors"
    weights = load_file(path)
    weights["encoder.layers.0.feed_forward.widen.weight"][3, 2] = value
    save_file(weights, path)
    with pytest.raises(BundleError, match=r"expected finite weights, got inf or NaN in encoder.layers.0.feed_forward.widen.weight"):
        fewstep.load(directory, verify=False)


@pytest.mark.parametrize("name", ["autoregressive", "dag", "lattice", "aggressive", "ctc", "cmlm"])
def test_outputs_that_are_no_numbers_are_an_error_or_a_translation(systems: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Weights near the largest number make every product infinite: a beam search then finds nothing."""
    directory = shutil.copytree(systems[name], tmp_path / "system")
    for path in directory.rglob("model.safetensors"):
        save_file({name: array * 0 + 3e38 if array.dtype == "float32" else array for name, array in load_file(path).items()}, path)
    try:
        system = fewstep.load(directory, verify=False)
        found = {label: outcome(system, search) for label, search in system.searches.items()}
    except BundleError:
        return
    assert set(found.values()) <= {"translated", "refused"}
    assert name != "autoregressive" or found["beam"] == "refused"


def outcome(system: fewstep.System, search: Any) -> str:
    try:
        return "translated" if len(system.translate(LINES, search)) == len(LINES) else "lost"
    except BundleError as error:
        return "refused" if "outputs are not numbers" in str(error) else str(error)


def test_a_header_of_millions_of_tensors_is_refused(directory: Path) -> None:
    path = directory / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes((17 << 20).to_bytes(8, "little") + content[8:])
    with pytest.raises(BundleError, match="expected a header of at most 16,777,216 bytes, got 17,825,792"):
        fewstep.load(directory, verify=False)


def test_a_drafter_whose_search_does_not_fit_its_network_is_refused(systems: dict[str, Path], tmp_path: Path) -> None:
    directory = shutil.copytree(systems["aggressive"], tmp_path / "pair")
    description = json.loads((directory / "drafter" / "system.json").read_text())
    searches = description["searches"]
    edit(directory / "drafter" / "system.json", searches=searches | {description["search"]: {"ngram_weight": 0.5}})
    with pytest.raises(BundleError, match=r"drafter: its search is not valid for it: .*ngram_weight"):
        fewstep.load(directory, verify=False)


def test_files_beyond_the_limit_and_pipes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"abc")
    assert read_bounded(tmp_path / "small", 3) == b"abc"
    with pytest.raises(ValueError, match="expected at most 2 bytes, got 3"):
        read_bounded(tmp_path / "small", 2)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="expected at most"):
        read_bounded(tmp_path / "sparse")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ValueError, match="expected a regular file"):
            read_bounded(path)
    with pytest.raises(IsADirectoryError):
        read_bounded(tmp_path)


def test_json_of_too_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_files, "MAX_JSON_VALUES", 5)
    assert json_value(b'{"a": [1, 2, 3]}') == {"a": [1, 2, 3]}
    for text in (b"[1,2,3,4,5,6]", b"[[[[[[]]]]]]", b'{"a":{"b":{"c":{"d":{"e":{}}}}}}'):
        with pytest.raises(ValueError, match="expected at most 5 values of JSON"):
            json_value(text)


def test_text_that_expands_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_files, "MIN_BYTES", 1 << 20)
    one, two = b"a b\n" * 1000, os.urandom(100_000)
    assert expanded(gzip.compress(one) + gzip.compress(two) + bytes(10)) == one + two
    assert expanded(gzip.compress(b"")) == b""
    with pytest.raises(ValueError, match="expected at most"):
        expanded(gzip.compress(bytes(100 << 20)))
    with pytest.raises(EOFError, match="ended before"):
        expanded(gzip.compress(two)[:-9])
