"""Locations of systems: directories, and systems of runs."""

import json
import shutil

import pytest

from fewstep.serve.settings import ServeError
from fewstep.serve.systems import Place, find, load_all
from fewstep.system.load import load
from pipeline.commands.serve import located


@pytest.fixture
def store(tmp_path, directories):
    """A store with a run of the systems `small`, `graph` and `pinned`, which was moved after it was made."""
    for fingerprint, name in (("1234", "small"), ("5678", "graph"), ("9abc", "small")):
        shutil.copytree(directories[name], tmp_path / "store" / "system" / fingerprint)
    plan = [
        {"step": "train:small", "stage": "train", "fingerprint": "0000"},
        {"step": "system:small", "stage": "system", "fingerprint": "1234"},
        {"step": "system:graph", "stage": "system", "fingerprint": "5678"},
    ]
    systems = {"small": {}, "graph": {}, "pinned": {"use": "teacher"}}
    config = {"systems": systems, "teacher": {"from": "/elsewhere/store/system/9abc"}}
    run = tmp_path / "store" / "runs" / "demo-1"
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"schema": 1, "store": "/elsewhere/store", "config": config, "plan": plan}))
    return tmp_path / "store"


def test_a_run_stands_for_its_systems(store):
    run, system = str(store / "runs" / "demo-1"), (store / "system").resolve()
    assert find([run]) == [Place(system / "1234", "small"), Place(system / "5678", "graph"), Place(system / "9abc", "pinned")]
    assert find([f"{run}:graph", str(store / "system" / "1234")]) == [
        Place(system / "5678", "graph"),
        Place(store / "system" / "1234"),
    ]


def test_a_run_in_the_store_is_found_by_its_id(store):
    assert located(store, "demo-1:graph") == f"{store / 'runs' / 'demo-1'}:graph"
    assert located(store, "demo-1") == str(store / "runs" / "demo-1")
    assert located(store, "demo-2:graph") == "demo-2:graph"
    assert located(store, str(store)) == str(store)


def test_systems_are_loaded_under_their_names(store):
    directory = store / "system" / "1234"
    assert list(load_all(find([f"fast={directory}", str(directory)]), load)) == ["fast", "small"]
    with pytest.raises(ServeError, match="expected different names, got small twice; name them with NAME=DIRECTORY"):
        load_all(find([str(directory), str(directory)]), load)


def test_other_locations_are_refused(store, tmp_path):
    run = store / "runs" / "demo-1"
    for location in (str(tmp_path), "nowhere", "demo-1:small", f"a={tmp_path}", ""):
        with pytest.raises(ServeError, match="expected the directory of a system"):
            find([location])
    with pytest.raises(ServeError, match=r"expected one of its systems \(small, graph, pinned\), got 'large'"):
        find([f"{run}:large"])
    (store / "system" / "5678" / "system.json").unlink()
    with pytest.raises(ServeError, match="the system graph is not finished; finish it with the run command"):
        find([f"{run}:graph"])


@pytest.mark.parametrize(("text", "message"), [("{", "the file is damaged"), ('{"schema": 9}', "damaged"), ("[]", "damaged")])
def test_a_damaged_run_is_named(store, text, message):
    (store / "runs" / "demo-1" / "run.json").write_text(text)
    with pytest.raises(ServeError, match=message):
        find([str(store / "runs" / "demo-1")])


def test_a_damaged_system_is_named(store):
    directory = store / "system" / "1234"
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ServeError, match=r"model\.safetensors"):
        load_all([Place(directory)], load)
