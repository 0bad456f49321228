"""Native fast_align: known numbers, its slow reference, and invariance under threads and order."""

from __future__ import annotations

import gzip
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep.native import fewstep_native as native
from kernels import AlignmentModel, AlignOptions, fast_align
from kernels.reference import fast_align as reference
from tests.shared import public_data

README = [
    ("doch jetzt ist der Held gefallen .", "but now the hero has fallen ."),
    ("neue Modelle werden erprobt .", "new models are being tested ."),
    ("doch fehlen uns neue Ressourcen .", "but we lack new resources ."),
]
PAIRS = [(source.split(), target.split()) for source, target in README]

DRAWN = random.Random(5)
TEXT = [
    (
        [f"e{DRAWN.randrange(12)}" for _ in range(DRAWN.randrange(1, 9))],
        [f"f{DRAWN.randrange(15)}" for _ in range(DRAWN.randrange(1, 10))],
    )
    for _ in range(60)
]


def pharaoh(links: list[tuple[int, int]]) -> str:
    return " ".join(f"{i}-{j}" for i, j in links)


@pytest.mark.parametrize(
    ("j", "m", "n", "z", "correct", "compatible"),
    [
        (1, 2, 2, 1.135335283237, None, None),
        (1, 3, 2, 0.582900570255, -0.226268127678, -0.113487592160),
        (2, 3, 2, 0.777014257148, -0.223207271872, -0.130101086109),
        (3, 3, 2, 1.135335283237, -0.059601461011, -0.048645851593),
        (2, 5, 7, 2.922167054830, -0.168846175582, -0.272211921179),
    ],
)
def test_diagonal_prior(j: int, m: int, n: int, z: float, correct: float | None, compatible: float | None) -> None:
    assert native.diagonal_partition(j, m, n, 4.0) == pytest.approx(z, abs=1e-12)
    slips = [native.diagonal_gradient(j, m, n, 4.0, flag) for flag in (False, True)]
    if correct is None:
        assert slips[0] == slips[1]
    else:
        assert slips == pytest.approx([correct, compatible], abs=1e-12)


@given(st.integers(1, 60), st.integers(1, 60), st.data(), st.floats(0.1, 14))
def test_closed_forms_are_their_sums(m: int, n: int, data: st.DataObject, tension: float) -> None:
    j = data.draw(st.integers(1, m))
    assert native.diagonal_partition(j, m, n, tension) == pytest.approx(reference.partition(j, m, n, tension), rel=1e-12)
    for compatible in (False, True):
        expected = reference.gradient(j, m, n, tension, compatible)
        assert native.diagonal_gradient(j, m, n, tension, compatible) == pytest.approx(expected, rel=1e-8, abs=1e-10)


def test_digamma() -> None:
    known = {0.01: -100.560885457921, 0.51: -1.914987524189, 1: -0.577215664954, 2.02: 0.435602846355, 7.5: 1.946757484221}
    assert [native.digamma(x) for x in known] == pytest.approx(list(known.values()), abs=5e-9)
    assert [native.digamma(x) for x in (0.3, 25.0, 1e6)] == pytest.approx(
        [reference.digamma(x) for x in (0.3, 25.0, 1e6)], abs=1e-8
    )


PLAIN = AlignOptions(favor_diagonal=False, optimize_tension=False, variational_bayes=False)


