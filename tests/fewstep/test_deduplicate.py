import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep.deduplicate import deduplicate

FEW = st.lists(st.integers(7, 9), max_size=24)
"""Sentences over three tokens, which have many repetitions."""


def repeats(ids, longest=4):
    return [
        (start, width)
        for width in range(1, longest + 1)
        for start in range(len(ids) - 2 * width + 1)
        if ids[start : start + width] == ids[start + width : start + 2 * width]
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("a", "a"),
        ("aa", "a"),
        ("aaaaa", "a"),
        ("abab", "ab"),
        ("abcabcabc", "abc"),
        ("abcdabcde", "abcde"),
        ("abcdeabcde", "abcdeabcde"),  # five tokens are left alone
        ("abba", "aba"),
        ("xabbabcx", "xabcx"),  # the deletion makes ab and ab adjacent
        ("aabaab", "ab"),
        ("abcbcbd", "abcbd"),
        ("abacab", "abacab"),
    ],
)
def test_known_repetitions(text, expected):
    assert "".join(deduplicate(text)) == expected


@given(FEW)
def test_no_adjacent_repetition_is_left_and_the_second_time_changes_nothing(ids):
    clean = deduplicate(ids)
    assert not repeats(clean)
    assert deduplicate(clean) == clean


@given(FEW, st.integers(0, 5))
def test_only_what_repeats_is_touched(ids, longest):
    kept = deduplicate(ids, longest)
    assert not repeats(kept, longest)
    if not repeats(ids, longest):
        assert kept == ids
    rest = iter(ids)
    assert all(token in rest for token in kept), "not a part of it in its order"
    assert set(kept) == set(ids)
    assert kept[:1] == ids[:1]


@given(FEW)
def test_the_argument_stays_as_it_was(ids):
    before = list(ids)
    deduplicate(ids)
    assert ids == before
