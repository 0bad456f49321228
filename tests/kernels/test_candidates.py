"""Candidate tables against hand-made corpora and the slow reference: counts, the cut, the prior, the length line, look-ups."""

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fewstep
from fewstep import CandidateOptions, CandidateTables
from kernels.candidates import CountOptions, TableOptions, read_counts
from kernels.reference.candidates import Pair, ReferenceTables
from tests.kernels.candidate_tables import SMALL, A, B, U, V, W, build, close, column, random_pairs, real_pairs, reference_of


def test_tables_of_a_small_corpus(tmp_path: Path) -> None:
    tables = build([SMALL], tmp_path)
    assert tables.row(A, 0) == ([(U, 2)], 2)
    assert tables.row(B, 0) == ([(V, 1), (W, 1)], 2)
    assert tables.row(B, 1) == ([(V, 1)], 1)
    assert tables.row(A, -1) == ([(U, 1)], 1)
    assert tables.row(A, 1) == ([], 0)
    assert (tables.prior(2, 0), tables.prior(2, 1), tables.prior(2, 2)) == ({0: 2, 1: 1}, {0: 1, 1: 2}, {})
    assert close(column(tables, [A, B], 0), {U: 2 / 3, V: 1 / 3})
    assert close(column(tables, [A, B], 1), {U: 1 / 3, V: 1 / 3, W: 1 / 3})
    assert close(column(tables, [A, A], 0), {U: 2 / 3})
    summary = tables.summary
    assert (summary.pairs, summary.linked, summary.unlinked, summary.dropped, summary.kept) == (3, 6, 0, 0, 6)
    assert (summary.entries, summary.max_source, summary.cells) == (5, 2, 2)


def test_a_backoff_smooths_each_row_with_its_source_piece(tmp_path: Path) -> None:
    """#(A, u) = 3 of 3, #(B, v) = 2 and #(B, w) = 1 of 3, and a backoff of 2."""
    tables = build([SMALL], tmp_path, options=TableOptions(backoff=2.0))
    assert tables.row(B, 0) == ([(V, 1), (W, 1)], 2)
    same = {V: (1 + 2 * 2 / 3) / 4, W: (1 + 2 * 1 / 3) / 4}  # (B, 0): v and w once each
    right = {V: (1 + 2 * 2 / 3) / 3, W: (2 * 1 / 3) / 3}  # (B, 1): v once
    assert close(column(tables, [A, B], 1), {V: 2 / 3 * same[V], U: 1 / 3, W: 2 / 3 * same[W]})
    assert close(column(tables, [B, B], 0), {y: 2 / 3 * same[y] + 1 / 3 * right[y] for y in (V, W)})
    assert close(column(tables, [A, A], 0), {U: 1.0})  # (A, 1) was never seen, A was
    summary = tables.summary
    assert (summary.backoff, summary.kept, summary.entries) == (2.0, 6, 5 + 3)
    assert (tables.lexical_row(A), tables.lexical_row(B)) == (([(U, 3)], 3), ([(V, 2), (W, 1)], 3))
    tables.verify()
    with pytest.raises(ValueError, match="outside the vocabulary"):
        tables.lexical_row(32)
    with pytest.raises(ValueError, match="expected tables with a backoff"):
        build([SMALL], tmp_path / "plain").lexical_row(A)


def test_ties_are_in_the_order_of_ids_also_where_the_cut_falls(tmp_path: Path) -> None:
    tables = build([SMALL], tmp_path)
    assert list(column(tables, [A, B], 1, 2)) == [U, V]
    pairs = [([A], [y], [0]) for y in (29, 25, 27, 26, 28)]
    assert [y for y, _ in build([pairs], tmp_path / "cut", options=TableOptions(top=3)).row(A, 0)[0]] == [25, 26, 27]


@pytest.mark.parametrize("backoff", [0.0, 5.0])
@pytest.mark.parametrize("shards", [1, 3, 17])
def test_any_sharding_gives_the_same_bytes(tmp_path: Path, shards: int, backoff: float) -> None:
    pairs, options = random_pairs(random.Random(2), 200), TableOptions(backoff=backoff)
    expected = build([pairs], tmp_path / "one", options=options).path.read_bytes()
    random.Random(shards).shuffle(pairs)
    dealt = [pairs[index::shards] for index in range(shards)]
    assert build(dealt, tmp_path / "many", options=options).path.read_bytes() == expected
    assert build([*dealt, []], tmp_path / "empty", options=options).path.read_bytes() == expected


