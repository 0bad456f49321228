"""A family is added with its folder and one line of the table: everything else follows from the table."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from models.bundle.directory import load_system
from models.family import FAMILIES, FamilyEntry, family_named
from pipeline.commands.translate import system_directory
from pipeline.config import schema
from pipeline.config.docs import documentation
from pipeline.config.load import adapter, load_config, parse_search, resolved
from pipeline.config.systems import any_system
from pipeline.errors import ConfigError
from pipeline.plan.wiring import build_plan
from pipeline.run import execute
from pipeline.store.artifacts import Store
from tests.models.toy_family.system import GlossarySearch, GlossarySystem
from tests.translating import translated

CONFIG = """
name: toy
corpus:
  train: {embedded: 400}
  validation: {embedded: 20}
  test: {toy: {embedded: 20}}
vocabulary: {size: 200}
defaults: {order: interleaved, training: {updates: 10, batch_tokens: 512, validate_every: 5, validation_sentences: 8}}
systems:
  glossary:
    family: toy
    scale: 2
    training: {learning_rate: 0.05}
    search: {best: first, other: {second: {output_limits: {max_tokens: 3}}}}
benchmark: {sentences: 4, batch_sizes: [4], memory: false}
evaluation: {baseline: glossary/other}
tracking: {enabled: false}
"""


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The table with one more line. The choice of systems is made from the table when the schema is imported."""
    monkeypatch.setitem(FAMILIES, "toy", FamilyEntry("tests.models.toy_family"))
    monkeypatch.setattr(schema, "AnySystem", any_system())
    adapter.cache_clear()
    yield
    adapter.cache_clear()


@pytest.mark.usefixtures("toy")
def test_a_config_knows_the_family(tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_text(CONFIG)
    config = load_config(tmp_path / "toy.yaml")
    system = config.systems["glossary"]
    assert isinstance(system, GlossarySystem)
    assert (system.network.scale, system.training.updates) == (2.0, 10), "defaults apply as far as the family has them"
    assert list(system.search) == ["best", "other"]
    assert resolved(config)["systems"]["glossary"]["search"]["other"]["strategy"] == "second"
    assert parse_search("second-max_tokens3", "--search", "toy") == system.search["other"]
    assert "Factor of the scores." in documentation()
    for wrong, problem in (
        ("systems.glossary.scale=0", "systems.glossary.scale: expected more than 0, got 0"),
        ("systems.glossary.heads=3", "systems.glossary.heads: expected a divisor of width 128, got 3"),
        ("systems.glossary.search={second: {n_best: 2}}", "systems.glossary.search.second.n_best: expected 1, got 2"),
        (
            "systems.glossary.family=tye",
            "expected one of aggressive, dag, lattice, parallel, stepwise, toy, got 'tye'; did you mean 'toy'?",
        ),
    ):
        with pytest.raises(ConfigError) as caught:
            load_config(tmp_path / "toy.yaml", [wrong])
        assert problem in str(caught.value)


@pytest.mark.usefixtures("toy")
@pytest.mark.slow
def test_it_is_trained_bundled_decoded_timed_and_translates(tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_text(CONFIG)
    config = load_config(tmp_path / "toy.yaml", [f"store.path={tmp_path / 'store'}", "cluster.cpus=1"])
    store = Store(config.store.path)
    plan = build_plan(config, store)
    done = execute.run(config, plan, store, config_file="toy.yaml", in_process=True)
    assert not done.failed
    directory = system_directory(config.store.path, "latest", "glossary")
    system = load_system(directory)
    assert isinstance(system.search, GlossarySearch)
    best = system.translate(["ein hund läuft im park"])
    assert best != system.translate(["ein hund läuft im park"], "other")
    (tmp_path / "in").write_text("ein hund läuft im park\n")
    for label, expected in (("best", best), ("first", best), ("other", system.translate(["ein hund läuft im park"], "other"))):
        translated(directory, tmp_path / "in", tmp_path / "out", label)
        assert (tmp_path / "out").read_text().splitlines() == expected


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(ValueError, match="family: expected one of stepwise, dag, lattice, aggressive, parallel, got 'toy'"):
        family_named("toy")
