import json
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

from hypothesis import given
from hypothesis import strategies as st

from pipeline.plan.fingerprint import artifacts, canonical, digest, fingerprint
from stages.artifacts import Artifact, ExternalFile

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
        fingerprint("s", 1, Old(), ()),
        fingerprint("t", 1, Old(), ()),
        fingerprint("s", 2, Old(), ()),
        fingerprint("s", 1, Old(size=4), ()),
        fingerprint("s", 1, Old(), (Artifact(Path("/a"), "1"),)),
    ]
    assert len(set(keys)) == len(keys)


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

    A new field: run tests/golden/regenerate.py. A changed default: raise the version of the stages that use it, too.
    """
    golden = json.loads(GOLDEN.read_text())
    assert fingerprinted() == golden
