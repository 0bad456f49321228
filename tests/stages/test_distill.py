"""The distill stage: its targets, the outputs that it drops, and pieces that are kept."""

from __future__ import annotations

import errno
import hashlib
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import CHRF

import stages.distill.run
import stages.shared.decoding.systems
from fewstep.config.options import OutputLimits
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.system.description import SYSTEM_FORMAT
from fewstep.system.integrity import measure, seal
from fewstep.translation import Hypothesis
from models.bundle.directory import load_system
from stages.artifacts import ExternalFile, System, Text
from stages.distill import DistillConfig, DistillInputs
from stages.distill.targets import max_output_tokens, problem_of, repeats
from stages.errors import ArtifactError, StageError
from stages.external import ExternalConfig, ExternalInputs
from stages.external.run import run
from stages.shared.decoding.pieces import Piece
from stages.shared.scoring.choice import Candidates, consensus, selector_of
from stages.shared.scoring.options import Choice, TargetChoice
from stages.shared.shards import read_shard, read_shards, shard_path, write_shard
from stages.shared.target_filters import TargetFilters
from tests.stages.comet_program import program
from tests.stages.steps import context_in, read_json, rows_of, write_text

TRANSLATIONS = {"good": [11, 12], "mute": [], "endless": [10, 11, 12, 13, 14, 15], "stuck": [7, 8] * 6, "fine": [13]}
SEARCH = StepwiseSearch(strategy="beam", n_best=2, output_limits=OutputLimits(max_extra_tokens=5))
LONGEST = 30
"""Longest source of the teacher, in tokens."""


class Teacher:
    """Translates a line by the entry of its first word in `TRANSLATIONS`. The second hypothesis is always `99`."""

    memory_errors = (torch.OutOfMemoryError, MemoryError)

    lines: ClassVar[list[str]] = []
    dies_at: ClassVar[int] = 10**9

    def __init__(self) -> None:
        self.decoder = self

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        self.lines += lines
        if len(self.lines) >= self.dies_at:
            raise KeyboardInterrupt
        return [([list(TRANSLATIONS).index(line.split()[0])] * len(line.split()))[:LONGEST] for line in lines]

    def decode_ids(self, ids: Sequence[Sequence[int]], lines: Sequence[str] | None = None) -> list[str]:
        return [" ".join(map(str, row)) for row in ids]

    def prepare(self, sources: Sequence[Sequence[int]], search: Any = None, threads: int | None = None) -> Sequence[Sequence[int]]:
        return sources

    def decode(self, prepared: Sequence[Sequence[int]], search: Any, threads: int | None = None) -> list[list[Hypothesis]]:
        ranked = [list(TRANSLATIONS.values())[ids[0]] for ids in prepared]
        return [[Hypothesis(ids, -1.0, 3), Hypothesis([99], -2.0, 3)] for ids in ranked]


def make_text(path: Path, lines: Sequence[str], targets: Sequence[str], shard_rows: int = 4) -> Text:
    return write_text(path, list(zip(lines, targets, strict=True)), shard_rows, range(0, 2 * len(lines), 2))


def distill(tmp_path: Path, lines: Sequence[str], targets: Sequence[str] = (), **config: Any) -> tuple[Path, dict[str, Any]]:
    text = make_text(tmp_path / "text", lines, targets or ["raw"] * len(lines))
    return finish(tmp_path, text, **config)


def finish(tmp_path: Path, text: Text, *, name: str = "out", **config: Any) -> tuple[Path, dict[str, Any]]:
    """Run the stage, which may continue an earlier attempt."""
    directory = tmp_path / name
    context = context_in(directory, shard_cache=tmp_path / "cache")
    described = {"network": {"max_positions": LONGEST + 1}, **config.pop("described", {})}
    (tmp_path / "teacher").mkdir(exist_ok=True)
    (tmp_path / "teacher" / "system.json").write_text(json.dumps(described))
    inputs = DistillInputs(text, System(tmp_path / "teacher", "system"), config.pop("comet", None))
    stages.distill.run.run(inputs, DistillConfig(**{"search": SEARCH, **config}), context)
    return directory, read_json(directory / "distill.json")


