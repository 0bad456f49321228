"""Systems of several seeds."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.config.derived.seeds import replicas
from pipeline.config.load import load_config, resolved
from pipeline.errors import ConfigError

CONFIG = """\
corpus: {train: {embedded: 50}}
seeds: [7, 8, 9]
defaults: {width: 16, search: [greedy]}
teacher: {heads: 2, ensemble: 2}
systems:
  auto: {use: teacher}
  both: {use: ensemble}
  student: {data: distilled}
  drafts: {family: aggressive, verifier: auto, heads: 2}
"""


def load(tmp_path: Path, text: str = CONFIG) -> Any:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return load_config(path)


def test_every_system_is_trained_with_each_seed_and_works_with_systems_of_its_seed(tmp_path: Path) -> None:
    config = load(tmp_path, CONFIG)
    systems = config.systems
    assert list(systems) == [
        *("auto", "both", "student", "drafts"),
        *(f"{name}-seed{seed}" for seed in (8, 9) for name in ("auto", "student", "drafts")),
    ]
    assert config.teacher.training.seed == 7
    assert [systems[name].training.seed for name in ("student", "student-seed8", "drafts-seed9")] == [7, 8, 9]
    assert (systems["auto-seed8"].heads, systems["auto-seed8"].data, systems["auto-seed8"].training.seed) == (2, "raw", 8)
    assert list(systems["auto-seed8"].search) == ["greedy"]
    assert [systems[name].verifier for name in ("drafts", "drafts-seed8")] == ["auto", "auto-seed8"]
    assert replicas(config.seeds, systems)["drafts"] == ["drafts", "drafts-seed8", "drafts-seed9"]
    assert "both" not in replicas(config.seeds, systems)


def test_a_resolved_config_loads_back_to_itself(tmp_path: Path) -> None:
    config = load(tmp_path, CONFIG)
    assert load(tmp_path, yaml.safe_dump(resolved(config))) == config


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("  student-seed8: {width: 32, data: distilled}\n", "systems.student-seed8.width: expected 16 as 'student' has"),
        ("  student-seed8: {search: [beam]}\n", "systems.student-seed8.search: expected the searches of 'student'"),
    ],
)
def test_seeds_that_disagree_in_shape_are_refused(tmp_path: Path, change: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, CONFIG + change)
    assert problem in str(error.value)


@pytest.mark.parametrize("seeds", ["[3, 3]", "[-1]", "[one]", "5"])
def test_wrong_seeds_are_refused(tmp_path: Path, seeds: str) -> None:
    with pytest.raises(ConfigError, match="seeds"):
        load(tmp_path, CONFIG.replace("[7, 8, 9]", seeds))


def test_one_seed_is_the_seed_of_all(tmp_path: Path) -> None:
    config = load(tmp_path, CONFIG.replace("[7, 8, 9]", "[7]"))
    assert (len(config.systems), config.systems["student"].training.seed) == (4, 7)
