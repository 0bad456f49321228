"""Token shards as training reads them."""

import numpy as np
import pyarrow as pa
import pytest

from fewstep.config.network import Sizes
from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.vocabulary import EOS, MASK
from models.training.batch import Position, shares
from models.training.config import Infilling, TrainingConfig
from stages.artifacts import Tokens, Vocabulary
from stages.errors import ArtifactError, DataError
from stages.train import TrainConfig
from stages.train.token_files import TokenFiles, pool_stream, vocabulary_sizes


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


JOINT = Sizes(400, 400, True)


def masked_stream(directory, sizes=JOINT, max_tokens=256, **options):
    training = TrainingConfig(seed=5, batch_tokens=80, max_tokens=max_tokens)
    config = TrainConfig(family="stepwise", network=StepwiseConfig(), training=training, infilling=Infilling(**options))
    return pool_stream([Tokens(directory, "tokens")], config, sizes)


def pairs_of(stream, epochs, **worker):
    """Return the pairs (epoch, id, source, target) of some epochs as one worker receives them."""
    found = set()
    for part in shares(stream.pools(Position()), 80, 5, num_shares=2, **worker):
        for share in part:
            for batch in share.slices:
                rows = zip(batch.ids.tolist(), batch.source.tolist(), batch.target.tolist(), strict=True)
                found |= {(share.position.epoch, id, *(tuple(filter(None, side)) for side in sides)) for id, *sides in rows}
        if part[0].position.epoch == epochs:
            return {pair for pair in found if pair[0] < epochs}
    raise AssertionError("the stream has no end")


def test_each_epoch_masks_other_spans_and_all_workers_the_same(tmp_path):
    rows = [(row, list(range(10 + row, 40 + row)), [9]) for row in range(24)]
    write(tmp_path, 0, rows[:13])
    write(tmp_path, 1, rows[13:])
    stream, dropped = masked_stream(tmp_path)
    assert dropped == {"too_long": 0, "unfit": 0}
    alone = pairs_of(stream, 2)
    assert len(alone) == 48
    assert {(epoch, id) for epoch, id, *_ in alone} == {(epoch, id) for epoch in range(2) for id in range(24)}
    assert len({pair[1:] for pair in alone}) > 40, "spans differ between epochs"
    workers = [pairs_of(stream, 2, rank=rank, size=2) for rank in range(2)]
    assert workers[0] | workers[1] == alone
    for _, id, source, target in alone:
        assert set(source) | set(target) == {*range(10 + id, 40 + id), EOS, MASK}


def test_lengths_count_after_masking(tmp_path):
    write(tmp_path, 0, [(0, list(range(10, 40)), []), (1, list(range(10, 20)), [])])
    assert masked_stream(tmp_path, max_tokens=28)[1] == {"too_long": 0, "unfit": 0}  # 30 tokens, 5 of them masked in 2 spans
    assert masked_stream(tmp_path, max_tokens=26)[1] == {"too_long": 1, "unfit": 0}
    assert masked_stream(tmp_path, max_tokens=28, target="text")[1] == {"too_long": 1, "unfit": 0}


def test_text_with_masked_spans_needs_one_vocabulary(tmp_path):
    write(tmp_path, 0, [(0, [10, 11], [12])])
    with pytest.raises(DataError, match="pretraining: expected one vocabulary for both sides, got separate ones"):
        masked_stream(tmp_path, Sizes(400, 400, False))


def test_sizes_of_a_vocabulary(tmp_path):
    (tmp_path / "vocabulary.json").write_text('{"joint": false, "source_size": 5, "target_size": 6}')
    assert vocabulary_sizes(Vocabulary(tmp_path, "v")) == Sizes(5, 6, False)
    (tmp_path / "vocabulary.json").write_text('{"joint": false}')
    with pytest.raises(ArtifactError, match=r"vocabulary\.json"):
        vocabulary_sizes(Vocabulary(tmp_path, "v"))
