"""Files of counts and candidate tables: damaged and mismatched ones are refused."""

import hashlib
import math
import pickle
import random
import struct
from pathlib import Path

import numpy as np
import pytest

import fewstep
from fewstep import CandidateOptions, CandidateTables
from kernels.candidates import CountOptions, Sentences, TableOptions, count_candidates, merge_candidates, read_counts
from kernels.reference.candidates import Pair
from tests.kernels.candidate_tables import COUNTING, SMALL, A, B, U, V, build, column, random_pairs


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> CandidateTables:
    options = TableOptions(vocabulary=bytes(range(32)))
    return build([random_pairs(random.Random(9), 60)], tmp_path_factory.mktemp("tables"), options=options)


def test_tables_can_be_sent_to_other_processes(tables: CandidateTables) -> None:
    again = pickle.loads(pickle.dumps(tables))
    assert (again.path, again.summary) == (tables.path, tables.summary)


def test_tables_of_another_vocabulary_are_refused(tables: CandidateTables) -> None:
    assert CandidateTables.load(tables.path, vocabulary=bytes(range(32))).summary == tables.summary
    with pytest.raises(
        ValueError, match=r"expected candidate tables of the vocabulary ffff.*got those of 00010203.*build the tables"
    ):
        CandidateTables.load(tables.path, vocabulary=b"\xff" * 32)


def test_files_that_are_no_tables_are_refused(tables: CandidateTables, tmp_path: Path) -> None:
    data = tables.path.read_bytes()
    path = tmp_path / "damaged.bin"
    with pytest.raises(FileNotFoundError, match=r"damaged\.bin"):
        CandidateTables.load(path)
    with pytest.raises(IsADirectoryError):
        CandidateTables.load(tmp_path)
    newer = data[:8] + struct.pack("<I", 3) + data[12:]
    wrong = {"": b"", "cut header": data[:100], "cut": data[:-1], "longer": data + b"\0", "text": b"text" * 200, "newer": newer}
    for content in wrong.values():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"damaged\.bin: expected candidate tables, got"):
            CandidateTables.load(path)


def test_every_altered_byte_of_the_header_is_noticed(tables: CandidateTables, tmp_path: Path) -> None:
    data = tables.path.read_bytes()
    path = tmp_path / "altered.bin"
    for place in range(288):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        with pytest.raises(ValueError, match="expected candidate tables, got"):
            CandidateTables.load(path)


def test_altered_bytes_elsewhere_are_noticed_or_do_no_harm(tables: CandidateTables, tmp_path: Path) -> None:
    """A look-up in a damaged file fails or answers, but never with impossible ids or NaN. `verify` finds all damage."""
    data = bytearray(tables.path.read_bytes())
    tables.verify()
    generator = random.Random(10)
    ids = np.array([[generator.randrange(32) for _ in range(8)] for _ in range(8)])
    path = tmp_path / "altered.bin"
    refused = 0
    for _ in range(300):
        place = generator.randrange(288, len(data))
        flipped = bytearray(data)
        flipped[place] ^= 1 << generator.randrange(8)
        path.write_bytes(flipped)
        altered = CandidateTables.load(path)
        with pytest.raises(ValueError, match=r"altered\.bin: the candidate tables were altered"):
            altered.verify()
        try:
            found = fewstep.lattice_candidates(altered, ids, [8] * 8)
        except ValueError as error:
            assert "damaged" in str(error)  # noqa: PT017
            refused += 1
        else:
            assert ((found.token_ids == -1) | ((found.token_ids >= 7) & (found.token_ids < 32))).all()
            assert not np.isnan(found.log_probs).any()
    assert refused > 10


def test_counts_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    build([SMALL], tmp_path)
    data = (tmp_path / "0.run").read_bytes()
    path = tmp_path / "wrong.run"
    for content in (b"", data[:40], data[:-1], data + b"\0", data[:200] + b"\1" + data[201:], tables_bytes(tmp_path)):
        path.write_bytes(content)
        for read in (lambda: read_counts(path), lambda: merge_candidates([path], tmp_path / "out.bin")):
            with pytest.raises(ValueError, match=r"wrong\.run: expected the counts of a shard, got .*; count it again"):
                read()
    assert not (tmp_path / "out.bin").exists()


def tables_bytes(directory: Path) -> bytes:
    return (directory / "tables.bin").read_bytes()


