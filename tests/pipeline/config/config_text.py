"""Configs as text, loaded, and their problems."""

from pathlib import Path

import pytest

from pipeline.config.load import load_config
from pipeline.config.schema import RunConfig
from pipeline.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
EMBEDDED = "corpus: {train: {embedded: 20000}}\n"
TEACHER = "teacher: {data: raw}\n"
PAIR = "evaluation: {likelihood: true, mutual_information: {x: {parallel: fold, sequential: ones}}}\n"


def load(tmp_path: Path, text: str, *overrides: str) -> RunConfig:
    """Load a config; one without a corpus gets the embedded one, in its last line."""
    (tmp_path / "c.yaml").write_text(text if "corpus" in text or text.startswith("- ") else f"{text}\n{EMBEDDED}", encoding="utf-8")
    return load_config(tmp_path / "c.yaml", overrides)


def wrong(tmp_path: Path, text: str, *overrides: str) -> list[str]:
    """Return all problems, without the folder."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, *overrides)
    return [problem.removeprefix(f"{tmp_path}/") for problem in caught.value.problems]
