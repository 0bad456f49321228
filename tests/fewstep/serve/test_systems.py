"""Locations of systems: directories, with or without names."""

import shutil

import pytest

from fewstep.__main__ import main
from fewstep.serve.settings import ServeError
from fewstep.serve.systems import Place, find, load_all
from fewstep.system.load import load


def test_systems_are_loaded_under_their_names(directories):
    small, graph = directories["small"], directories["graph"]
    assert find([str(small), f"fast={graph}"]) == [Place(small), Place(graph, "fast")]
    assert list(load_all(find([f"fast={small}", str(small)]), load)) == ["fast", "small"]
    with pytest.raises(ServeError, match="expected different names, got small twice; name them with NAME=DIRECTORY"):
        load_all(find([str(small), str(small)]), load)


def test_other_locations_are_refused(tmp_path):
    for location in (str(tmp_path), "nowhere", "demo-1:small", f"a={tmp_path}", "=", ""):
        with pytest.raises(ServeError, match="expected the directory of a system"):
            find([location])


def test_the_runtime_has_the_command(capfd):
    assert main(["serve", "nowhere"]) == 2
    assert "fewstep serve: nowhere: expected the directory of a system" in capfd.readouterr().err


def test_a_damaged_system_is_named(directories, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(directories["small"], damaged)
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ServeError, match=r"model\.safetensors"):
        load_all([Place(damaged)], load)