def test_the_cut_comes_after_the_merge(tmp_path: Path) -> None:
    """The piece that is third in each of three shards is first of all."""
    shards = [[([A], [y], [0])] * 3 + [([A], [y + 1], [0])] * 3 + [([A], [U], [0])] * 2 for y in (24, 26, 28)]
    tables = build(shards, tmp_path, options=TableOptions(top=2))
    assert tables.row(A, 0) == ([(U, 6), (24, 3)], 24)


def test_the_piece_that_is_41st_everywhere_is_first(tmp_path: Path) -> None:
    counting = CountOptions(source_size=32, target_size=200)
    shards = [[([A], [y], [0])] * 2 + [([A], [199], [0])] for y in range(100, 140)]
    tables = build([[pair for pairs in shards[i::3] for pair in pairs] for i in range(3)], tmp_path, counting)
    assert tables.row(A, 0)[0][0] == (199, 40)
    shards = [[([A], [base + y], [0]) for y in range(40) for _ in range(2)] + [([A], [199], [0])] for base in (20, 60, 100)]
    entries, total = build(shards, tmp_path / "three", counting).row(A, 0)
    assert entries == [(199, 3), *((20 + y, 2) for y in range(39))]
    assert total == 243


def test_links_that_are_too_far_are_dropped_from_both_tables(tmp_path: Path) -> None:
    pairs = [([A] * 9, [U, V], [3, 8])]
    tables = build([pairs], tmp_path, CountOptions(source_size=32, target_size=32, max_offset=3))
    assert tables.row(A, 3) == ([(U, 1)], 1)
    assert tables.row(A, 7) == ([], 0)
    assert tables.prior(9, 1) == {}
    assert (tables.summary.linked, tables.summary.dropped) == (1, 1)


def test_pairs_that_are_not_counted_are_reported(tmp_path: Path) -> None:
    pairs = [([], [U], [-1]), ([A], [], []), ([], [], []), ([A] * 5, [U], [4]), ([A], [U] * 5, [0] * 5), ([A] * 4, [U, V], [-1, 2])]
    tables = build([pairs], tmp_path, CountOptions(source_size=32, target_size=32, max_length=4))
    summary = tables.summary
    assert (summary.pairs, summary.empty, summary.too_long) == (1, 3, 2)
    assert (summary.linked, summary.unlinked, summary.source_pieces, summary.target_pieces) == (1, 1, 4, 2)
    assert tables.row(A, 1) == ([(V, 1)], 1)
    assert read_counts(tmp_path / "0.run").too_long == 2


def test_lines_of_40000_pieces_are_left_out(tmp_path: Path) -> None:
    long = [A] * 40_000
    tables = build([[(long, [U], [39_999]), ([A], [U] * 40_000, [0] * 40_000), ([A], [U], [0])]], tmp_path)
    assert (tables.summary.pairs, tables.summary.too_long, tables.summary.max_source, tables.summary.cells) == (1, 2, 1, 1)
    wide = CountOptions(source_size=32, target_size=32, max_offset=32767, max_length=65535)
    tables = build([[(long, [U] * 40_000, list(range(39_999, -1, -1)))]], tmp_path / "wide", wide)
    assert (tables.summary.linked, tables.summary.dropped) == (2 * 16384, 40_000 - 2 * 16384)
    assert tables.prior(40_000, 10_000) == {29_999: 1}
    assert tables.summary.file_bytes < 1 << 21


def test_no_pairs_at_all_give_a_table_without_candidates(tmp_path: Path) -> None:
    tables = build([[]], tmp_path)
    assert (tables.summary.entries, tables.summary.pairs, tables.length(4)) == (0, 0, 5)
    assert column(tables, [A, B], 0) == {}


def test_reserved_pieces_are_counted_and_never_offered(tmp_path: Path) -> None:
    pairs = [([A], [3], [0])] * 3 + [([A], [U], [0])]
    tables = build([pairs], tmp_path, options=TableOptions(top=1))
    assert tables.row(A, 0) == ([(U, 1)], 4)
    assert column(tables, [A], 0) == {U: pytest.approx(0.25)}
    assert list(column(build([pairs], tmp_path / "all", options=TableOptions(reserved=0)), [A], 0)) == [3, U]


def test_a_source_may_hold_reserved_pieces(tmp_path: Path) -> None:
    assert column(build([[([3], [U], [0])]], tmp_path), [3], 0) == {U: pytest.approx(1.0)}


def table_with_line(directory: Path, lengths: Sequence[tuple[int, int]]) -> CandidateTables:
    return build([[([A] * source, [U] * target, [0] * target) for source, target in lengths]], directory)