def test_three_sentences_of_upstream() -> None:
    found = fast_align(PAIRS)
    reported = found.passes
    assert found.model.length_ratio == pytest.approx(1.0666667, abs=1e-7)
    assert reported[0].target_words == 19
    likelihoods = [-393.742051, -55.582278, -25.489682, -23.550996, -23.487661]
    assert [one.log_likelihood for one in reported] == pytest.approx(likelihoods, abs=1e-6)
    assert [one.null_posterior for one in reported[:2]] == pytest.approx([0.08, 0.00102666], abs=1e-8)
    assert max(one.null_posterior for one in reported[2:]) < 1e-6
    assert [one.feature for one in reported[:4]] == pytest.approx([-0.2058816, -0.1594618, -0.1584711, -0.1584371], abs=1e-7)
    ascent = [3.830092, 3.750954, 3.715175, 3.699226, 3.692162, 3.689043, 3.687668, 3.687061]
    assert reported[0].tensions == ()
    assert reported[1].tensions == pytest.approx([4.0, *ascent], abs=1e-6)
    assert [one.tensions[-1] for one in reported[2:4]] == pytest.approx([3.722073, 3.723350], abs=1e-6)
    assert found.model.tension == reported[3].tensions[-1]
    assert found.model.cells == 122
    t = found.model.probability
    known = {("doch", "but"): 0.939720233, (".", "."): 0.947783831, ("werden", "are"): 0.161334723}
    assert [t(*words) for words in known] == pytest.approx(list(known.values()), abs=1e-9)
    assert (t("doch", "models"), t("nie", "but"), t("doch", "niemals"), t(None, "niemals")) == (1e-9,) * 4
    links = ["0-0 1-1 2-2 3-3 4-4 5-5 6-6", "0-0 1-1 2-2 2-3 3-4 4-5", "0-0 1-1 2-2 3-3 4-4 5-5"]
    assert [pharaoh(one) for one in found.links] == links
    once = fast_align(PAIRS, options=AlignOptions(iterations=2))
    assert once.model.probability("doch", "but") == pytest.approx(0.351345607, abs=1e-9)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        AlignOptions(),
        AlignOptions(compatible=False),
        AlignOptions(null_word=False, p0=0.3),
        AlignOptions(variational_bayes=False),
        AlignOptions(optimize_tension=False, tension=0.7, iterations=3, alpha=0.1),
        PLAIN,
        replace(PLAIN, null_word=False),
    ],
)
def test_the_slow_reference_agrees(options: AlignOptions, reverse: bool) -> None:
    options = replace(options, reverse=reverse)
    found = fast_align(TEXT, options=options)
    links, t, tension, likelihoods = reference.fit(TEXT, options)
    assert found.model.tension == pytest.approx(tension, rel=1e-7)
    assert [one.log_likelihood for one in found.passes] == pytest.approx(likelihoods, rel=1e-7)
    for source, row in t.items():
        expected = [math.log(max(value, 1e-300)) for value in row.values()]
        got = [math.log(max(found.model.probability(source, target), 1e-300)) for target in row]
        assert got == pytest.approx(expected, rel=1e-5, abs=1e-5)
    decided = 0
    for (source, target), ours, theirs in zip(TEXT, found.links, links, strict=True):
        directed = (target, source) if reverse else (source, target)
        margins = reference.margins(*directed, t, tension, options)
        if all(margin > 1e-4 for margin in margins):
            assert ours == theirs
            decided += 1
    assert decided > len(TEXT) / 4
    if not options.compatible:
        assert tension != pytest.approx(reference.fit(TEXT, replace(options, compatible=True))[2], rel=1e-3)


def links_of(text: list[tuple[list[str], list[str]]], **options: Any) -> list[list[tuple[int, int]]]:
    return fast_align(text, options=AlignOptions(**options)).links


def test_neither_threads_nor_order_nor_company_change_anything() -> None:
    one = fast_align(TEXT)
    for threads in (2, 8):
        other = fast_align(TEXT, options=AlignOptions(threads=threads))
        assert other.links == one.links
        assert other.passes == one.passes
    order = list(range(len(TEXT)))
    random.Random(1).shuffle(order)
    shuffled = fast_align([TEXT[k] for k in order])
    assert shuffled.links == [one.links[k] for k in order]
    assert shuffled.passes == one.passes
    mirrored = [(target, source) for source, target in TEXT]
    reverse = fast_align(mirrored, options=AlignOptions(reverse=True))
    assert [[(j, i) for i, j in links] for links in reverse.links] == one.links
    assert reverse.passes == one.passes


