"""Plans with teachers from elsewhere: programs, models of CTranslate2, and imported networks."""

from pathlib import Path

import pytest
import yaml

from pipeline.config.load import load_config
from pipeline.errors import ConfigError
from pipeline.plan.packages import check_packages
from stages.errors import DataError
from tests.models.imports.fairseq_reference import SHARED, Reference
from tests.pipeline.plan.toy_plans import fingerprint, needs, planned

COMMAND = {"command": ["cat"], "version": "1"}
MODEL = {"ctranslate2": "model"}
STUDENT = {"systems": {"student": {"data": "distilled"}}, "evaluation": {}, "lattice": None}


def test_a_model_of_ctranslate2_distils_by_its_content_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    teacher = {"ctranslate2": str(folder)}
    with pytest.raises(DataError, match=r"teacher\.ctranslate2: expected a directory of CTranslate2 .*, got .*model with none"):
        planned(tmp_path, teacher=teacher, **STUDENT)
    for name in ("model.bin", "config.json", "shared_vocabulary.json"):
        (folder / name).write_text("{}")
    with pytest.raises(DataError, match=r"teacher\.source_pieces: expected a SentencePiece model, got no file .*source\.spm"):
        planned(tmp_path, teacher=teacher, **STUDENT)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_text(name)
    plan = planned(tmp_path, teacher=teacher, **STUDENT)
    assert needs(plan, "encode:distilled") == {"external:train", "vocabulary:joint"}
    first = fingerprint(plan, "external:train")
    assert fingerprint(planned(tmp_path, teacher={**teacher, "shards_per_process": 2}, **STUDENT), "external:train") == first
    assert fingerprint(planned(tmp_path, teacher={**teacher, "beam_size": 1}, **STUDENT), "external:train") != first
    (folder / "target.spm").write_text("another")
    assert fingerprint(planned(tmp_path, teacher=teacher, **STUDENT), "external:train") != first

    monkeypatch.setattr("pipeline.plan.packages.find_spec", lambda name: None)
    path = tmp_path / "package.yaml"
    path.write_text(yaml.safe_dump({"teacher": teacher, "systems": STUDENT["systems"], "corpus": {"train": {"embedded": 50}}}))
    with pytest.raises(DataError, match=r"teacher\.ctranslate2 needs the package ctranslate2.*pip install ctranslate2"):
        check_packages(load_config(path, []))


def test_a_network_of_fairseq_needs_its_checkpoint_and_a_vocabulary_of_sentencepiece(tmp_path: Path) -> None:
    Reference(**SHARED).write(tmp_path / "fairseq")
    names = {"fairseq": "model.pt", "source_dictionary": "dict.en.txt", "target_dictionary": "dict.de.txt"}
    names |= {"source_pieces": "source.model", "target_pieces": "target.model"}
    teacher = {key: str(tmp_path / "fairseq" / name) for key, name in names.items()}
    systems = {"auto": {"use": "teacher"}, "student": {"data": "distilled"}}
    plan = planned(tmp_path, **{**STUDENT, "teacher": teacher, "systems": systems, "vocabulary": {"use": "teacher"}})
    assert needs(plan, "distill:train") == {"corpus:train", "import_network:teacher"}
    assert needs(plan, "encode:raw") == {"corpus:train", "import_network:teacher"}
    for key in ("fairseq", "source_dictionary"):
        with pytest.raises(DataError, match=rf"teacher\.{key}: expected a file, got .*none"):
            planned(tmp_path, **{**STUDENT, "teacher": {**teacher, key: str(tmp_path / "none")}})
    without = {key: value for key, value in teacher.items() if key != "source_dictionary"}
    with pytest.raises(ConfigError, match="source_dictionary"):
        planned(tmp_path, **{**STUDENT, "teacher": without})
    (tmp_path / "codes").write_text("#version: 0.2\na b</w>\n")
    with pytest.raises(DataError, match="expected a SentencePiece model, got BPE codes of subword-nmt or fastBPE"):
        planned(tmp_path, **{**STUDENT, "teacher": {**teacher, "source_pieces": str(tmp_path / "codes")}})


