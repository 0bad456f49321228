"""Curricula: stages that mix texts in shares, whose stream continues from any position and is the same for any workers."""

import json
from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.training.batch import Pool, Position, Ragged, batches, shares
from models.training.config import CurriculumStage, TrainingConfig
from stages import train
from stages.errors import DataError, TransientError
from stages.train.stream import CurriculumStream, MixedText
from tests.stages.steps import context_in, metrics_of, results
from tests.stages.train.toy_training import RECIPE, Stopping, config_of

BUDGET = 40


def text(first, sizes):
    """Return a text whose rows have the ids from `first` on, in shards of `sizes` rows."""
    starts = np.cumsum([first, *sizes])

    def read(shards):
        ids = np.concatenate([np.arange(starts[shard], starts[shard + 1]) for shard in shards])
        lengths = ids % 7 + 1
        rows = Ragged(np.repeat(ids, lengths).astype(np.uint16), np.concatenate([[0], np.cumsum(lengths)]))
        return Pool(ids, rows, rows)

    return MixedText(read, sizes)


def stream_of(stages, texts, seed=3, pool_rows=12, longest=7):
    return CurriculumStream(stages, texts, lambda source, target: np.maximum(source, target) <= longest, BUDGET, seed, pool_rows)


def flat(stream, start=Position(), count=80):
    found = batches(stream.pools(start), BUDGET, stream.seed, start.batch)
    return [(pool.ids[rows].tolist(), position) for pool, rows, position in islice(found, count)]


shards = st.lists(st.integers(1, 9), min_size=1, max_size=4)
stages = st.lists(
    st.tuples(st.floats(0.05, 9), st.floats(0.05, 9), st.booleans(), st.integers(1, 6)), min_size=1, max_size=3
).map(
    lambda drawn: [
        *(CurriculumStage(mix={"a": a, "b": b}, **({"updates": n} if u else {"epochs": n % 3 + 1})) for a, b, u, n in drawn),
        CurriculumStage(mix={"b": 1.0}),
    ]
)  # fmt: skip


@given(stages, shards, shards, st.integers(0, 5), st.integers(0, 40))
def test_the_stream_continues_from_any_position(found, one, other, seed, skip):
    texts = {"a": text(0, one), "b": text(100, other)}
    whole = flat(stream_of(found, texts, seed, longest=5), count=60)
    position = whole[skip][1]
    assert flat(stream_of(found, texts, seed, longest=5), position, 59 - skip) == whole[skip + 1 :]
    for number, stage in enumerate(found[: whole[-1][1].epoch]):
        if stage.updates is not None:
            assert sum(position.epoch == number for _, position in whole) == stage.updates


def test_pairs_come_in_their_shares_and_once_in_a_pass():
    texts = {"small": text(0, [3, 4]), "large": text(100, [50, 41, 9])}
    mix = CurriculumStage(mix={"small": 1, "large": 3})
    found = flat(stream_of([mix], texts), count=400)
    pools = found[-1][1].pool
    ids = [id for row, position in found if position.pool < pools for id in row]
    counted = Counter("small" if id < 100 else "large" for id in ids)
    assert abs(counted["small"] - len(ids) / 4) <= 1
    for name, size in (("small", 7), ("large", 100)):
        own = Counter(id for id in ids if (id < 100) == (name == "small"))
        assert len(own) == size
        assert max(own.values()) - min(own.values()) <= 1, "each pass has every pair once"
    assert flat(stream_of([mix], texts, seed=4))[:9] != found[:9]


