"""`fewstep serve` of the pipeline: systems of runs, and the options of the runtime's command."""

from pathlib import Path
from typing import Any

import pytest

from fewstep.serve.systems import Place
from pipeline.__main__ import main
from pipeline.commands import serve
from pipeline.errors import DataError
from pipeline.run.run_directory import Run
from tests.pipeline.run_specs import plan_entry, run_spec


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a run of two systems, of which one is pinned, and a run that has not finished."""
    store, pinned = tmp_path / "store", tmp_path / "pinned"
    for directory in (store / "system/11", pinned):
        directory.mkdir(parents=True)
        (directory / "system.json").write_text("{}")
    (store / "system/11/manifest.json").write_text("{}")
    systems = {"made": {}, "teacher": {"use": "teacher"}}
    config = {"systems": systems, "teacher": {"from": str(pinned)}}
    Run(store / "runs/demo-1").create(run_spec(plan_entry("system:made", fingerprint="11"), config=config, store=str(store)))
    return store


def test_a_run_stands_for_its_systems(store: Path) -> None:
    made, pinned = store / "system/11", store.parent / "pinned"
    for name in ("latest", "demo-1", str(store / "runs/demo-1")):
        assert list(serve.located(store, name)) == [Place(made, "made"), Place(pinned, "teacher")]
        assert list(serve.located(store, f"{name}:teacher")) == [Place(pinned, "teacher")]
    assert list(serve.located(store, str(pinned))) == [Place(pinned)]
    assert list(serve.located(store, f"mine={pinned}")) == [Place(pinned, "mine")]


def test_unknown_runs_and_systems_are_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"demo-2: expected a run of .*; the directory of a system has a file system\.json"):
        list(serve.located(store, "demo-2"))
    with pytest.raises(DataError, match=r"expected RUN and one of its systems \(made, teacher\), got mad"):
        list(serve.located(store, "demo-1:mad"))
    with pytest.raises(DataError, match="expected a run"):
        list(serve.located(store, f"mine={tmp_path}"))


def test_options_reach_the_server(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def start(places: list[Place], values: dict[str, Any]) -> int:
        given.append((places, values))
        return 2

    monkeypatch.setattr(serve, "serve_places", start)
    arguments = ["serve", "demo-1:made", f"b={store.parent / 'pinned'}", "--port", "0", "--ray", "--store", str(store)]
    assert main(arguments) == 2
    ((places, values),) = given
    assert places == [Place(store / "system/11", "made"), Place(store.parent / "pinned", "b")]
    assert set(values) == {option.name for option in serve.OPTIONS}
    assert (values["port"], values["ray"], values["max_batch"], values["token_file"]) == (0, True, 32, None)
    assert main([*arguments, "--port", "many"]) == 2
    assert len(given) == 1
