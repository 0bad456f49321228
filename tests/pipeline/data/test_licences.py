"""Licences of named data sets: those that their publishers state, and no others."""

import pytest

from pipeline.data.licences import licence_of_test_set, stated


def test_wmt_states_the_licence_of_its_news_test_sets() -> None:
    assert licence_of_test_set("wmt17/dev") == "research use, see statmt.org/wmt17/translation-task.html"
    assert "wmt20" in licence_of_test_set("wmt20")


@pytest.mark.parametrize("name", ["wmt17/ms", "wmt16", "wmt24", "wmt08", "mtnt1.1/test", "wmt170", "iwslt17", "wmt19/google/ar"])
def test_other_sets_have_no_known_licence(name: str) -> None:
    assert licence_of_test_set(name) == ""


@pytest.mark.parametrize(
    ("value", "licence"),
    [("cc-by-4.0", "cc-by-4.0"), (["mit", "unknown", "cc0-1.0"], "mit, cc0-1.0"), ("unknown", ""), (None, ""), ([], ""), ({}, "")],
)
def test_metadata_that_states_no_licence_gives_none(value: object, licence: str) -> None:
    assert stated(value) == licence