def test_a_stage_ends_after_its_updates_or_the_passes_over_its_first_text():
    texts = {"a": text(0, [10, 10]), "b": text(100, [40])}
    found = flat(
        stream_of(
            [
                CurriculumStage(mix={"a": 1.0}, updates=7),
                CurriculumStage(mix={"b": 1.0, "a": 1.0}, epochs=2),
                CurriculumStage(mix={"a": 2.0}),
            ],
            texts,
        ),
        count=200,
    )
    of_stage = [[ids for ids, position in found if position.epoch == stage] for stage in range(3)]
    assert len(of_stage[0]) == 7
    second = Counter(id for ids in of_stage[1] for id in ids)
    passes = [second[id] for id in range(100, 140)]
    assert sum(passes) in range(80, 87)
    assert min(passes) == 2, "the pool in which the second pass ends is whole"
    assert all(id < 100 for ids in of_stage[2] for id in ids)
    assert [position.stage_batches for _, position in found[:9]] == [1, 2, 3, 4, 5, 6, 7, 1, 2]


@pytest.mark.parametrize("size", [2, 3])
def test_workers_share_the_batches_of_one_worker(size):
    texts = {"a": text(0, [10, 10]), "b": text(100, [40])}
    mixed = [CurriculumStage(mix={"a": 1.0, "b": 2.0}, updates=5), CurriculumStage(mix={"b": 1.0})]

    def rows(rank, workers):
        parts = islice(shares(stream_of(mixed, texts).pools(Position()), BUDGET, 3, rank=rank, size=workers, num_shares=6), 20)
        return [(share.position, share.slices[0].ids.tolist()) for part in parts for share in part if share.weight]

    assert sorted(row for rank in range(size) for row in rows(rank, size)) == sorted(rows(0, 1))


CURRICULUM = (CurriculumStage(mix={"raw": 1.0, "held": 3.0}, updates=6), CurriculumStage(mix={"raw": 1.0}))


def test_a_stopped_and_continued_training_with_a_curriculum_is_reproducible(inputs, tmp_path):
    texts = replace(inputs, tokens=(), texts={"raw": inputs.tokens, "held": (inputs.validation,)})
    config = config_of(curriculum=CURRICULUM)
    train.STAGE.run(texts, config, context_in(tmp_path / "straight"))
    for after in (4, 8):  # in either stage
        stopped = tmp_path / f"stopped-{after}"
        with pytest.raises(TransientError):
            train.STAGE.run(texts, config, context_in(stopped, Stopping, after=after))
        train.STAGE.run(texts, config, context_in(stopped, attempt="a2"))
        assert results(stopped) == results(tmp_path / "straight")
    report = json.loads((tmp_path / "straight" / "training.json").read_text())
    assert report["curriculum_stage"] == 2
    begun = {line["curriculum_stage"]: line["step"] for line in metrics_of(tmp_path / "straight") if "curriculum_stage" in line}
    assert begun == {1: 1, 2: 7}
    train.STAGE.run(inputs, config_of(), context_in(tmp_path / "plain"))
    assert results(tmp_path / "plain") != results(tmp_path / "straight")


def test_a_text_without_a_pair_that_fits_is_refused(inputs, tmp_path):
    texts = replace(inputs, tokens=(), texts={"raw": inputs.tokens})
    with pytest.raises(DataError, match="expected pairs to train on, got none of 150"):
        train.STAGE.run(texts, config_of(curriculum=CURRICULUM[1:], batch_tokens=1), context_in(tmp_path))


def test_stages_without_an_end_and_last_stages_with_one_are_refused():
    whole = CurriculumStage(mix={"raw": 1.0})

    def problems(*found, **changes):
        return [str(problem) for problem in replace(RECIPE, curriculum=found, **changes).problems()]

    assert problems(*CURRICULUM) == []
    for wrong, word in (
        (problems(whole, whole), "updates or epochs"),
        (problems(replace(whole, updates=2, epochs=1), whole), "updates or epochs"),
        (problems(*CURRICULUM[:1]), "no end of the last stage"),
        (problems(replace(whole, updates=RECIPE.updates), whole), "before the last update"),
        (problems(*CURRICULUM, patience_epochs=2), "patience_epochs"),
    ):
        assert len(wrong) == 1, wrong
        assert word in wrong[0]
    assert TrainingConfig().curriculum == ()
