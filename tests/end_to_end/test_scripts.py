"""Whole runs, from text to report, into languages whose scripts are not Latin, with text that is written in them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.config.load import load_config
from pipeline.plan.wiring import build_plan
from pipeline.run import execute
from pipeline.store.artifacts import Store
from stages.shared.embedded import pairs
from tests.shared import rest_exhaustive
from tests.synthetic_text import LETTERS, translated

pytestmark = [pytest.mark.slow]

SMALL = Path(__file__).with_name("small.yaml")
TOKENIZERS = {"ja": "ja-mecab", "zh": "zh", "ko": "ko-mecab", "ar": "13a"}


def written(part: str, count: int, language: str, directory: Path) -> dict[str, str]:
    """Write `count` pairs to two files and return the text of a config that names them."""
    sources = [source for source, _ in pairs(part, 0, count)]
    files = {"source": directory / f"{part}.en", "target": directory / f"{part}.{language}"}
    files["source"].write_text("".join(f"{text}\n" for text in sources), encoding="utf-8")
    files["target"].write_text("".join(f"{translated(text, language)}\n" for text in sources), encoding="utf-8")
    return {side: str(path) for side, path in files.items()}


def config_file(language: str, directory: Path) -> Path:
    values: dict[str, Any] = {
        "base": str(SMALL),
        "name": f"to-{language}",
        "languages": {"source": "en", "target": language},
        "corpus": {
            "train": {"embedded": 0, **written("train", 1500, language, directory)},
            "validation": {"embedded": 0, **written("validation", 60, language, directory)},
            "test": {"small": {"embedded": 0, **written("test", 80, language, directory)}},
        },
        "vocabulary": {"size": 110 if language == "ar" else 330, "joint": False},
        "systems": {
            "interleaved": {"order": "interleaved", "data": "distilled", "training": {"updates": 60}},
            "dag": {"family": "dag", "graph_factor": 4, "search": ["lookahead"], "training": {"updates": 60}},
        },
        "evaluation": {"metrics": ["bleu", "chrf", "ter", "tokenized_bleu"], "head_and_tail": True, "length_bins": [8]},
        "benchmark": {"enabled": True, "test": "small", "sentences": 5, "memory": False},
    }
    path = directory / "config.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


@pytest.mark.parametrize("language", rest_exhaustive(TOKENIZERS, ["ja"]))
def test_a_run_ends_in_a_report_that_is_scored_by_the_tokeniser_of_the_language(language: str, tmp_path: Path) -> None:
    path = config_file(language, tmp_path)
    settings = load_config(path, [f"store.path={tmp_path / 'store'}"])
    store = Store(settings.store.path)
    report = execute.run(settings, build_plan(settings, store), store, config_file=str(path), in_process=True)
    assert report.failed == {}
    ledgers = [json.loads(path.read_text()) for path in (tmp_path / "store").glob("corpus/*/ledger.json")]
    dropped = {
        reason: count for ledger in ledgers for reason, count in ledger["dropped"].items() if reason != "duplicate" and count
    }
    assert sum(dropped.values()) <= 0.02 * sum(ledger["pairs_in"] for ledger in ledgers), dropped
    results = json.loads(next((tmp_path / "store").glob("report/*/results.json")).read_text())
    assert {row["system"] for row in results["rows"]} == {"autoregressive", "distilled", "interleaved", "dag"}
    for row in results["rows"]:
        assert f"|tok:{TOKENIZERS[language]}" in row["metrics"]["bleu"]["signature"]
    assert max(row["metrics"]["chrf"]["score"] for row in results["rows"]) > 1
    html = next((tmp_path / "store").glob("report/*/records/report.html")).read_text(encoding="utf-8")
    assert any(letter in html for letter in LETTERS[language])
