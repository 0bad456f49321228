"""Token shards as training reads them."""

import numpy as np
import pyarrow as pa
import pytest

from fewstep.config.network import Sizes
from stages.artifacts import Vocabulary
from stages.errors import ArtifactError, DataError
from stages.train.token_files import TokenFiles, vocabulary_sizes


def write(directory, index, rows, kind=None):
    path = directory / "shards" / f"{index:05d}.arrow"
    path.parent.mkdir(parents=True, exist_ok=True)
    lists = pa.list_(kind or pa.uint16())
    columns = {
        "id": pa.array([row[0] for row in rows], pa.int64()),
        "source": pa.array([row[1] for row in rows], lists),
        "target": pa.array([row[2] for row in rows], lists),
    }
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, pa.table(columns).schema) as writer:
        writer.write_table(pa.table(columns))
    return path


def rows_of(ragged):
    return [ragged.values[a:b].tolist() for a, b in zip(ragged.offsets[:-1], ragged.offsets[1:], strict=True)]


@pytest.fixture
def files(tmp_path):
    write(tmp_path / "a", 0, [(0, [7, 8], [9]), (1, [], [10, 11, 12])])
    write(tmp_path / "a", 1, [(2, [13], [14])])
    write(tmp_path / "b", 0, [(0, [15, 16], [17, 18])], pa.uint32())
    return TokenFiles([tmp_path / "a", tmp_path / "b"], Sizes(30, 30, True))


def test_several_artifacts_form_one_list_of_shards(files):
    assert [[lengths.tolist() for lengths in files.lengths(shard)] for shard in range(3)] == [
        [[2, 0], [1, 3]],
        [[1], [1]],
        [[2], [2]],
    ]


def test_a_pool_joins_shards_in_the_order_asked_for(files):
    pool = files.pool([2, 0, 1])
    assert pool.ids.tolist() == [0, 0, 1, 2]
    assert rows_of(pool.source) == [[15, 16], [7, 8], [], [13]]
    assert rows_of(pool.target) == [[17, 18], [9], [10, 11, 12], [14]]
    assert pool.source.offsets.dtype == np.int64


def test_an_id_outside_the_vocabulary_is_named(tmp_path):
    write(tmp_path, 0, [(0, [7], [8])])
    path = write(tmp_path, 1, [(40, [7], []), (41, [29], [9]), (42, [8, 7], [7, 30, 8])])
    files = TokenFiles([tmp_path], Sizes(30, 30, True))
    files.pool([0])
    with pytest.raises(DataError) as caught:
        files.pool([0, 1])
    for part in (str(path), "row 2", "id 42", "target token 30", "vocabulary of 30"):
        assert part in str(caught.value)


def test_each_side_has_its_own_vocabulary(tmp_path):
    write(tmp_path, 0, [(0, [25], [8])])
    TokenFiles([tmp_path], Sizes(30, 20, False)).pool([0])
    with pytest.raises(DataError, match="source token 25"):
        TokenFiles([tmp_path], Sizes(20, 30, False)).pool([0])


def test_a_shard_without_rows(tmp_path):
    write(tmp_path, 0, [])
    files = TokenFiles([tmp_path], Sizes(30, 30, True))
    assert [len(lengths) for lengths in files.lengths(0)] == [0, 0]
    assert rows_of(files.pool([0]).source) == []


def test_sizes_of_a_vocabulary(tmp_path):
    (tmp_path / "vocabulary.json").write_text('{"joint": false, "source_size": 5, "target_size": 6}')
    assert vocabulary_sizes(Vocabulary(tmp_path, "v")) == Sizes(5, 6, False)
    (tmp_path / "vocabulary.json").write_text('{"joint": false}')
    with pytest.raises(ArtifactError, match=r"vocabulary\.json"):
        vocabulary_sizes(Vocabulary(tmp_path, "v"))
