"""`fewstep data`: everything is downloaded, and what it prints is a config of the same steps."""

import hashlib
from io import BytesIO
from pathlib import Path

import pytest
import yaml
from sentencepiece import SentencePieceTrainer

from pipeline.__main__ import main
from pipeline.config.load import load_config
from pipeline.data import opus
from pipeline.data.pin import unpinned
from pipeline.plan.wiring import build_plan
from pipeline.store.artifacts import Store
from stages.shared.embedded import pairs
from tests.pipeline.data.packing import tarred, zipped
from tests.pipeline.data.web import Site

CONFIG = """
languages: {{source: en, target: de}}
corpus:
  train: {{opus: News/v1, tsv: "{url}/more.tsv", parquet: {{path: {folder}/own.parquet, columns: [a, b]}}}}
  validation: {{source: {{url: "{url}/v.tgz", member: v.en}}, target: {{url: "{url}/v.tgz", member: v.de}}}}
  test: {{t: {{embedded: 10}}}}
distillation: {{source: "{url}/d.en", target: "{url}/d.de"}}
vocabulary: {{source_pieces: "{url}/joint.model"}}
systems: {{one: {{data: distilled}}}}
evaluation: {{contrastive_pairs: "{url}/pairs.json"}}
store: {{path: {folder}/store}}
"""


@pytest.fixture
def config(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(opus, "ARCHIVE", site.url + "/{corpus}/{version}/{first}-{second}.zip")
    site.put("/News/v1/de-en.zip", zipped({"N.de-en.de": "Haus\n", "N.de-en.en": "house\n"}))
    site.put("/v.tgz", tarred({"v.en": "validate\n", "v.de": "prüfen\n"}))
    for name, text in {"more.tsv": "a\tb\n", "d.en": "house\n", "d.de": "Häuschen\n"}.items():
        site.put(f"/{name}", text.encode())
    site.put("/joint.model", model())
    site.put("/pairs.json", b"[]")
    (tmp_path / "own.parquet").write_bytes(b"local")
    (tmp_path / "c.yaml").write_text(CONFIG.format(url=site.url, folder=tmp_path))
    return tmp_path / "c.yaml"


def model() -> bytes:
    data = BytesIO()
    lines = iter([line for pair in pairs("train", 0, 200) for line in pair])
    SentencePieceTrainer.train(sentence_iterator=lines, model_writer=data, vocab_size=120, minloglevel=2)
    return data.getvalue()


def fingerprints(path: Path) -> dict[str, str]:
    config = load_config(path)
    return {step.name: step.fingerprint for step in build_plan(config, Store(config.store.path)).steps}


def test_a_pinned_config_has_the_same_steps(config: Path, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "pin", str(config)]) == 0
    printed = capsys.readouterr().out
    pinned = yaml.safe_load(printed)
    digest = hashlib.sha256(site.files["/News/v1/de-en.zip"]).hexdigest()
    archive = {"url": f"{site.url}/News/v1/de-en.zip", "sha256": digest}
    assert pinned["corpus"]["train"]["source"] == [{**archive, "member": "N.de-en.en"}]
    assert pinned["corpus"]["train"]["opus"] == []
    assert pinned["vocabulary"]["source_pieces"]["sha256"] == hashlib.sha256(site.files["/joint.model"]).hexdigest()
    assert pinned["evaluation"]["contrastive_pairs"]["sha256"] == hashlib.sha256(b"[]").hexdigest()
    assert "parquet" not in pinned["corpus"]["train"]
    assert "test" not in pinned["corpus"]
    (tmp_path / "pinned.yaml").write_text(f"base: c.yaml\n{printed}")
    assert fingerprints(tmp_path / "pinned.yaml") == fingerprints(config)
    assert len(site.requests) == len(site.files)


def test_plan_names_what_has_no_digest_in_the_config(
    config: Path, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(config)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("without a digest in the config: ")]
    for named in (
        "corpus.train: ",
        "/more.tsv",
        "opus News/v1",
        "distillation: ",
        "vocabulary.source_pieces",
        f"data pin {config}",
    ):
        assert named in line
    assert "own.parquet" not in line
    assert line.count("/v.tgz") == 1
    main(["data", "pin", str(config)])
    (tmp_path / "pinned.yaml").write_text(f"base: c.yaml\n{capsys.readouterr().out}")
    assert main(["plan", str(tmp_path / "pinned.yaml")]) == 0
    assert "without a digest" not in capsys.readouterr().out
    assert unpinned(load_config(tmp_path / "pinned.yaml")) == {}


def test_licences_are_pinned_as_well(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = config.read_text().replace('source: "', 'source: {licence: CC0-1.0, url: "').replace('/d.en"', '/d.en"}')
    config.write_text(text)
    main(["data", "pin", str(config)])
    assert yaml.safe_load(capsys.readouterr().out)["distillation"]["source"][0]["licence"] == "CC0-1.0"


def test_a_pinned_file_that_changed_is_refused(
    config: Path, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["data", "pin", str(config)])
    (tmp_path / "pinned.yaml").write_text(f"base: c.yaml\nstore: {{path: {tmp_path}/other}}\n{capsys.readouterr().out}")
    site.put("/d.de", b"Haus!\n")
    assert main(["plan", str(tmp_path / "pinned.yaml")]) == 2
    assert "/d.de: expected sha256" in capsys.readouterr().err


def test_a_fetched_config_needs_no_network(config: Path, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(config), "--set", "store.offline=true"]) == 2
    assert "not in the store and store.offline: true; run fewstep data fetch CONFIG" in capsys.readouterr().err
    assert site.requests == []
    assert main(["data", "fetch", str(config), "--set", "store.offline=true"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "text",
        "corpus.train",
        "corpus.train",
        "corpus.validation",
        *["distillation"] * 2,
        "vocabulary.source_pieces",
        "evaluation.contrastive_pairs",
    ]
    asked = len(site.requests)
    assert main(["plan", str(config), "--set", "store.offline=true"]) == 0
    assert len(site.requests) == asked
