"""The command `data`, whose output is a config of the same steps, and text that was distilled elsewhere."""

import hashlib
import json
from io import BytesIO
from pathlib import Path

import pytest
import yaml
from sentencepiece import SentencePieceTrainer

from pipeline.__main__ import main
from pipeline.config.load import load_config
from pipeline.data import opus
from pipeline.data.pin import unpinned
from pipeline.errors import ConfigError
from pipeline.plan.step import Step
from pipeline.plan.wiring import build_plan
from pipeline.store.artifacts import Store
from stages.context import StepContext
from stages.shared.embedded import pairs
from stages.shared.shards import read_shards
from stages.workers import LocalWorkers, Resources
from tests.pipeline.data.web import Site, tarred, zipped

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
        "text", "corpus.train", "corpus.train", "corpus.validation", *["distillation"] * 2, "vocabulary.source_pieces",
        "evaluation.contrastive_pairs",
    ]  # fmt: skip
    asked = len(site.requests)
    assert main(["plan", str(config), "--set", "store.offline=true"]) == 0
    assert len(site.requests) == asked


DISTILLED = """
corpus:
  train: {{source: {folder}/train.en, target: {folder}/train.de}}
  validation: {{source: {folder}/valid.en, target: {folder}/valid.de}}
  test: {{t: {{source: {folder}/test.en, target: {folder}/test.de}}}}
  filters: {{max_length: 8}}
distillation: {{source: [{folder}/distilled.en], target: {folder}/distilled.de}}
systems:
  raw: {{}}
  distilled: {{data: distilled}}
store: {{path: {folder}/store}}
"""
TEXTS = {
    "train": [("This house is old.", "Dieses Haus ist alt."), ("That tree is tall.", "Jener Baum ist hoch.")],
    "valid": [("We validate this.", "Wir prüfen dies.")],
    "test": [("We test this.", "Wir testen dies.")],
    "distilled": [
        ("A source of another text.", "Eine Quelle aus einem anderen Text."),
        ("We test this.", "Wir versuchen es."),
        ("Another source.", "Wir prüfen dies."),
        ("Far too many words stand in this one sentence here.", "Zu viele Wörter."),
        ("That tree is tall.", "Jener Baum ist groß."),
    ],
}


@pytest.fixture
def distilled(tmp_path: Path) -> Path:
    for name, rows in TEXTS.items():
        for side, language in enumerate(("en", "de")):
            (tmp_path / f"{name}.{language}").write_text("".join(pair[side] + "\n" for pair in rows))
    (tmp_path / "c.yaml").write_text(DISTILLED.format(folder=tmp_path))
    return tmp_path / "c.yaml"


def planned(path: Path, *overrides: str) -> dict[str, Step]:
    distilled = load_config(path, overrides)
    return {step.name: step for step in build_plan(distilled, Store(distilled.store.path)).steps}


def run(step: Step) -> None:
    step.directory.mkdir(parents=True)
    resources = Resources(workers=1, cpus=1)
    context = StepContext(
        directory=step.directory, attempt="a", workers=LocalWorkers(), resources=resources, shard_cache=step.directory / "cache"
    )
    step.stage.run(step.inputs, step.config, context)


def test_distilled_text_is_trained_on_without_a_teacher(distilled: Path) -> None:
    steps = planned(distilled)
    assert not any(step.stage.name in ("distill", "system:teacher") for step in steps.values())
    assert steps["encode:distilled"].needs[0] == "corpus:train/distilled"
    assert "encode:distilled" in steps["train:distilled"].needs
    assert "encode:raw" in steps["train:raw"].needs
    assert steps["corpus:train/distilled"].config == steps["corpus:train"].config
    assert steps["corpus:train/distilled"].inputs.exclude == steps["corpus:train"].inputs.exclude


def test_filters_and_the_removal_of_test_sentences_apply(distilled: Path) -> None:
    steps = planned(distilled)
    for name in ("validation", "t", "train/distilled"):
        run(steps[f"corpus:{name}"])
    directory = steps["corpus:train/distilled"].directory
    kept = [(row["source"], row["target"]) for table in read_shards(directory) for row in table.to_pylist()]
    assert kept == [TEXTS["distilled"][0], TEXTS["distilled"][4]]
    ledger = json.loads((directory / "ledger.json").read_text())
    assert (ledger["pairs_in"], ledger["pairs_out"]) == (5, 2)


def test_candidate_tables_are_counted_from_it(distilled: Path) -> None:
    steps = planned(distilled, "lattice={data: distilled}", "alignment={unit: pieces}")
    assert steps["align:distilled"].needs == ("encode:distilled",)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("distillation={source: a, target: b, batch_tokens: 4}", "distillation.batch_tokens: expected one of"),
        ("distillation={source: a}", "distillation.target: expected files of both sides, got no target"),
        ("distillation={target: a, source: 'ftp://x/y'}", "distillation.source: expected a URL of the form"),
    ],
)
def test_mistakes_are_named(distilled: Path, override: str, message: str) -> None:
    distilled.write_text("corpus: {train: {embedded: 10}}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(distilled, [override])
    assert message in str(caught.value)
