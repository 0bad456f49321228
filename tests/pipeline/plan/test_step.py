"""Steps of a plan, their fingerprints, the digest of their code, and text files."""

import json
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.texts import TextConfig
from pipeline.data.access import DataAccess
from pipeline.plan import code_digest as codebase
from pipeline.plan import step
from pipeline.plan.fingerprint import artifacts, canonical, digest, fingerprint
from pipeline.plan.step import Builder, Plan
from pipeline.plan.text_files import text_files
from pipeline.store.artifacts import Store
from stages.artifacts import Artifact, ExternalFile
from stages.errors import DataError
from stages.stage import version
from tests.pipeline.run.toys import STAGE, ToyConfig, ToyInputs, diamond

# ---- steps


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return diamond(Store(tmp_path))


def names(plan: Plan) -> list[str]:
    return [step.name for step in plan.steps]


def test_until_selects_a_step_or_stage_and_its_inputs(plan: Plan) -> None:
    assert names(plan.until("toy:c")) == ["toy:a", "toy:c"]
    assert plan.until("toy") == plan
    assert plan.until(None) == plan
    with pytest.raises(DataError, match="expected a step or a stage of the plan"):
        plan.until("toy:x")


def test_needed_steps_are_the_last_ones_and_the_inputs_of_missing_ones(plan: Plan) -> None:
    def needed(*present: str) -> list[str]:
        return [step.name for step in plan.needed(lambda step: step.name in present)]

    assert needed() == ["toy:a", "toy:b", "toy:c", "toy:d"]
    assert needed("toy:d") == ["toy:d"]
    assert needed("toy:b", "toy:c") == ["toy:b", "toy:c", "toy:d"]
    assert needed("toy:b") == ["toy:a", "toy:b", "toy:c", "toy:d"]


def test_products_are_needed_although_later_steps_are_present(plan: Plan) -> None:
    first, *others = plan.steps
    plan = Plan((replace(first, stage=replace(STAGE, product=True)), *others))
    assert [step.name for step in plan.needed(lambda step: step.name == "toy:d")] == ["toy:a", "toy:d"]


def test_a_run_has_at_most_ten_thousand_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert step.MAX_STEPS == 10_000
    monkeypatch.setattr(step, "MAX_STEPS", 3)
    builder = Builder(tmp_path)
    for name in "abc":
        builder.add(STAGE, name, ToyInputs(), ToyConfig(text=name))
    builder.add(STAGE, "c", ToyInputs(), ToyConfig(text="c"))
    with pytest.raises(DataError, match="expected a run of at most 3 steps, got more"):
        builder.add(STAGE, "d", ToyInputs(), ToyConfig(text="d"))


