"""Code on the pages equals the code that the tests run, and steps through the code lead through functions that exist."""

from pathlib import Path

import pytest

from tests.docs.examples import places, with_blocks
from tests.docs.pages import PAGES, ROOT, name, text

WITH_CODE = [page for page in PAGES if places(text(page))]


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_blocks_of_code_equal_their_files(page: Path) -> None:
    assert text(page) == with_blocks(text(page)), f"{name(page)}: expected current code; run `make docs`"


@pytest.mark.parametrize("page", sorted((ROOT / "docs/contributing").glob("*.md")), ids=name)
def test_examples_are_kept_as_tests(page: Path) -> None:
    assert places(text(page)), "expected code from files"
    assert all(path.startswith("tests/") for path in places(text(page)))


def test_a_block_is_written_from_a_file_or_a_definition(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("X = 1\n\n\n@decorated\ndef f():\n    return X\n\n\nY = 2\n")
    page = "Text.\n\n<!-- file: a.py#f -->\n```python\nold\n```\n\n<!-- file: a.py#Y -->\n\nText.\n"
    written = "Text.\n\n<!-- file: a.py#f -->\n```python\n@decorated\ndef f():\n    return X\n```\n\n"
    assert with_blocks(page, tmp_path) == written + "<!-- file: a.py#Y -->\n```python\nY = 2\n```\n\nText.\n"
    assert with_blocks("<!-- file: a.py -->\n", tmp_path) == (
        "<!-- file: a.py -->\n```python\nX = 1\n\n\n@decorated\ndef f():\n    return X\n\n\nY = 2\n```\n"
    )


def test_a_block_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("Y = 2\n")
    page = "<!-- file: a.py -->\n\nText.\n\n```python\nother\n```\n"
    assert "other" in with_blocks(page, tmp_path)


def test_a_missing_definition_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("Y = 2\n")
    with pytest.raises(LookupError, match=r"a\.py: expected a definition of Z"):
        with_blocks("<!-- file: a.py#Z -->\n", tmp_path)
