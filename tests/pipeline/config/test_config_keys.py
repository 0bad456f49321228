"""The keys of configs are a closed list, and each is shown in a config, on a page or in a test."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pipeline.config.docs import schema
from tests.docs.test_keys_and_figures import properties

ROOT = Path(__file__).resolve().parents[3]
LIST = ROOT / "tests" / "golden" / "config_keys.txt"
KEYS = set(properties(json.loads(schema())))


def test_the_list_of_keys_is_closed() -> None:
    listed = set(LIST.read_text(encoding="utf-8").split())
    assert sorted(KEYS - listed) == [], (
        f"expected the keys of {LIST.name}, found others; a key needs a user who asked for it: name the reason in the commit, and "
        "add it there"
    )
    assert sorted(listed - KEYS) == [], f"{LIST.name} names keys that no section has; remove them"


def test_each_key_is_shown() -> None:
    files = [*(ROOT / "configs").rglob("*.yaml"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in files if "reference" not in path.parts and path != Path(__file__)]
    shown = {word for text in texts for word in re.findall(r"""([\w+-]+)["'}]?\s?[:=]""", text)}
    assert sorted(KEYS - shown) == [], "expected a recipe, an example or a test of each key; add one, or remove the key"