def test_predicted_lengths_round_halves_to_even(tmp_path: Path) -> None:
    tables = table_with_line(tmp_path, [(1, 1), (3, 2), (5, 3), (7, 4)])
    assert (tables.summary.slope, tables.summary.intercept) == (0.5, 0.5)
    assert [tables.length(source) for source in (10, 8, 6, 7)] == [6, 6, 4, 5]
    assert tables.length_range(10, 0) == (5, 5)
    assert tables.length_range(10, 3) == (2, 8)


def test_short_sources_have_at_least_one_word_and_empty_ones_none(tmp_path: Path) -> None:
    tables = table_with_line(tmp_path, [(1, 1), (3, 2), (5, 3), (7, 4)])
    assert tables.length_range(1, 3) == (1, 4)
    found = fewstep.lattice_candidates(tables, np.zeros((2, 3), np.int64) + A, [0, 1])
    assert found.num_slots.tolist() == [0, 4]
    assert (found.token_ids[0] == -1).all()
    nothing = fewstep.lattice_candidates(tables, np.zeros((1, 0), np.int64), [0])
    assert nothing.token_ids.shape == (1, 0, 64)
    assert fewstep.lattice_candidates(tables, np.zeros((0, 4), np.int64), []).token_ids.shape == (0, 0, 64)
    falling = table_with_line(tmp_path / "falling", [(1, 4), (2, 3), (3, 2), (4, 1)])
    assert falling.length(20) == -14
    assert (falling.length_range(20, 0), falling.length_range(20, 3), falling.length_range(4, 3)) == ((1, 1), (1, 1), (1, 4))


def test_sources_of_one_length_have_a_line_through_the_origin(tmp_path: Path) -> None:
    tables = table_with_line(tmp_path, [(4, 5), (4, 7)])
    assert (tables.summary.slope, tables.summary.intercept) == (1.5, 0.0)


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=30))
def test_the_line_is_the_least_squares_line(tmp_path_factory: pytest.TempPathFactory, lengths: list[tuple[int, int]]) -> None:
    tables = table_with_line(tmp_path_factory.mktemp("line"), lengths)
    reference = ReferenceTables(lengths=lengths)
    assert (tables.summary.slope, tables.summary.intercept) == reference.line()
    if len({source for source, _ in lengths}) > 1:
        fitted = np.polyfit(*np.array(lengths, float).T, 1)
        assert [tables.summary.slope, tables.summary.intercept] == pytest.approx(fitted.tolist(), abs=1e-9)


def test_unseen_cells_fall_back_to_near_lengths_then_to_the_diagonal(tmp_path: Path) -> None:
    """Sources of 5 and of 9 pieces, each linking its only slot to one position."""
    x = list(range(1, 10))
    pairs = [(x[:5], [U], [2]), (x, [V], [8])]
    tables = build([pairs], tmp_path)
    reference = reference_of(pairs)
    for length in range(1, 15):
        assert column(tables, (x * 2)[:length], 0) == pytest.approx(
            {y: math.exp(value) for y, value in reference.candidates((x * 2)[:length], 0, 8)}
        )
    assert reference.prior(7, 0) == {2: 1.0}  # 5 and 9 are equally near
    assert reference.prior(3, 0) == {2: 1.0}
    assert reference.prior(2, 0).keys() == {0, 1}  # 5 has its link at a position that 2 pieces do not have
    assert reference.prior(6, 0) == {2: 1.0}
    assert reference.prior(8, 0) == {2: 1.0}  # 9 is nearer, but links to its ninth piece
    assert len(reference.prior(13, 0)) == 13


@st.composite
def corpora(draw: st.DrawFn) -> list[Pair]:
    pieces = st.integers(0, draw(st.integers(1, 15)))
    pairs: list[Pair] = []
    for _ in range(draw(st.integers(0, 12))):
        source, target = draw(st.lists(pieces, max_size=7)), draw(st.lists(pieces, max_size=7))
        pairs.append((source, target, [draw(st.integers(-1, len(source) - 1)) for _ in target]))
    return pairs


