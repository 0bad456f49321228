"""Shards have a fixed number of rows, are complete or absent, and have equal bytes for equal rows."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import ArtifactError, StageError
from stages.shared.shards import (
    read_shard,
    read_shards,
    rechunk,
    row_counts,
    rows_of,
    shard_path,
    shard_paths,
    write_shard,
    write_shards,
)
from tests.stages.steps import context_in


def table(start: int, rows: int) -> pa.Table:
    names = pa.array([f"s{i}" for i in range(start, start + rows)], pa.string())
    return pa.table({"id": pa.array(range(start, start + rows), pa.int64()), "source": names})


@given(sizes=st.lists(st.integers(0, 7), max_size=12), rows=st.integers(1, 5))
def test_rechunk_keeps_rows_and_order(sizes: list[int], rows: int) -> None:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    chunks = list(rechunk([table(start, size) for start, size in zip(starts, sizes, strict=True)], rows))
    assert [i for chunk in chunks for i in chunk["id"].to_pylist()] == list(range(sum(sizes)))
    assert all(chunk.num_rows == rows for chunk in chunks[:-1])
    assert not chunks or 0 < chunks[-1].num_rows <= rows


def test_bytes_do_not_depend_on_how_the_stream_was_cut(tmp_path: Path) -> None:
    cuts = [[table(0, 10)], [table(0, 3), table(3, 1), table(4, 6)], [table(i, 1) for i in range(10)]]
    written = []
    for number, tables in enumerate(cuts):
        assert write_shards(tables, tmp_path / str(number), 4, context_in(tmp_path / str(number))) == [4, 4, 2]
        written.append([path.read_bytes() for path in shard_paths(tmp_path / str(number))])
    assert written[0] == written[1] == written[2]


def test_shards_of_a_longer_attempt_are_removed(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    write_shards([table(0, 10)], tmp_path, 2, context)
    write_shards([table(0, 5)], tmp_path, 2, context)
    assert row_counts(tmp_path) == [2, 2, 1]
    assert [i for part in read_shards(tmp_path) for i in part["id"].to_pylist()] == list(range(5))


def test_a_shard_that_is_truncated_after_reading_does_no_harm(tmp_path: Path) -> None:
    """A shard that was mapped ended the process with SIGBUS."""
    write_shard(shard_path(tmp_path, 0), table(0, 20_000), context_in(tmp_path))
    read = read_shard(shard_path(tmp_path, 0))
    os.truncate(shard_path(tmp_path, 0), 0)
    assert read.equals(table(0, 20_000))


def test_counting_rows_reads_no_values(tmp_path: Path) -> None:
    write_shard(shard_path(tmp_path, 0), table(0, 20_000), context_in(tmp_path))
    before = pa.total_allocated_bytes()
    assert rows_of(shard_path(tmp_path, 0)) == 20_000
    assert pa.total_allocated_bytes() - before < 10_000


@pytest.mark.parametrize("value", [1 << 30, -5, 7])
def test_offsets_that_lead_out_of_a_shard_are_an_error(tmp_path: Path, value: int) -> None:
    """Arrow itself follows them: reading such a text ends the process, or gives the text of other rows."""
    lines = [f"line {number}" for number in range(3)]
    path = shard_path(tmp_path, 0)
    write_shard(path, pa.table({"id": [0, 1, 2], "source": lines}), context_in(tmp_path))
    offsets = np.array([0, 6, 12, 18], np.int32)
    content = path.read_bytes()
    assert content.count(offsets.tobytes()) == 1
    path.write_bytes(content.replace(offsets.tobytes(), np.array([0, value, 12, 18], np.int32).tobytes()))
    if value == 7:
        assert read_shard(path)["source"].to_pylist() == ["line 0l", "ine 1", "line 2"]
        return
    with pytest.raises(ArtifactError, match=r"00000\.arrow: expected a whole Arrow IPC file, got: .*[oO]ffset"):
        read_shard(path)


def test_text_of_a_shard_is_unicode(tmp_path: Path) -> None:
    path = shard_path(tmp_path, 0)
    write_shard(path, pa.table({"id": [0], "source": ["schöne straße"]}), context_in(tmp_path))
    path.write_bytes(path.read_bytes().replace("schö".encode(), b"sch\xff\xfe"))
    with pytest.raises(ArtifactError, match=r"00000\.arrow: .*UTF8"):
        read_shard(path)


@pytest.mark.parametrize("keep", [0, 5, 200])
def test_a_cut_off_shard_is_an_error(tmp_path: Path, keep: int) -> None:
    path = shard_path(tmp_path, 0)
    write_shard(path, table(0, 100), context_in(tmp_path))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ArtifactError, match=r"00000\.arrow"):
        read_shard(path)


def test_a_gap_is_an_error(tmp_path: Path) -> None:
    write_shards([table(0, 6)], tmp_path, 2, context_in(tmp_path))
    shard_path(tmp_path, 1).unlink()
    with pytest.raises(ArtifactError, match=r"expected shard 00001\.arrow, got 00002\.arrow"):
        shard_paths(tmp_path)


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shard_path(tmp_path, 0)

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stages.shared.shards.durable.rename", full)
    with pytest.raises(StageError, match="No space left"):
        write_shard(path, table(0, 3), context_in(tmp_path))
    assert list(path.parent.iterdir()) == []
