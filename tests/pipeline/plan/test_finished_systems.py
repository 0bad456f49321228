"""Systems of a config that were made before (`{from: DIRECTORY}`): published checkpoints beside trained systems, to the report."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import models.bundle.directory
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.dag.config import DagSearch
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from pipeline.commands.convert import write_checkpoint
from pipeline.commands.translate import system_directory
from pipeline.config.load import load_config, resolved
from pipeline.config.schema import RunConfig
from pipeline.errors import ConfigError
from pipeline.plan.step import Plan
from pipeline.plan.wiring import build_plan
from pipeline.run import execute
from pipeline.run.execute import RunReport
from pipeline.store.artifacts import Store
from stages.errors import DataError
from stages.shared.shards import read_shard, shard_paths
from tests.fewstep.systems import SMALL, count_tables, train, train_pieces, write
from tests.models.imports.authors_networks import NETWORKS, SYMBOLS, sources

VALUES = json.loads((Path(__file__).parents[2] / "models/imports/authors.json").read_text(encoding="utf-8"))
LINES = [" ".join(f"w{symbol}" for symbol in source) for source in sources(40)]
NETWORK = {"width": 16, "feed_forward": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
TRAINING = {
    "updates": 2,
    "batch_tokens": 256,
    "warmup_updates": 1,
    "validate_every": 2,
    "validation_sentences": 2,
    "num_averaged": 1,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text that is split, its dictionary, and a graph, a verifier and its drafter that were converted."""
    root = tmp_path_factory.mktemp("published")
    dictionary = root / "dict.txt"
    dictionary.write_text("".join(f"w{number} 1\n" for number in range(SYMBOLS)), encoding="utf-8")
    for name, family in {"verifier": "stepwise", "block": "aggressive", "v2": "dag"}.items():
        torch.save(NETWORKS[name].checkpoint(), root / f"{name}.pt")
        companions = {"verifier": root / "verifier"} if family == "aggressive" else {}
        write_checkpoint(root / f"{name}.pt", root / name, (dictionary, dictionary), family, ("en", "de"), companions, 20)
    for part, lines in {"train": LINES[6:], "validation": LINES[4:6], "test": LINES[:4]}.items():
        (root / f"{part}.en").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        (root / f"{part}.de").write_text("".join(f"{line.split()[0]} {line}\n" for line in lines), encoding="utf-8")
    return root


def text(folder: Path, part: str) -> dict[str, str]:
    return {side: str(folder / f"{part}.{code}") for side, code in (("source", "en"), ("target", "de"))}


def config_of(folder: Path, store: Path, systems: dict[str, Any], **changes: Any) -> RunConfig:
    values = {
        "corpus": {
            "train": text(folder, "train"), "validation": text(folder, "validation"), "test": {"test": text(folder, "test")},
        },
        "vocabulary": {"source_dictionary": str(folder / "dict.txt")},
        "systems": systems,
        "benchmark": {"enabled": False},
        "tracking": {"enabled": False},
        "store": {"path": str(store)},
        "cluster": {"cpus": 1},
        **changes,
    }  # fmt: skip
    path = store.parent / "run.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return load_config(path)


def planned(folder: Path, store: Path, systems: dict[str, Any], **changes: Any) -> Plan:
    config = config_of(folder, store, systems, **changes)
    return build_plan(config, Store(config.store.path))


def run(config: RunConfig) -> tuple[RunReport, dict[str, Path]]:
    store = Store(config.store.path)
    plan = build_plan(config, store)
    found = execute.run(config, plan, store, config_file="run.yaml", in_process=True)
    return found, {step.name: step.directory for step in plan.steps}