@given(
    corpora(),
    st.lists(st.lists(st.integers(0, 15), max_size=9), min_size=1, max_size=4),
    st.fixed_dictionaries(
        {
            "max_offset": st.integers(0, 6),
            "max_length": st.integers(1, 7),
            "top": st.integers(1, 5),
            "reserved": st.integers(0, 5),
            "tension": st.sampled_from([0.0, 4.0, 14.0, 900.0]),
            "backoff": st.sampled_from([0.0, 0.5, 20.0]),
        }
    ),
    st.integers(1, 6),
    st.sampled_from([0.0, 1e-4, 0.3]),
    st.booleans(),
)
def test_look_ups_equal_the_slow_reference(
    tmp_path_factory: pytest.TempPathFactory,
    pairs: list[Pair],
    sources: list[list[int]],
    limits: dict[str, Any],
    count: int,
    min_prior: float,
    smoothing: bool,
) -> None:
    counting = CountOptions(source_size=16, target_size=16, max_offset=limits["max_offset"], max_length=limits["max_length"])
    options = TableOptions(**{name: limits[name] for name in ("top", "reserved", "tension", "backoff")})
    tables = build([pairs[:5], pairs[5:]], tmp_path_factory.mktemp("tables"), counting, options)
    reference = reference_of(pairs, **limits)
    for x in range(16):
        for offset in range(-8, 9):
            assert tables.row(x, offset) == reference.row(x, offset)
    width = max(map(len, sources))
    ids = np.array([source + [-7] * (width - len(source)) for source in sources])
    how = CandidateOptions(candidates=count, length_window=2, min_prior=min_prior, smoothing=smoothing, threads=3)
    found = fewstep.lattice_candidates(tables, ids, [len(source) for source in sources], options=how)
    for b, source in enumerate(sources):
        assert found.num_slots[b] == reference.length_range(len(source), 2)[1]
        for slot in range(found.token_ids.shape[1]):
            expected = reference.candidates(source, slot, count, min_prior) if slot < found.num_slots[b] else []
            if not smoothing and not any(a < len(source) for a in reference.positions.get((len(source), slot), ())):
                expected = []
            expected += [(-1, -math.inf)] * (count - len(expected))
            assert found.token_ids[b, slot].tolist() == [y for y, _ in expected]
            assert found.log_probs[b, slot].tolist() == pytest.approx([value for _, value in expected], rel=1e-12, abs=1e-15)


def test_lattices_do_not_depend_on_threads_nor_on_company(tmp_path: Path) -> None:
    tables = build([random_pairs(random.Random(5), 400)], tmp_path)
    generator = random.Random(6)
    lengths = [generator.randrange(9) for _ in range(30)]
    ids = np.array([[generator.randrange(32) for _ in range(9)] for _ in lengths])
    found = [fewstep.lattice_candidates(tables, ids, lengths, options=CandidateOptions(candidates=9, threads=n)) for n in (1, 2, 8)]
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))
    for b, length in enumerate(lengths):
        alone = fewstep.lattice_candidates(tables, ids[b : b + 1, :length], [length], options=CandidateOptions(candidates=9))
        slots = int(alone.num_slots[0])
        assert slots == found[0].num_slots[b]
        assert np.array_equal(alone.token_ids[0], found[0].token_ids[b, :slots])
        assert np.array_equal(alone.log_probs[0], found[0].log_probs[b, :slots])


def test_a_sentence_far_longer_than_any_seen_gets_a_lattice(tmp_path: Path) -> None:
    tables = build([random_pairs(random.Random(8), 400)], tmp_path)
    found = fewstep.lattice_candidates(
        tables, [[9] * 3000], [3000], num_slots=[3000], options=CandidateOptions(candidates=4, threads=2)
    )
    assert (found.token_ids[0, :, 0] >= 7).all()
    assert not np.isnan(found.log_probs).any()


def test_real_text(tmp_path: Path) -> None:
    pairs = real_pairs()
    counting = CountOptions(source_size=20_000, target_size=20_000)
    tables = build([pairs[:4500]], tmp_path / "one", counting)
    assert build([pairs[i:4500:17] for i in range(17)], tmp_path / "17", counting).path.read_bytes() == tables.path.read_bytes()
    reference = reference_of(pairs[:4500])
    assert (tables.summary.slope, tables.summary.intercept) == reference.line()
    hits = dict.fromkeys((1, 8, 64), 0)
    for source, target, _ in pairs[4500:4600]:
        found = fewstep.lattice_candidates(tables, [source], [len(source)], num_slots=[len(target)])
        for slot, y in enumerate(target):
            expected = reference.candidates(source, slot, 64)
            assert [id_ for id_ in found.token_ids[0, slot].tolist() if id_ >= 0] == [id_ for id_, _ in expected]
            assert found.log_probs[0, slot, : len(expected)].tolist() == pytest.approx([value for _, value in expected], rel=1e-12)
            for count in hits:
                hits[count] += y in found.token_ids[0, slot, :count]
    words = sum(len(target) for _, target, _ in pairs[4500:4600])
    assert hits[1] > 0.25 * words
    assert hits[64] > 0.65 * words