def targets_of(directory: Path) -> dict[int, str]:
    return {row["id"]: row["target"] for row in rows_of(directory)}


@pytest.fixture(autouse=True)
def teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages.shared.decoding.systems, "load_system", lambda directory, device="cpu": Teacher())
    monkeypatch.setattr(stages.distill.run, "PIECE_ROWS", 3)
    monkeypatch.setattr(Teacher, "lines", [])
    monkeypatch.setattr(Teacher, "dies_at", 10**9)


LINES = ["good a", "mute", "fine", "endless", "stuck" + " x" * 20, "good b c", "endless long line", "fine", "fine d"]


def test_targets_are_the_teachers_outputs_and_pairs_without_one_are_dropped(tmp_path: Path) -> None:
    directory, counts = distill(tmp_path, LINES)
    assert counts == {"rows": 9, "kept": 6, "empty": 1, "over_long": 1, "repeating": 1}
    tables = list(read_shards(directory))
    assert [table.num_rows for table in tables] == [4, 2]
    assert tables[0].schema.names == ["id", "source", "target"]
    assert tables[0].schema.metadata is None
    rows = [row for table in tables for row in table.to_pylist()]
    assert rows[0] == {"id": 0, "source": "good a", "target": "11 12"}
    assert [row["id"] for row in rows] == [0, 4, 10, 12, 14, 16]
    assert rows[3]["target"] == "10 11 12 13 14 15"
    assert json.loads((directory / "text.json").read_text()) == {"rows": 6, "shards": 2, "shard_rows": 4}


def test_the_report_has_a_table_of_outcomes(tmp_path: Path) -> None:
    directory, _ = distill(tmp_path, LINES)
    table = json.loads((directory / "records" / "tables" / "distillation.json").read_text())
    assert {row[0]: row[1] for row in table["rows"]} == {
        "kept": "6", "empty output": "1", "output too long": "1", "repetitive output": "1",
    }  # fmt: skip
    assert table["rows"][0][2] == "66.67%"


def test_the_hypothesis_closest_to_the_reference_is_chosen(tmp_path: Path) -> None:
    """A pair is kept if any hypothesis is usable. On a tie the more probable hypothesis is chosen."""
    targets = ["99", "99", "13 99", "so", "so", "11 12", "99", "99", "13"]
    directory, counts = distill(tmp_path, LINES, targets, choose="reference", target_language="de")
    assert list(targets_of(directory).values()) == ["99", "99", "13", "99", "99", "11 12", "99", "99", "13"]
    assert counts == {"rows": 9, "kept": 9, "empty": 0, "over_long": 0, "repeating": 0, "rank_0": 3, "rank_1": 6}
    table = json.loads((directory / "records" / "tables" / "distillation.json").read_text())
    assert "In 6 of 9 pairs the chosen output" in table["caption"]


def test_outputs_much_longer_than_their_source_can_be_dropped(tmp_path: Path) -> None:
    """In tokens, both with EOS: 7 of 2 for `endless`, 3 of 3 and 3 of 4 for `good`, 2 of 2 for `fine`."""
    lines = ["endless a a a", "good a", "good b c", "fine", "endless a a a a"]
    directory, counts = distill(tmp_path, lines, max_ratio=1.2)
    assert counts == {"rows": 5, "kept": 4, "empty": 0, "over_long": 1, "repeating": 0}
    assert list(targets_of(directory)) == [2, 4, 6, 8]


def test_outputs_that_reach_the_teachers_positions_are_too_long(tmp_path: Path) -> None:
    """`endless` has six tokens, and the search allows a source of three tokens eight."""
    lines = ["endless a a", "good a a"]
    assert distill(tmp_path / "roomy", lines, described={"network": {"max_positions": 8}})[1]["over_long"] == 0
    directory, counts = distill(tmp_path / "full", lines, described={"network": {"max_positions": 7}})
    assert counts == {"rows": 2, "kept": 1, "empty": 0, "over_long": 1, "repeating": 0}
    assert list(targets_of(directory)) == [2]