@pytest.mark.slow
def test_published_systems_are_decoded_timed_and_reported_beside_trained_ones(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systems = {
        "ours": {**NETWORK, "training": TRAINING, "search": "greedy"},
        "graph": {"from": str(folder / "v2"), "search": ["lookahead", "greedy"]},
        "verifier": {"from": str(folder / "verifier"), "search": "greedy"},
        "pair": {"from": str(folder / "block")},
    }
    timing = {"sentences": 2, "rounds": 2, "batch_sizes": [2], "memory": False}
    config = config_of(folder, tmp_path / "store", systems, benchmark=timing, evaluation={"dag_analysis": 1})
    writing = models.bundle.directory.write_json

    def fail(path: Path, value: object) -> None:
        if path.parent.parent.name == "system" and list(getattr(value, "get", dict)("searches", {})) == ["lookahead", "greedy"]:
            raise OSError(5, "the machine went away")
        writing(path, value)

    monkeypatch.setattr(models.bundle.directory, "write_json", fail)
    first, steps = run(config)
    assert set(first.failed) == {"system:graph"}
    monkeypatch.undo()
    second, steps = run(config)
    assert second.failed == {}
    assert second.executed == ("system:graph",), "what was decoded by a finished system does not depend on its searches"
    assert run(config)[0].executed == ()

    results = json.loads((steps["report:run"] / "results.json").read_text(encoding="utf-8"))
    rows = {(row["system"], row["search"]): row for row in results["rows"]}
    assert set(rows) == {
        ("ours", "greedy"), ("graph", "lookahead"), ("graph", "greedy"), ("verifier", "greedy"), ("pair", "gad"),
    }  # fmt: skip
    assert all("subwords" in row["metrics"]["bleu"]["signature"] for row in rows.values())
    timed = json.loads((steps["benchmark:all:test"] / "records/benchmark.json").read_text(encoding="utf-8"))
    assert set(timed["entries"]) == {"/".join(key) for key in rows}
    for strategy in ("lookahead", "greedy"):
        expected = [" ".join(f"w{token - 4}" for token in output) for output in VALUES["v2"]["outputs"][strategy][:4]]
        assert outputs(steps[f"decode:graph/{strategy}:test"]) == expected
    assert outputs(steps["decode:pair/gad:test"]) == outputs(steps["decode:verifier/greedy:test"])
    assert "dag_analysis:graph:test" in steps

    bundled = system_directory(config.store.path, "latest", "graph")
    assert bundled == steps["system:graph"]
    described = json.loads((bundled / "system.json").read_text(encoding="utf-8"))
    assert (list(described["searches"]), described["search"]) == (["greedy", "lookahead"], "lookahead")
    assert described["origin"]["name"] == "v2.pt"


def outputs(directory: Path) -> list[str]:
    return [text for path in shard_paths(directory) for text in read_shard(path)["text"].to_pylist()]


def test_a_finished_system_is_known_by_its_content(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(place: Path, **options: Any) -> dict[str, str]:
        return {
            step.name: step.fingerprint
            for step in planned(folder, tmp_path / "store", {"graph": {"from": str(place), **options}}).steps
        }

    copying, copied = shutil.copyfile, []

    def interrupted(source: Path, target: Path) -> None:
        if len(copied) == 1:
            raise KeyboardInterrupt
        copied.append(target)
        copying(source, target)

    monkeypatch.setattr(shutil, "copyfile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        plan(folder / "v2")
    monkeypatch.undo()
    first = plan(folder / "v2")
    elsewhere = Path(shutil.copytree(folder / "v2", tmp_path / "elsewhere"))
    assert plan(elsewhere) == first
    more = plan(folder / "v2", search=["lookahead", "greedy"])
    assert {name for name in first if first[name] != more[name]} == {"system:graph", "report:run"}
    assert not [name for name in first if name.startswith(("train:", "distill:"))]


def test_the_family_is_that_of_the_directory_and_a_resolved_config_needs_no_directory(folder: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(folder / "v2", tmp_path / "graph"))
    config = config_of(folder, tmp_path / "store", {"graph": {"from": str(directory)}, "pair": {"from": str(folder / "block")}})
    graph, pair = config.systems["graph"], config.systems["pair"]
    assert (graph.family, graph.search) == ("dag", {"lookahead": DagSearch()})
    assert (pair.family, list(pair.search.values())) == ("aggressive", [AggressiveSearch()])
    shutil.rmtree(directory)
    (tmp_path / "again.json").write_text(json.dumps(resolved(config)), encoding="utf-8")
    assert load_config(tmp_path / "again.json") == config
    seeded = config_of(folder, tmp_path / "store", {"graph": {"from": str(folder / "v2")}, "ours": {}}, seeds=[1, 2])
    assert list(seeded.systems) == ["graph", "ours", "ours-seed2"]
    assert asdict(seeded.systems["graph"]) == asdict(graph) | {"path": folder / "v2"}


@pytest.mark.parametrize(
    ("system", "changes", "match"),
    [
        ({"from": "FOLDER/none", "family": "dag"}, {}, r"systems.it.from: expected the directory of a finished artifact .*none"),
        ({"from": "FOLDER/v2", "family": "stepwise"}, {}, r"systems.it.family: expected dag, the family of .*v2, got stepwise"),
        (
            {"from": "FOLDER/v2"},
            {"languages": {"source": "en", "target": "fr"}},
            r"from: expected a system of translation from en to",
        ),
        (
            {"from": "FOLDER/v2"},
            {"vocabulary": {"size": 20, "exact": False}},
            "expected a system of text that is not split, as that of the run, got one of text that is split into tokens already",
        ),
        (
            {"from": "FOLDER/v2", "search": {"beam": {"ngram_weight": 0.1}}},
            {},
            r"systems.it.search.beam-ngram_weight0.1.ngram_weight: expected 0 .*, got 0.1; it is the system of .*v2",
        ),
        (
            {"from": "FOLDER/block", "search": {"gad": {"drafter": "system"}}},
            {},
            r"systems.it.search.gad-system.drafter: expected .*; it is the system of .*block",
        ),
    ],
)
def test_a_system_that_does_not_fit_the_run_is_refused_by_name(
    system: dict[str, Any], changes: dict[str, Any], match: str, folder: Path, tmp_path: Path
) -> None:
    written = {**system, "from": system["from"].replace("FOLDER", str(folder))}
    with pytest.raises(DataError, match=match):
        planned(folder, tmp_path / "store", {"it": written}, **changes)


@pytest.fixture(scope="module")
def lattices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Finished lattice systems of counted candidates (`counted`) and of a cascade (`cascade`)."""
    root = tmp_path_factory.mktemp("lattices")
    pieces = train_pieces(root / "joint")
    count_tables(root / "tables.bin", pieces)
    counted = LatticeModelConfig(**SMALL)
    cascade = replace(counted, segment_start="bos", segment_length=3)
    searches = {"counted": LatticeSearch(candidates=4), "cascade": LatticeSearch(strategy="cascade", candidates=4)}
    for name, network in {"counted": counted, "cascade": cascade}.items():
        weights = train(root / f"{name}-trained", "lattice", network, 5)
        search = searches[name]
        write(root / name, "lattice", network, {search.label: search}, weights, pieces, tables=root / "tables.bin")
    return {name: root / name for name in searches}


def test_a_finished_cascade_has_no_analysis_of_counted_candidates(lattices: dict[str, Path], folder: Path, tmp_path: Path) -> None:
    counted, cascade = {"from": str(lattices["counted"])}, {"from": str(lattices["cascade"]), "search": "cascade"}
    looked_up = {**cascade, "search": "lookup"}
    changes = {"vocabulary": {"size": 20, "exact": False}, "evaluation": {"lattice_analysis": 2}}
    systems = {"counted": counted, "cascade": cascade, "looked-up": looked_up}
    steps = [step.name for step in planned(folder, tmp_path / "store", systems, **changes).steps]
    assert [name for name in steps if name.startswith("lattice_analysis:")] == ["lattice_analysis:counted:test"]
    assert {f"decode:{name}:test" for name in ("counted/viterbi", "cascade/cascade", "looked-up/lookup")} < set(steps)
    with pytest.raises(
        DataError, match=r"evaluation.lattice_analysis: expected a system whose network has this analysis, got casc"
    ):
        planned(folder, tmp_path / "store", {"cascade": cascade}, **changes)


def test_a_place_without_a_system_has_no_family(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"systems.it.from: expected the directory of a system \(with system.json\), got '.*/none'"
    ):
        config_of(folder, tmp_path / "store", {"it": {"from": str(folder / "none"), "search": "lookahead"}})


@pytest.mark.parametrize(
    ("system", "match"),
    [
        ({"training": {"updates": 3}}, r"systems.it.training: expected a known key|systems.it.training: expected one of the keys"),
        ({"search": "outer"}, r"systems.it.search: expected 'greedy', 'lookahead'"),
        ({"family": "gat"}, r"systems.it.family: expected one of aggressive, dag, lattice, parallel, stepwise, got 'gat'"),
    ],
)
def test_keys_of_trainings_and_of_other_families_are_refused(
    system: dict[str, Any], match: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=match):
        config_of(folder, tmp_path / "store", {"it": {"from": str(folder / "v2"), **system}})


def test_a_drafter_is_trained_for_a_published_verifier_with_its_vocabulary(folder: Path, tmp_path: Path) -> None:
    systems = {
        "published": {"from": str(folder / "verifier")},
        "pair": {
            "family": "aggressive",
            "verifier": "published",
            "data": "verifier",
            **NETWORK,
            "max_positions": 20,
            "draft_width": 3,
        },
    }
    with pytest.raises(ConfigError, match=r"vocabulary: expected that of 'published' \(\{from: .*verifier\}\), which works with"):
        config_of(folder, tmp_path / "store", systems)
    plan = planned(folder, tmp_path / "store", systems, vocabulary={"from": str(folder / "verifier")})
    steps = {step.name: step for step in plan.steps}
    assert steps["train:pair"].inputs.vocabulary.path == steps["system:published"].inputs.alone.path
    assert steps["corpus:train"].config.split
    assert steps["score:published/greedy:test"].config.tokenizer == "subwords"
