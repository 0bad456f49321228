"""Optional packages and programs that a run needs are looked for before it starts."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from pipeline.config.load import load_config
from pipeline.config.schema import RunConfig
from pipeline.config.systems import BartTeacher, Distillation
from pipeline.plan import packages
from pipeline.plan.packages import check_packages
from stages.errors import DataError


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    """A config with a Japanese target, two searches of CTranslate2 and one of the native engine."""
    values = {
        "languages": {"source": "en", "target": "ja"},
        "corpus": {name: {"source": "a.en", "target": "a.ja"} for name in ("train", "validation")}
        | {"test": {"test": {"source": "a.en", "target": "a.ja"}}},
        "teacher": {},
        "distillation": {"engine": "ctranslate2"},
        "systems": {"small": {"data": "distilled", "search": ["greedy", {"greedy": {"engine": "ctranslate2"}}]}},
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return load_config(path, ())


def test_a_missing_tokeniser_is_found(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    with pytest.raises(DataError, match=r'tokeniser ja-mecab .* pip install "sacrebleu\[ja\]"'):
        check_packages(config)


def test_a_missing_kytea_is_found(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DataError, match=r"evaluation\.tokenizer: expected KyTea's program kytea .* or choose ja-mecab"):
        check_packages(replace(config, evaluation=replace(config.evaluation, tokenizer="kytea")))


def test_a_missing_engine_is_found_in_every_search(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "bleu_metric", lambda *_: None)
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    with pytest.raises(DataError) as caught:
        check_packages(config)
    lines = str(caught.value).splitlines()
    assert [line.split(" needs ")[0] for line in lines] == ["distillation", "systems.small.search: greedy-ctranslate2"]
    assert all("pip install ctranslate2" in line for line in lines)


def test_nothing_is_asked_of_a_whole_environment(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "bleu_metric", lambda *_: None)
    monkeypatch.setattr(packages, "find_spec", lambda name: object())
    check_packages(config)


def test_packages_of_optional_filters_are_looked_for(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "bleu_metric", lambda *_: None)
    for module in ("language", "similarity"):
        monkeypatch.setattr(f"stages.corpus.{module}.find_spec", lambda name: None)
    filters = replace(config.corpus.filters, max_similarity=0.8, max_other_language=0.8)
    with pytest.raises(DataError) as caught:
        check_packages(replace(config, corpus=replace(config.corpus, filters=filters)))
    lines = [line for line in str(caught.value).splitlines() if line.startswith("corpus")]
    assert [line.split(" needs ")[0] for line in lines] == [
        "corpus.filters.max_similarity",
        "corpus.filters.max_other_language",
    ]
    assert "pip install datasketch" in lines[0]
    assert "pip install py3langid" in lines[1]


@pytest.mark.parametrize("tokenizer", ["char", "ko-mecab"])
def test_the_tokeniser_of_the_language_validates_trainings_whatever_is_stated(
    config: RunConfig, tokenizer: Literal["char", "ko-mecab"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    with pytest.raises(DataError, match="tokeniser ja-mecab "):
        check_packages(replace(config, evaluation=replace(config.evaluation, tokenizer=tokenizer)))


def test_the_program_of_comet_and_the_package_of_bart_are_looked_for(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "bleu_metric", lambda *_: None)
    monkeypatch.setattr(packages, "find_spec", lambda name: None if name == "tokenizers" else object())
    model: dict[str, Any] = {"comet": Path("model.ckpt"), "comet_program": "no-such-comet-score"}
    assert isinstance(config.distillation, Distillation)
    compared, judged = replace(config.evaluation, **model), replace(config.distillation, choose="quality", min_quality=0.5, **model)
    with pytest.raises(DataError) as caught:
        check_packages(replace(config, evaluation=compared, distillation=judged, teacher=BartTeacher(bart=Path("bart"))))
    lines = str(caught.value).splitlines()
    assert lines.pop(1).startswith("distillation.comet_program: expected COMET's program comet-score as no-such-comet-score")
    assert lines[0].startswith("evaluation.comet_program: expected COMET's program comet-score as no-such-comet-score, found no")
    assert "python3 -m venv comet && comet/bin/pip install unbabel-comet" in lines[0]
    assert lines[1].startswith("teacher.bart needs ")
    assert "pip install tokenizers" in lines[1]