def test_a_source_beyond_the_teachers_limit_is_dropped_and_counted(tmp_path: Path) -> None:
    lines = ["good a", "good" + " x" * 1999, "fine"]
    directory, counts = distill(tmp_path, lines)
    assert counts["long_source"] == 1
    assert list(targets_of(directory)) == [0, 4]
    directory, counts = distill(tmp_path / "cut", lines, described={"max_source_tokens": 20})
    assert "long_source" not in counts, "sources that are truncated by a rule of the run are kept"
    assert list(targets_of(directory)) == [0, 2, 4]


def test_the_hypothesis_nearest_to_all_is_chosen(tmp_path: Path) -> None:
    """With two, both are equally near, and the more probable one stays; the tie shows that the reference plays no part."""
    directory, counts = distill(tmp_path, LINES, ["99"] * len(LINES), choose="mbr")
    assert targets_of(directory)[0] == "11 12"
    assert counts["kept"] == 9, "a pair is kept if any hypothesis is usable"


def test_a_model_chooses_targets_of_many_pieces_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five pieces of nine sources in three calls. `good` and `endless` have more words than `99`."""
    monkeypatch.setattr(stages.distill.targets, "PIECES_OF_A_MODEL", 2)
    comet = ExternalFile(tmp_path / "model.ckpt", "0123")
    comet.path.write_text("{}")
    choice = {"choose": "quality", "min_quality": 0.15, "comet_program": program(tmp_path), "comet": comet}
    directory, counts = distill(tmp_path, LINES, **choice)
    assert targets_of(directory) == {0: "11 12", 10: "11 12", 12: "10 11 12 13 14 15"}
    assert counts == {"rows": 9, "kept": 3, "empty": 0, "over_long": 0, "repeating": 0, "quality": 6, "rank_0": 3}
    assert len(list((directory / "records" / "logs").glob("comet-*.txt"))) == 3
    table = json.loads((directory / "records" / "tables" / "distillation.json").read_text())
    assert "In 0 of 3 pairs the chosen output, which has the highest score (COMET, model)" in table["caption"]
    assert ["below distillation.min_quality", "6", "66.67%"] in table["rows"]


def test_targets_pass_the_filters_and_are_counted_by_reason(tmp_path: Path) -> None:
    filters = TargetFilters(max_length_ratio=3.0, max_other_language=1.0)
    long = "good" + " word" * 20
    directory, counts = distill(tmp_path, ["good a", long], filters=filters, target_language="de")
    assert list(targets_of(directory).values()) == ["11 12"]
    assert counts == {"rows": 2, "kept": 1, "empty": 0, "over_long": 0, "repeating": 0, "length": 1}
    table = json.loads((directory / "records" / "tables" / "distillation.json").read_text())
    assert ["length unlike that of the source", "1", "50.00%"] in table["rows"]


def brute_consensus(texts: Sequence[str]) -> int:
    risks = [sum(CHRF().sentence_score(text, [other]).score for other in texts) for text in texts]
    return max(range(len(texts)), key=lambda index: (round(risks[index], 9), -index))


def test_the_consensus_is_that_of_all_pairs() -> None:
    draw = random.Random(5)
    words = ["der", "die", "kleine", "große", "Hund", "Katze", "läuft", "schläft"]
    for _ in range(30):
        texts = [" ".join(draw.choices(words, k=draw.randint(1, 4))) for _ in range(draw.randint(1, 6))]
        texts += draw.choices(texts, k=draw.randint(0, 3))
        assert consensus(texts) == brute_consensus(texts)
    assert consensus(["a b c d", "x y z w", "x y z w"]) == 1, "a sample that occurs twice counts twice"
    with pytest.raises(ValueError, match="expected at least one"):
        consensus([])


def test_a_teacher_without_usable_outputs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"of 2 sources by the system in \S+, got none \(2 empty output\); look at its outputs"):
        distill(tmp_path, ["mute", "mute a"])


def test_only_appended_text_is_decoded(tmp_path: Path) -> None:
    """Full pieces do not change when a shard grows."""
    distill(tmp_path, LINES[:6])
    first = list(Teacher.lines)
    more = make_text(tmp_path / "more", LINES, ["raw"] * 9)
    directory, counts = finish(tmp_path, more, name="again")
    assert first == LINES[:6]
    assert Teacher.lines[6:] == LINES[4:9], "only the piece that was not full is decoded again"
    assert counts["rows"] == 9
    whole, _ = finish(tmp_path / "fresh", make_text(tmp_path / "fresh" / "text", LINES, ["raw"] * 9))
    assert [p.read_bytes() for p in sorted(directory.rglob("shards/*"))] == [
        p.read_bytes() for p in sorted(whole.rglob("shards/*"))
    ]


def test_a_killed_step_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = make_text(tmp_path / "text", LINES, ["raw"] * 9)
    monkeypatch.setattr(Teacher, "dies_at", 7)
    with pytest.raises(KeyboardInterrupt):
        finish(tmp_path, text)
    monkeypatch.setattr(Teacher, "dies_at", 10**9)
    assert Teacher.lines == LINES[:7] or Teacher.lines == LINES[:8]
    finish(tmp_path, text)
    decoded = [line for line in Teacher.lines if Teacher.lines.count(line) == 1]
    assert set(LINES[:4]) - {"fine"} <= set(decoded), "shards that were done are not decoded again"


def test_a_full_disk_loses_no_finished_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = make_text(tmp_path / "text", LINES, ["raw"] * 9)
    write, written = pa.ipc.new_file, list[str]()

    def full(file: Any, schema: Any) -> Any:
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append("shard")
        return write(file, schema)

    monkeypatch.setattr(pa.ipc, "new_file", full)
    with pytest.raises(StageError, match=r"could not be written: No space left .*free some space"):
        finish(tmp_path, text)
    monkeypatch.setattr(pa.ipc, "new_file", write)
    assert not list(tmp_path.rglob("*.tmp"))
    before = len(Teacher.lines)
    _, counts = finish(tmp_path, text)
    assert counts["rows"] == 9
    assert len(Teacher.lines) - before == 9 - 4, "the two pieces that were written are not decoded again"


@pytest.mark.parametrize(
    ("ids", "message"), [([0, 2, 2, 6], "got 2 after 2"), ([0, 4, 2, 6], "got 2 after 4"), ([0, 2, 4], "expected 4 rows")]
)
def test_a_text_with_missing_or_repeated_rows_is_an_error(tmp_path: Path, ids: list[int], message: str) -> None:
    text = make_text(tmp_path / "text", LINES[:4], ["raw"] * 4)
    context = context_in(tmp_path)
    table = read_shard(shard_path(text.path, 0)).slice(0, len(ids)).set_column(0, "id", pa.array(ids, pa.int64()))
    write_shard(shard_path(text.path, 0), table, context)
    with pytest.raises(ArtifactError, match=message):
        finish(tmp_path, text)


def test_a_kept_piece_with_missing_or_repeated_rows_is_decoded_again(tmp_path: Path) -> None:
    text = make_text(tmp_path / "text", LINES, ["raw"] * 9)
    directory, _ = finish(tmp_path, text)
    sound = [path.read_bytes() for path in sorted(directory.rglob("shards/*"))]
    context = context_in(tmp_path)
    first, second, *_ = sorted((tmp_path / "cache").glob("*.arrow"))
    write_shard(first, read_shard(first).slice(2), context)
    table = read_shard(second)
    write_shard(second, pa.concat_tables([table, table.slice(0, 2)]), context)
    before = len(Teacher.lines)
    again, _ = finish(tmp_path, text, name="again")
    assert 0 < len(Teacher.lines) - before <= 6
    assert [path.read_bytes() for path in sorted(again.rglob("shards/*"))] == sound


def test_a_damaged_teacher_is_reported_and_decoded_pieces_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = make_text(tmp_path / "text", LINES, ["raw"] * 9)
    monkeypatch.setattr(Teacher, "dies_at", 7)
    with pytest.raises(KeyboardInterrupt):
        finish(tmp_path, text)
    monkeypatch.setattr(Teacher, "dies_at", 10**9)
    kept = {path.name: path.read_bytes() for path in (tmp_path / "cache").glob("*.arrow")}
    assert kept
    sizes = {"source": 37, "target": 37, "joint": True}
    weights = tmp_path / "teacher" / "model.safetensors"
    weights.write_bytes(b"\x80\x00 as it was")
    files = [weights, *(weights.with_name(f"{side}.spm") for side in ("source", "target"))]
    for file in files[1:]:
        file.write_bytes(b"pieces")
    whole = {
        "format": SYSTEM_FORMAT, "family": "stepwise", "name": "teacher", "task": "translation", "search": "greedy",
        "searches": {"greedy": {}}, "sizes": sizes,
    }  # fmt: skip
    network = {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "feed_forward": 16, "heads": 2, "max_positions": LONGEST + 1}
    languages = {"source": "en", "target": "de"}
    described = seal({**whole, "languages": languages, "network": network, "parts": {file.name: measure(file) for file in files}})
    weights.write_bytes(b"\x80\x00 as it is!")
    with monkeypatch.context() as real:
        real.setattr(stages.shared.decoding.systems, "load_system", load_system)
        with pytest.raises(ArtifactError, match=r"model.safetensors: .*damaged.*; remove the artifact and run again"):
            finish(tmp_path, text, described=described)
    assert {path.name: path.read_bytes() for path in (tmp_path / "cache").glob("*.arrow")} == kept
    before = len(Teacher.lines)
    _, counts = finish(tmp_path, text)
    assert counts["rows"] == 9
    assert len(Teacher.lines) - before < 9, "finished pieces are not decoded again"


def test_a_worker_without_the_engine_names_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.shared.decoding.searches.find_spec", lambda name: None)
    with pytest.raises(StageError, match=r"pip install ctranslate2"):
        distill(tmp_path, LINES, search=replace(SEARCH, engine="ctranslate2"))
    assert not list((tmp_path / "cache").glob("*"))


def test_a_teacher_without_a_description_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"system.json: expected the description of a system"):
        distill(tmp_path, ["good a"], described={"network": None})


@pytest.mark.parametrize(
    ("ids", "text", "reason"),
    [
        ([], "", "empty"), ([9], " ", "empty"), ([1, 2, 3, 4, 5, 6], "words", None), (list(range(12)), "words", "over_long"),
        (list(range(11)), "words", None), ([4] * 5, "words", None), ([4] * 6, "words", "repeating"),
        ([1, 2, 3, *([8, 9] * 3)], "words", None),
    ],
)  # fmt: skip
def test_problems_of_outputs(ids: list[int], text: str, reason: str | None) -> None:
    assert problem_of(ids, text, max_output_tokens(OutputLimits(max_extra_tokens=10), source_tokens=2)) == reason


def test_outputs_may_be_limited_independently_of_their_sources() -> None:
    """Outputs that reach this limit, such as summaries, are over-long too."""
    limits = OutputLimits(max_extra_tokens=10, max_tokens=9)
    assert [max_output_tokens(limits, source_tokens) for source_tokens in (0, 2, 400)] == [8, 8, 8]
    assert max_output_tokens(OutputLimits(max_extra_tokens=1, max_tokens=9), source_tokens=3) == 4


@given(st.lists(st.integers(0, 2), max_size=24), st.integers(1, 4))
def test_repetitions_agree_with_brute_force(ids: list[int], times: int) -> None:
    found = any(
        ids[start : start + width] * (times + 1) == ids[start : start + width * (times + 1)]
        for width in range(1, len(ids) + 1)
        for start in range(len(ids))
    )
    assert repeats(ids, times) == found


def test_a_piece_takes_little_memory(tmp_path: Path) -> None:
    """The step's own process holds all pieces of a text: 195,313 for 100 million sentences."""
    piece = Piece(tmp_path, 2**40, 512, tmp_path, hashlib.sha256().hexdigest())
    assert not hasattr(piece, "__dict__")
    own = (piece, piece.start, piece.rows, piece.key)  # the paths are those of all pieces of a shard
    assert sum(map(sys.getsizeof, own)) + 40 < 300  # with the header of the garbage collector and two references


