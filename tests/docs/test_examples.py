"""Code on the pages equals the code in the files that it is copied from."""

import re
from pathlib import Path

import pytest

from tests.docs.examples import places, with_blocks
from tests.docs.pages import PAGES, ROOT, name, text

WITH_CODE = [page for page in PAGES if places(text(page))]


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_blocks_of_code_equal_their_files(page: Path) -> None:
    assert text(page) == with_blocks(text(page)), f"{name(page)}: expected current code; run `make docs`"


@pytest.mark.parametrize("page", sorted((ROOT / "docs/contributing").glob("*.md")), ids=name)
def test_all_code_on_pages_about_contributing_is_copied_from_files(page: Path) -> None:
    fences = re.findall(r"^```(?:python|cpp)$", text(page), re.MULTILINE)
    assert len(fences) == len(places(text(page))) > 0


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