def test_equal_steps_are_planned_once(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    first = builder.add(STAGE, "a", ToyInputs(), ToyConfig("a"))
    assert builder.add(STAGE, "b", ToyInputs(), ToyConfig("a")) == first
    assert names(builder.plan()) == ["toy:a"]


def test_two_different_steps_with_one_name_are_refused(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    builder.add(STAGE, "a", ToyInputs(), ToyConfig("a"))
    with pytest.raises(AssertionError, match="expected different names for different steps, got toy:a twice"):
        builder.add(STAGE, "a", ToyInputs(), ToyConfig("b"))


# ---- code


def test_changed_extension_sources_change_the_digests_of_modules_that_import_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("stages", "kernels/csrc/base", "kernels/bindings", "fewstep"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "stages/one.py").write_text("def run():\n    from fewstep.native import fewstep_native\n")
    (tmp_path / "stages/two.py").write_text("import stages.shared.shards\n")
    (tmp_path / "fewstep/native.py").write_text("import fewstep_native\n")
    (tmp_path / "kernels/csrc/base/a.cc").write_text("int a;")
    monkeypatch.setattr(codebase, "ROOT", tmp_path)

    def digests() -> list[str]:
        codebase.code_digest.cache_clear()
        return [codebase.code_digest(module) for module in ("stages.one", "stages.two")]

    before = digests()
    assert digests() == before
    for name in ("csrc/base/a.cc", "bindings/b.cc"):
        (tmp_path / "kernels" / name).write_text("int b;")
        after = digests()
        assert after[0] != before[0]
        assert after[1] == before[1]
        before = after
    codebase.code_digest.cache_clear()


def test_the_digest_of_the_report_covers_the_parts_of_other_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("stages/shared", "stages/lengths"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "stages/one.py").write_text("from stages.shared.report_parts import part_of\n")
    (tmp_path / "stages/two.py").write_text("from stages.shared.report_parts import number\n")
    monkeypatch.setattr(codebase, "ROOT", tmp_path)

    def digests() -> list[str]:
        codebase.code_digest.cache_clear()
        return [codebase.code_digest(module) for module in ("stages.one", "stages.two")]

    before = digests()
    (tmp_path / "stages/lengths/report.py").write_text("def show(): ...\n")
    after = digests()
    codebase.code_digest.cache_clear()
    assert after[0] != before[0]
    assert after[1] == before[1]


# ---- text files


def step_names(text: TextConfig, folder: Path) -> list[list[str]]:
    files = text_files(text, DataAccess(Store(folder / "store"), ("en", "de")))
    return [[file.path.name for file in side] for side in (files.source, files.target, files.tsv)]


def test_a_pattern_stands_for_its_files_in_order(tmp_path: Path) -> None:
    for name in ("b.en.zst", "a.en.zst", "b.de.zst", "a.de.zst", "other.txt", "deep/c.en.zst"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "folder.en.zst").mkdir()
    sides = TextConfig(source=(tmp_path / "*.en.zst", tmp_path / "other.txt"), target=(tmp_path / "[ab].de.zst",))
    assert step_names(sides, tmp_path) == [["a.en.zst", "b.en.zst", "other.txt"], ["a.de.zst", "b.de.zst"], []]
    assert step_names(TextConfig(tsv=(tmp_path / "**" / "*.en.zst",)), tmp_path)[2] == ["a.en.zst", "b.en.zst", "c.en.zst"]


def test_a_file_whose_name_looks_like_a_pattern_is_itself(tmp_path: Path) -> None:
    for name in ("a[1].tsv", "a1.tsv"):
        (tmp_path / name).write_text(name)
    assert step_names(TextConfig(tsv=(tmp_path / "a[1].tsv",)), tmp_path)[2] == ["a[1].tsv"]


def test_a_pattern_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none-\*\.tsv: expected files that match the pattern, got none"):
        step_names(TextConfig(tsv=(tmp_path / "none-*.tsv",)), tmp_path)


GOLDEN = Path(__file__).parents[2] / "golden" / "fingerprinted_defaults.json"
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda x: st.dictionaries(st.text(max_size=3), x, max_size=3)
)


@dataclass(frozen=True, kw_only=True)
class Old:
    size: int = 3
    name: str = "x"


@dataclass(frozen=True, kw_only=True)
class New:
    size: int = 3
    name: str = "x"
    added: tuple[int, ...] = ()
    nested: Old = field(default_factory=Old)


@dataclass(frozen=True)
class Inputs:
    text: Artifact
    files: tuple[ExternalFile, ...]


def test_a_new_option_with_its_default_value_does_not_change_fingerprints() -> None:
    assert fingerprint("s", 1, Old(size=4), ()) == fingerprint("s", 1, New(size=4), ())
    assert fingerprint("s", 1, Old(size=4), ()) != fingerprint("s", 1, New(size=4, added=(1,)), ())


def test_stage_version_config_and_inputs_change_the_fingerprint() -> None:
    keys = [
        fingerprint("s", 1, Old(), ()), fingerprint("t", 1, Old(), ()), fingerprint("s", 2, Old(), ()),
        fingerprint("s", 1, Old(size=4), ()), fingerprint("s", 1, Old(), (Artifact(Path("/a"), "1"),)),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)


def test_a_field_that_is_read_in_another_way_changes_the_fingerprint_of_what_has_it() -> None:
    @dataclass(frozen=True)
    class Before:
        tsv: tuple[str, ...] = ()
        tmx: tuple[str, ...] = ()

    @dataclass(frozen=True)
    class Now:
        tsv: tuple[str, ...] = ()
        tmx: tuple[str, ...] = field(default=(), metadata=version(2))

    assert fingerprint("s", 1, (), Before(tsv=("a",))) == fingerprint("s", 1, (), Now(tsv=("a",)))
    assert fingerprint("s", 1, (), Before(tmx=("a",))) != fingerprint("s", 1, (), Now(tmx=("a",)))


def test_paths_of_files_do_not_change_the_fingerprint() -> None:
    here = Inputs(Artifact(Path("/a"), "1"), (ExternalFile(Path("/a.txt"), "2"),))
    there = Inputs(Artifact(Path("/b"), "1"), (ExternalFile(Path("/b.txt"), "2"),))
    assert canonical(here) == canonical(there) == {"text": "1", "files": ["2"]}


def test_the_order_of_lists_changes_the_fingerprint_and_that_of_maps_does_not() -> None:
    assert fingerprint("s", 1, {"a": 1, "b": 2}, ()) == fingerprint("s", 1, {"b": 2, "a": 1}, ())
    assert fingerprint("s", 1, [1, 2], ()) != fingerprint("s", 1, [2, 1], ())


@given(PLAIN, PLAIN)
def test_different_data_has_different_digests(a: Any, b: Any) -> None:
    assert (digest(a) == digest(b)) == (json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True))


def test_artifacts_in_inputs_have_dotted_names() -> None:
    a, b = Artifact(Path("/a"), "1"), Artifact(Path("/b"), "2")
    assert list(artifacts({"x": (a,), "y": Inputs(b, ())})) == [("x.0", a), ("y.text", b)]


def fingerprinted() -> dict[str, Any]:
    """Return the defaults of all configs that enter a fingerprint, as Class.field -> default."""
    from models.family import FAMILIES
    from stages.table import STAGES

    defaults: dict[str, Any] = {}

    def walk(kind: Any) -> None:
        if is_dataclass(kind) and isinstance(kind, type):
            for item in fields(kind):
                if item.default is not MISSING or item.default_factory is not MISSING:
                    value = item.default if item.default_factory is MISSING else item.default_factory()
                    defaults[f"{kind.__name__}.{item.name}"] = repr(value)
            for hint in get_type_hints(kind).values():
                walk(hint)
        for inner in get_args(kind):
            walk(inner)

    for stage in STAGES:
        walk(get_type_hints(import_module(stage.module).run)["config"])
    for family in FAMILIES.values():
        walk(family.network)
        walk(family.search)
    return defaults


def test_defaults_of_fingerprinted_configs_equal_the_golden_ones() -> None:
    """Fingerprints leave out defaults, so that a changed default would turn old artifacts into wrong hits.

    New field: run `python -m tests.golden.regenerate defaults`. Changed default: also raise the version of the stages that use it.
    """
    golden = json.loads(GOLDEN.read_text())
    assert fingerprinted() == golden