def test_empty_and_long_sides_are_counted_and_take_no_part() -> None:
    plain = fast_align(TEXT, options=AlignOptions(max_length=20))
    empty = [([], []), (["e0"], []), ([], ["f0"])]
    long = [(["e0"] * 21, ["f0"]), (["e0"], ["f0"] * 40_000)]
    mixed = [*empty, *TEXT[:30], *long, *TEXT[30:], empty[1]]
    found = fast_align(mixed, options=AlignOptions(max_length=20))
    assert (found.empty, found.too_long) == (4, 2)
    assert found.passes == plain.passes
    assert found.links == [[]] * 3 + plain.links[:30] + [[]] * 2 + plain.links[30:] + [[]]
    for one in found.passes:
        assert math.isfinite(one.log_likelihood)
        assert math.isfinite(one.feature)
    nothing = fast_align(empty)
    assert nothing.links == [[], [], []]
    assert (nothing.passes[0].perplexity, nothing.model.tension) == (1.0, 4.0)
    assert fast_align([]).links == []


def test_odd_words_are_words() -> None:
    odd = {"e0": "|||", "e1": "<eps>", "e2": "a b", "f0": "|||", "f1": "<eps>", "f2": "ä\tß", "f3": "𝄞", "f4": "\x00"}
    renamed = [([odd.get(e, e) for e in source], [odd.get(f, f) for f in target]) for source, target in TEXT]
    assert fast_align(renamed).links == fast_align(TEXT).links


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("a b", ["x"])], "pair 0: expected a list of words as source, got a string"),
        ([(["a"], ["x"]), (["a"], "x y")], "pair 1: expected a list of words as target, got a string"),
        ([(["a"], [1])], r"pair 0: expected two lists of words .*, got \['a'\] and \[1\]"),
        ([(["\udcff"], ["x"])], "pair 0: expected two lists of words that can be encoded as UTF-8"),
    ],
)
def test_what_is_no_pair_of_word_lists(pairs: list[tuple[list[str], list[str]]], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        fast_align(pairs)


@pytest.mark.parametrize(
    ("name", "value"),
    [("iterations", 0), ("tension", 0.0), ("tension", math.nan), ("alpha", 0.0), ("p0", 1.0), ("threads", 0), ("max_length", 0)],
)
def test_impossible_options(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"fast_align: {name}: expected a value .*, got {value}"):
        AlignOptions(**{name: value})


@given(st.lists(st.tuples(st.lists(st.sampled_from("abc"), max_size=4), st.lists(st.sampled_from("xyz"), max_size=4)), max_size=6))
def test_any_text_gives_links_within_it(pairs: list[tuple[list[str], list[str]]]) -> None:
    for reverse in (False, True):
        found = fast_align(pairs, options=AlignOptions(reverse=reverse))
        for (source, target), links in zip(pairs, found.links, strict=True):
            assert all(0 <= i < len(source) and 0 <= j < len(target) for i, j in links)
            explained = [i if reverse else j for i, j in links]
            assert sorted(set(explained)) == explained
        for one in found.passes:
            assert math.isfinite(one.log_likelihood)


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize(
    ("direction", "tensions"), [("forward", (5.90212, 6.87208, 7.22992)), ("reverse", (5.86438, 6.95638, 7.38824))]
)
def test_links_are_upstreams(direction: str, tensions: tuple[float, ...], threads: int) -> None:
    lines = public_data("golden/fast_align.pairs.txt").read_text().splitlines()
    pairs = [(source.split(), target.split()) for source, target in (line.split(" ||| ") for line in lines)]
    found = fast_align(pairs, options=AlignOptions(reverse=direction == "reverse", threads=threads))
    expected = public_data(f"golden/fast_align.{direction}.links").read_text().splitlines()
    different = [number for number, links in enumerate(found.links) if pharaoh(links) != expected[number]]
    assert len(expected) == len(found.links) == 5000
    assert different == []  # not even one of the near-ties
    assert found.near_ties <= 30
    assert [one.tensions[-1] for one in found.passes[1:4]] == pytest.approx(tensions, abs=5e-5)


def test_probabilities_are_upstreams(tmp_path: Path) -> None:
    lines = public_data("golden/fast_align.pairs.txt").read_text().splitlines()
    model = fast_align([(s.split(), t.split()) for s, t in (line.split(" ||| ") for line in lines)]).model
    model.native.write_text(str(tmp_path / "ours"), 4.0)
    ours = sorted((tmp_path / "ours").read_text().splitlines())
    theirs = sorted(gzip.decompress(public_data("golden/fast_align.forward.params.gz").read_bytes()).decode().splitlines())
    assert [line.rsplit("\t", 1)[0] for line in ours] == [line.rsplit("\t", 1)[0] for line in theirs]
    values = [[float(line.rsplit("\t", 1)[1]) for line in table] for table in (ours, theirs)]
    assert values[0] == pytest.approx(values[1], rel=2e-5, abs=1e-9)


def test_a_saved_model_aligns_as_the_fit_did(tmp_path: Path) -> None:
    for reverse in (False, True):
        found = fast_align(TEXT, options=AlignOptions(reverse=reverse))
        found.model.save(tmp_path / "model")
        loaded = AlignmentModel.load(tmp_path / "model")
        assert loaded.align(TEXT, threads=2) == found.links
        assert (loaded.tension, loaded.length_ratio, loaded.reverse) == (found.model.tension, found.model.length_ratio, reverse)
        other = loaded.align([(["e1", "neu"], ["f1", "nie", "f2"]), ([], ["f1"]), (["e1"], [])])
        assert other[1:] == [[], []]
        assert all(i < 2 and j < 3 for i, j in other[0])
        loaded.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "model"]


