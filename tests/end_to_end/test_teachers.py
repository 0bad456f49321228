"""Whole runs that distil from teachers of other toolkits, in this process."""

import json
import sys
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file

from models.bundle.directory import load_system
from pipeline.__main__ import main
from pipeline.config.load import load_config
from pipeline.plan.wiring import build_plan
from pipeline.run import execute
from pipeline.store.artifacts import Store
from stages.shared.shards import read_shards
from tests.models.imports.test_fairseq import SHARED, Reference
from tests.models.imports.test_marian import Payload

TINY = {
    "name": "outside",
    "corpus": {"train": {"embedded": 60}, "validation": {"embedded": 5}, "test": {"tiny": {"embedded": 5}}},
    "vocabulary": {"size": 100},
    "defaults": {
        "width": 16,
        "feed_forward": 16,
        "heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "max_positions": 256,
        "training": {
            "updates": 2, "batch_tokens": 512, "warmup_updates": 1, "validate_every": 2, "validation_sentences": 2,
            "num_averaged": 1,
        },
        "search": ["greedy"],
    },
    "benchmark": {"enabled": False},
    "cluster": {"cpus": 1},
    "tracking": {"enabled": False},
}  # fmt: skip


def run(tmp_path: Path, until: str | None = None, **changes: object) -> dict[str, Path]:
    """Run a config in this process, and return the directories of its steps."""
    path = tmp_path / "outside.yaml"
    path.write_text(yaml.safe_dump({**TINY, "store": {"path": str(tmp_path / "store")}, **changes}))
    config = load_config(path, [])
    store = Store(config.store.path)
    plan = build_plan(config, store).until(until)
    assert execute.run(config, plan, store, config_file=str(path), in_process=True).failed == {}
    return {step.name: step.directory for step in plan.steps}


def test_a_student_learns_from_a_program(tmp_path: Path) -> None:
    code = "import sys; [print(line.strip()[::-1], flush=True) for line in sys.stdin]"
    teacher = {"command": [sys.executable, "-c", code], "version": "reversed 1"}
    steps = run(tmp_path, "system", teacher=teacher, systems={"student": {"order": "interleaved", "data": "distilled"}})
    for table in read_shards(steps["external:train"]):
        assert all(
            target == source[::-1] for source, target in zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True)
        )
    assert (steps["system:student"] / "model.safetensors").is_file()


@pytest.mark.slow
def test_a_finished_system_writes_the_sources_of_text_that_a_curriculum_begins_with(tmp_path: Path) -> None:
    # An untrained system ends its outputs at the limit, which drops them, unless it may end early.
    early = {"order": "interleaved", "search": [{"greedy": {"end_threshold": 0.003}}]}
    reverse = run(tmp_path, "system", languages={"source": "de", "target": "en"}, systems={"back": early})
    news = [f"Der Mann liest {number} Bücher." for number in range(40)]
    (tmp_path / "news.de").write_text("\n".join(news))
    back = {"monolingual": str(tmp_path / "news.de"), "by": str(reverse["system:back"])}
    training = {"curriculum": [{"mix": {"back_translation": 3, "raw": 1}, "updates": 1}, {"mix": {"raw": 1}}]}
    systems = {"student": {"training": training}, "plain": {}}
    steps = run(tmp_path, corpus={**TINY["corpus"], "back_translation": back}, systems=systems)
    written = [row for table in read_shards(steps["distill:back-translation"]) for row in table.to_pylist()]
    assert written
    assert {row["source"] for row in written} <= set(news), "the sides are exchanged when the pairs are encoded"
    report = json.loads((steps["train:student"] / "training.json").read_text())
    assert report["curriculum_stage"] == 2
    assert (steps["report:run"] / "results.json").is_file()


