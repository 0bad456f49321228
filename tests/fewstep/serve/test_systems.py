"""Locations of systems: directories, with or without names."""

import os
import shutil
from pathlib import Path

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


@pytest.mark.parametrize(("name", "mode", "named"), [("model.safetensors", 0o600, "0600"), ("system.json", 0o640, "0640")])
def test_a_file_of_another_user_is_named_with_its_mode(directories, tmp_path, monkeypatch, name, mode, named):
    """It is not called damaged, which would send its reader for another copy."""
    system = tmp_path / "system"
    shutil.copytree(directories["small"], system)
    for file in system.iterdir():
        file.chmod(0o644)
    (system / name).chmod(mode)

    def access(path, wanted, **_):  # that of a user who is neither the owner nor of the group; root may read everything
        return path in (tmp_path, *tmp_path.parents) or bool(Path(path).stat().st_mode & wanted)

    monkeypatch.setattr(os, "access", access)
    with pytest.raises(ServeError, match=rf"{system / name} has mode {named} and belongs to the user \d+; .*chmod a\+r"):
        load_all(find([str(system)]), load)


def test_names_that_no_file_can_have_are_refused():
    for location in ("x" * 300, f"a={'x/' * 3000}"):
        with pytest.raises(ServeError, match="expected the directory of a system"):
            find([location])