def test_files_that_are_no_models(tmp_path: Path) -> None:
    fast_align(PAIRS).model.save(tmp_path / "model")
    whole = (tmp_path / "model").read_bytes()
    broken = {
        "missing": None,
        "empty": b"",
        "text": b"hello " * 100,
        "cut": whole[:-1],
        "longer": whole + b"\0",
        "header": whole[:40],
        "rows": whole[:104] + b"\xff" * 8 + whole[112:],
        "huge": whole[:8] + b"\xff" * 8 + whole[16:],
    }
    for name, data in broken.items():
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises((ValueError, FileNotFoundError), match=f"{name}('|: expected an alignment model)"):
            AlignmentModel.load(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="no/folder"):
        fast_align(PAIRS).model.save(tmp_path / "no" / "folder")


def test_text_of_a_model(tmp_path: Path) -> None:
    found = fast_align(TEXT)
    found.model.native.write_text(str(tmp_path / "all"), math.inf)
    options = AlignOptions()
    read = native.AlignModel.read_text(str(tmp_path / "all"), options.native(), False, found.model.tension, 1.0)
    assert read.cells == found.model.cells
    assert AlignmentModel(read).align(TEXT) == found.links
    assert read.probability("e1", "f1") == pytest.approx(found.model.probability("e1", "f1"), rel=1e-4)
    for line in ("a b", "a b c", "a b 2.5", "", "a b -1 c"):
        (tmp_path / "bad").write_text(f"a b -1\n{line}\n")
        with pytest.raises(RuntimeError, match=r"bad: line 2: expected `source target ln-probability`"):
            native.AlignModel.read_text(str(tmp_path / "bad"), options.native(), False, 4.0, 1.0)
    strange = fast_align([(["<eps>", "a"], ["x"])]).model
    with pytest.raises(ValueError, match="the word `<eps>`, which this format cannot tell from the null word"):
        strange.native.write_text(str(tmp_path / "x"), 4.0)