ROWS = [
    Candidates("a b c", ["v w", "v w x", "v w x", "y"]),
    Candidates("d", ["z"]),
    Candidates("e f", ["p q", "q r", "p r s", "p q s"]),
]


@pytest.fixture
def model(tmp_path: Path) -> ExternalFile:
    path = tmp_path / "model.ckpt"
    path.write_text("{}")
    return ExternalFile(path, "0123456789abcdef0123")


def chosen(
    tmp_path: Path,
    model: ExternalFile,
    rows: Sequence[Candidates],
    edit: str = "",
    *,
    choose: Choice,
    min_quality: float | None = None,
) -> list[int | None]:
    context = context_in(tmp_path / "step.partial")
    config = TargetChoice(choose=choose, min_quality=min_quality, comet_program=program(tmp_path, edit))
    selector = selector_of(config, model, context)
    assert selector is not None
    return selector(rows)


def test_the_least_risk_is_that_of_all_pairs(tmp_path: Path, model: ExternalFile) -> None:
    def mean(row: Candidates, text: str) -> float:
        return sum(len({*text.split()} & {*other.split()}) for other in row.texts) / len(row.source.split())

    wanted = [max(range(len(row.texts)), key=lambda index: mean(row, row.texts[index])) for row in ROWS]
    assert wanted == [1, 0, 3], "an output that occurs twice counts twice, and the first one wins"
    assert chosen(tmp_path, model, ROWS, choose="mbr") == wanted
    assert chosen(tmp_path, model, [], choose="mbr") == []