def test_counts_of_other_limits_do_not_mix(tmp_path: Path) -> None:
    build([SMALL], tmp_path / "a")
    build([SMALL], tmp_path / "b", CountOptions(source_size=32, target_size=32, max_offset=9))
    with pytest.raises(ValueError, match=r"b/0\.run: expected counts with the limits of .*a/0\.run"):
        merge_candidates([tmp_path / "a/0.run", tmp_path / "b/0.run"], tmp_path / "out.bin")
    with pytest.raises(ValueError, match="at least one shard"):
        merge_candidates([], tmp_path / "out.bin")
    with pytest.raises(OSError, match=r"none/out\.bin"):
        merge_candidates([tmp_path / "a/0.run"], tmp_path / "none/out.bin")


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (([32], [U], [0]), "pair 1: source piece 32 is outside the vocabulary of 32"),
        (([A], [-1], [0]), "pair 1: target piece -1 is outside"),
        (([A], [U], [1]), "pair 1: a link leads to position 1 of 1 source pieces"),
        (([A], [U], [-2]), "a link leads to position -2"),
        (([], [U], [0]), "a link leads to position 0 of 0"),
    ],
)
def test_pairs_that_cannot_be_are_refused(tmp_path: Path, pair: Pair, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build([[SMALL[0], pair]], tmp_path)
    assert not list(tmp_path.iterdir())


def test_arrays_that_do_not_fit_are_refused(tables: CandidateTables, tmp_path: Path) -> None:
    one, two = Sentences.of([[A]]), Sentences.of([[A], [B]])
    wrong = [(one, two, [0, 0]), (one, one, [0, 0]), (one, one, [1.5]), (one, one, [1 << 40])]
    wrong += [(one, Sentences(one.values, np.array(starts)), [0]) for starts in ([0], [1, 1], [0, 2], [0, 1, 0, 1])]
    for source, target, links in wrong:
        with pytest.raises(ValueError, match=r"expected|links"):
            count_candidates(source, target, links, tmp_path / "run", options=COUNTING)
    for options in ({"max_offset": 1 << 15}, {"max_length": 0}, {"source_size": 0}, {"target_size": (1 << 24) + 1}):
        with pytest.raises(ValueError, match=f"{next(iter(options))}: expected"):
            count_candidates(one, one, [0], tmp_path / "run", options=CountOptions(**{**vars(COUNTING), **options}))
    for ids, lengths, slots, message in [
        ([[32]], [1], [1], "sentence 0: source piece 32 is outside the tables' vocabulary of 32"),
        ([[A]], [2], [1], "sentence 0: expected a length of 0 to 1, got 2"),
        ([[A]], [-1], [1], "expected a length of 0 to 1, got -1"),
        ([[A]], [1], [-1], "num_slots"),
        ([[A]], [1, 1], [1], "source_lengths"),
        ([A], [1], [1], "source_ids"),
        ([[A]], [1], [1, 1], "num_slots"),
        ([[0.5]], [1], [1], "expected integers"),
    ]:
        with pytest.raises(ValueError, match=message):
            fewstep.lattice_candidates(tables, ids, lengths, num_slots=slots)
    for options in (CandidateOptions(candidates=0), CandidateOptions(threads=0)):
        with pytest.raises(ValueError, match="expected"):
            fewstep.lattice_candidates(tables, [[A]], [1], options=options)
    with pytest.raises(ValueError, match="digest of 32 bytes"):
        merge_candidates([tables.path.with_name("0.run")], tmp_path / "t", options=TableOptions(vocabulary=b"short"))
    for name in ("tension", "backoff"):
        for value in (-1.0, math.nan, math.inf):
            with pytest.raises(ValueError, match=name):
                merge_candidates([tables.path.with_name("0.run")], tmp_path / "t", options=TableOptions(**{name: value}))


def test_ids_beyond_16_bits_are_kept_in_32(tmp_path: Path) -> None:
    for size, y in ((65536, 65535), (65537, 65536), (1 << 24, (1 << 24) - 1)):
        counting = CountOptions(source_size=1 << 10, target_size=size)
        tables = build([[([1023], [y], [0])] * 2 + [([0], [7], [0])]], tmp_path / str(size), counting)
        assert tables.row(1023, 0) == ([(y, 2)], 2)
        assert column(tables, [1023, 0], 0) == {y: pytest.approx(1.0)}


def test_the_header_holds_the_digest_of_what_follows(tables: CandidateTables) -> None:
    data = tables.path.read_bytes()
    assert data[256:288] == hashlib.sha256(data[296:]).digest()


def test_the_digest_distinguishes_other_links(tmp_path: Path) -> None:
    first, second = (build([[*SMALL, ([A, B], [U, V], links)]], tmp_path / str(links[0])) for links in ([0, 1], [1, 0]))
    assert first.summary.links != second.summary.links
    assert first.summary.links != bytes(32)