def test_a_program_distils_and_its_version_and_files_are_inputs(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("one")
    teacher = {**COMMAND, "files": [str(tmp_path / "model")]}
    plan = planned(tmp_path, teacher=teacher, **STUDENT)
    assert needs(plan, "encode:distilled") == {"external:train", "vocabulary:joint"}
    first = fingerprint(plan, "external:train")
    assert fingerprint(planned(tmp_path, teacher={**teacher, "timeout_seconds": 9.0}, **STUDENT), "external:train") == first
    assert fingerprint(planned(tmp_path, teacher={**teacher, "version": "2"}, **STUDENT), "external:train") != first
    (tmp_path / "model").write_text("another")
    assert fingerprint(planned(tmp_path, teacher=teacher, **STUDENT), "external:train") != first


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"systems": {"auto": {"use": "teacher"}}}, "a teacher with a network, not a command"),
        (
            {"teacher": {**COMMAND, "files": ["a/model", "b/vocab", "c/model"]}},
            r"files\[2\]: expected names that differ, .* 'model' again",
        ),
        ({"distillation": {"n_best": 3}}, "n_best: expected 1 with teacher.command"),
        ({"distillation": {"n_best": 3, "choose": "reference"}}, "choose: expected score with teacher.command"),
        ({"systems": {"student": {"initial_weights": "teacher"}}}, "random with teacher.command"),
        ({"vocabulary": {"use": "teacher"}}, "an imported teacher in the config"),
        ({"languages": {"target_token": ">>deu<<"}}, "none unless the teacher is imported"),
        ({"teacher": MODEL, "systems": {"auto": {"use": "teacher"}}}, "a teacher with a network, not a model of CTranslate2"),
        ({"teacher": MODEL, "distillation": {"n_best": 3}}, "n_best: expected 1 with teacher.ctranslate2"),
        ({"teacher": MODEL, "systems": {"student": {"initial_weights": "teacher"}}}, "random with teacher.ctranslate2"),
    ],
)
def test_a_program_is_no_network(changes: dict[str, object], match: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=match):
        planned(tmp_path, **{"teacher": COMMAND, **STUDENT, **changes})


def test_an_imported_teacher_is_a_system_and_may_lend_its_vocabulary(tmp_path: Path) -> None:
    directory = tmp_path / "opus-mt"
    directory.mkdir()
    for name in ("config.json", "vocab.json", "other.txt"):
        (directory / name).write_text("{}")
    systems = {"auto": {"use": "teacher"}, "student": {"data": "distilled"}}
    plan = planned(
        tmp_path, **{**STUDENT, "teacher": {"marian": str(directory)}, "systems": systems, "vocabulary": {"use": "teacher"}}
    )
    assert needs(plan, "distill:train") == {"corpus:train", "import_network:teacher"}
    assert needs(plan, "encode:raw") == {"corpus:train", "import_network:teacher"}
    assert not any(step.stage.name == "vocabulary" for step in plan.steps)
    before = fingerprint(plan, "import_network:teacher")
    (directory / "other.txt").write_text("changed")
    same = planned(tmp_path, **{**STUDENT, "teacher": {"marian": str(directory)}, "systems": systems})
    assert fingerprint(same, "import_network:teacher") == before
    assert needs(same, "encode:raw") == {"corpus:train", "vocabulary:joint"}
    for kind in ("marian", "bart"):
        with pytest.raises(DataError, match=rf"teacher\.{kind}: expected a directory"):
            planned(tmp_path, **{**STUDENT, "teacher": {kind: str(tmp_path / "none")}})


def test_an_imported_bart_names_its_kind_and_depends_on_its_merges(tmp_path: Path) -> None:
    directory = tmp_path / "bart"
    directory.mkdir()
    for name in ("config.json", "vocab.json", "merges.txt"):
        (directory / name).write_text("{}")
    changes = {**STUDENT, "teacher": {"bart": str(directory)}, "vocabulary": {"use": "teacher"}}
    plan = planned(tmp_path, **changes)
    assert needs(plan, "encode:raw") == {"corpus:train", "import_network:teacher"}
    before = fingerprint(plan, "import_network:teacher")
    (directory / "merges.txt").write_text("changed")
    assert fingerprint(planned(tmp_path, **changes), "import_network:teacher") != before
