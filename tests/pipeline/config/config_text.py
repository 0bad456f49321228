"""Configs as text, loaded, and their problems."""

import re
from pathlib import Path

import pytest

from pipeline.config.load import load_config
from pipeline.config.schema import RunConfig
from pipeline.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
EMBEDDED = "corpus: {train: {embedded: 20000}}\n"
TEACHER = "teacher: {data: raw}\n"
PAIR = "evaluation: {likelihood: true, mutual_information: {x: {parallel: fold, sequential: ones}}}\n"


def cases(table: str, **parts: str) -> list[tuple[str, str]]:
    """Return the pairs (config, problem) of a table with entries `CONFIG => PROBLEM`, on one line or two.

    `\\n` stands for the end of a line of the config, `<NAME>` for one of the `parts`. A problem that begins with a number is one on
    that line of the config.
    """
    pairs = [entry.split(" => ") for entry in re.sub(r"\n +=> ", " => ", table.strip()).splitlines()]
    for name, part in parts.items():
        pairs = [(config.replace(f"<{name}>", part), problem) for config, problem in pairs]
    return [(config.replace(r"\n", "\n"), re.sub(r"^(?=\d+: )", "c.yaml:", problem)) for config, problem in pairs]


def load(tmp_path: Path, text: str, *overrides: str) -> RunConfig:
    """Load a config; one without a corpus gets the embedded one, in its last line."""
    (tmp_path / "c.yaml").write_text(text if "corpus" in text or text.startswith("- ") else f"{text}\n{EMBEDDED}", encoding="utf-8")
    return load_config(tmp_path / "c.yaml", overrides)


def wrong(tmp_path: Path, text: str, *overrides: str) -> list[str]:
    """Return all problems, without the folder."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, *overrides)
    return [problem.removeprefix(f"{tmp_path}/") for problem in caught.value.problems]