def test_the_quality_is_that_of_the_model_and_has_a_minimum(tmp_path: Path, model: ExternalFile) -> None:
    assert chosen(tmp_path, model, ROWS, choose="quality") == [1, 0, 2]
    assert chosen(tmp_path, model, ROWS, choose="quality", min_quality=0.1) == [1, 0, 2]
    assert chosen(tmp_path, model, ROWS, choose="quality", min_quality=0.2) == [1, None, 2]
    assert chosen(tmp_path, model, [], choose="quality") == []


def test_a_model_that_ignores_references_has_no_risk(tmp_path: Path, model: ExternalFile) -> None:
    with pytest.raises(StageError, match=r"model\.ckpt: expected a COMET model that compares with references"):
        chosen(tmp_path, model, ROWS, "[row.update(COMET=len(row['mt'])) for row in rows]", choose="mbr")
    assert chosen(tmp_path, model, [ROWS[1]], "[row.update(COMET=1) for row in rows]", choose="mbr") == [0], "nothing to compare"


def test_the_outputs_of_a_program_are_filtered_by_their_quality(tmp_path: Path, model: ExternalFile) -> None:
    text = write_text(tmp_path / "text", [("one two three", "x"), ("one", "y"), ("", "z"), ("one two", "x")], 2)
    config = ExternalConfig(
        command=("cat",), version="1", choose="quality", min_quality=0.15, comet_program=program(tmp_path), shards_per_process=1
    )
    context = context_in(tmp_path / "external.partial")
    run(ExternalInputs(text, (), comet=model), config, context)
    assert [row["target"] for row in rows_of(context.directory)] == ["one two three", "one two"]
    assert read_json(context.directory / "distill.json") == {"rows": 4, "kept": 2, "empty": 1, "quality": 1}
    table = json.loads((context.directory / "records/tables/distillation.json").read_text())
    assert ["below distillation.min_quality", "1", "25.00%"] in table["rows"]