@pytest.mark.slow
def test_a_bart_is_teacher_and_system_and_its_students_share_its_vocabulary(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    import fewstep
    from tests.models.imports.test_bart import write_bart

    write_bart(tmp_path / "bart", seed=3, max_position_embeddings=257)
    keys = {
        "norm": "post", "positions": "learned", "activation": "gelu", "start": "shared", "scale_embeddings": False,
        "encoder_layers": 2, "decoder_layers": 2, "feed_forward": 24,
    }  # fmt: skip
    parts = {"logits_bias": True, "embedding_norm": True, "begin_vectors": True}
    systems = {
        "autoregressive": {"use": "teacher"},
        "tuned": {"data": "distilled", "initial_weights": "teacher", **keys, **parts},
        "student": {"order": "interleaved", "data": "distilled"},
    }
    steps = run(tmp_path, vocabulary={"use": "teacher"}, teacher={"bart": str(tmp_path / "bart")}, systems=systems)
    imported, student = steps["import_network:teacher"], steps["system:student"]
    assert (
        (student / "merges.txt").read_bytes()
        == (imported / "merges.txt").read_bytes()
        == (tmp_path / "bart/merges.txt").read_bytes()
    )
    native = fewstep.load(student)
    assert native.encode(["a dog"]) == load_system(imported).encode(["a dog"])
    assert len(native.translate(["a dog"])) == 1
    assert "begin.weight" in load_file(steps["system:tuned"] / "model.safetensors")


@pytest.mark.slow
def test_a_bart_verifies_the_drafts_of_a_drafter_that_learns_from_it(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.models.imports.test_bart import write_bart

    write_bart(tmp_path / "bart", seed=3, end_bias=6.0, max_position_embeddings=257)
    systems = {
        "autoregressive": {"use": "teacher"},
        "drafter": {
            "family": "aggressive", "verifier": "autoregressive", "data": "verifier", "initial_weights": "random",
            "draft_width": 4, "search": ["gad", {"gad": {"drafter": "lookup"}}],
        },
    }  # fmt: skip
    steps = run(
        tmp_path, task="summarization", languages={"source": "en"}, vocabulary={"use": "teacher"},
        teacher={"bart": str(tmp_path / "bart")}, systems=systems, evaluation={"baseline": "autoregressive"},
    )  # fmt: skip
    texts = [(steps[f"decode:{name}:tiny"] / "hypotheses.txt").read_text() for name in ("autoregressive/greedy", "drafter/gad")]
    texts.append((steps["decode:drafter/gad-lookup:tiny"] / "hypotheses.txt").read_text())
    assert texts[0] == texts[1] == texts[2]
    assert len(set(texts[0].splitlines())) > 1
    assert set(load_system(steps["system:drafter"]).decoder.engines) == {"torch"}
    rows = json.loads((steps["report:run"] / "results.json").read_text())["rows"]
    assert {row["system"] for row in rows} == {"autoregressive", "drafter"}


@pytest.mark.slow
def test_a_marian_network_is_teacher_verifier_and_system_in_one_config(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.models.imports.marian_networks import write_marian

    write_marian(tmp_path / "marian", seed=3, end_bias=9.0, max_position_embeddings=256)
    keys = {
        "norm": "post", "activation": "swish", "sinusoids": "paper", "encoder_layers": 2, "decoder_layers": 2,
        "feed_forward": 24,
    }  # fmt: skip
    systems = {
        "autoregressive": {"use": "teacher"},
        "tuned": {"data": "distilled", "initial_weights": "teacher", "logits_bias": True, **keys},
        "student": {"order": "interleaved", "data": "distilled"},
        "drafter": {
            "family": "aggressive", "verifier": "autoregressive", "data": "verifier", "draft_width": 4, "search": ["gad"],
            **keys,
        },
    }  # fmt: skip
    steps = run(tmp_path, teacher={"marian": str(tmp_path / "marian")}, vocabulary={"use": "teacher"}, systems=systems)
    text = {
        name: (steps[f"decode:{name}:tiny"] / "hypotheses.txt").read_text() for name in ("autoregressive/greedy", "drafter/gad")
    }
    assert text["autoregressive/greedy"] == text["drafter/gad"]
    described = json.loads((steps["system:tuned"] / "system.json").read_text())
    assert (described["format"], described["network"]["logits_bias"]) == (5, True)


def fairseq(directory: Path) -> dict[str, str]:
    """Return the keys of a teacher with the files that `Reference.write` wrote."""
    names = {"fairseq": "model.pt", "source_dictionary": "dict.en.txt", "target_dictionary": "dict.de.txt"}
    names |= {"source_pieces": "source.model", "target_pieces": "target.model"}
    return {key: str(directory / name) for key, name in names.items()}


@pytest.mark.slow
def test_a_network_of_fairseq_is_teacher_verifier_and_system_in_one_config(tmp_path: Path) -> None:
    positions = {"max_source_positions": 256, "max_target_positions": 256}
    Reference(seed=21, end=9.0, **SHARED, **positions).write(tmp_path / "fairseq")
    keys = {"norm": "post", "position_offset": 2, "encoder_layers": 2, "decoder_layers": 2, "feed_forward": 24}
    systems = {
        "autoregressive": {"use": "teacher"},
        "tuned": {"data": "distilled", "initial_weights": "teacher", "logits_bias": True, "start": "shared", **keys},
        "student": {"order": "interleaved", "data": "distilled"},
        "drafter": {"family": "aggressive", "verifier": "autoregressive", "data": "verifier", "search": ["gad"], **keys},
    }
    steps = run(tmp_path, teacher=fairseq(tmp_path / "fairseq"), vocabulary={"use": "teacher"}, systems=systems)
    text = {
        name: (steps[f"decode:{name}:tiny"] / "hypotheses.txt").read_text() for name in ("autoregressive/greedy", "drafter/gad")
    }
    assert text["autoregressive/greedy"] == text["drafter/gad"]
    origin = json.loads((steps["import_network:teacher"] / "system.json").read_text())["origin"]
    assert (origin["kind"], sorted(origin["files"])[-1]) == ("fairseq", "target.model")
    manifest = json.loads((steps["import_network:teacher"] / "manifest.json").read_text())
    assert {(one["from"], one["licence"]) for one in manifest["origin"]} == {("fairseq:model.pt", "unknown")}
    page = (steps["report:run"] / "records/report.html").read_text()
    assert all(one["sha256"][:16] in page for one in manifest["origin"])
    pinned = {"teacher": {"from": str(steps["import_network:teacher"])}, "systems": {"again": {"use": "teacher"}}}
    again = run(tmp_path, **pinned)
    assert (again["decode:again/greedy:tiny"] / "hypotheses.txt").read_text() == text["autoregressive/greedy"]


def test_code_in_a_checkpoint_ends_with_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Reference(**SHARED).write(tmp_path / "fairseq", extra_state=Payload(tmp_path / "ran"))
    path = tmp_path / "poisoned.yaml"
    teacher = fairseq(tmp_path / "fairseq")
    path.write_text(yaml.safe_dump({**TINY, "store": {"path": str(tmp_path / "store")}, "teacher": teacher}))
    assert main(["run", str(path), "--in-process", "--until", "import_network:teacher"]) == 2
    assert "refused global" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()
