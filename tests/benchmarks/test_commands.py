"""The commands that results record can be typed in: configs load with their settings, and programs take their options."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from benchmarks.page import ORDER, RESULTS
from benchmarks.record import load
from pipeline.config.load import load_config
from pipeline.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
TABLES = {name: load(RESULTS / f"{name}.json") for name in ORDER}
RECORDED = [
    pytest.param(command, id=f"{name}: {command[:60]}")
    for name, table in TABLES.items()
    for command in filter(
        None, [*(table.command or "").split("; "), *re.findall(r"`((?:python -m|fewstep) [^`]*)`", table.note or "")]
    )
]


def words_of(command: str) -> list[str]:
    """Return the words of a command without the settings of the environment before them."""
    words = shlex.split(command)
    while words and "=" in words[0]:
        words.pop(0)
    return words


def check(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load the config of a command, or let its program read the options. Raises the errors of either."""
    words = words_of(command)
    if words[:2] == ["fewstep", "run"]:
        load_config(ROOT / words[2], [words[at + 1] for at, word in enumerate(words) if word == "--set"])
    elif words[:2] == ["python", "-m"]:
        monkeypatch.setattr(sys, "argv", [words[2], *words[3:], "--help"])  # the options before --help are checked
        monkeypatch.delitem(sys.modules, words[2], raising=False)
        with pytest.raises(SystemExit) as caught:
            runpy.run_module(words[2], run_name="__main__")
        if caught.value.code:
            raise ValueError(command)
    else:
        assert words[0] == "make"


@pytest.mark.parametrize("command", RECORDED)
def test_a_recorded_command_is_valid(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(command, monkeypatch)


def test_former_options_and_keys_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="bf16"):
        check("OMP_WAIT_POLICY=passive python -m benchmarks.training.loop --precision bf16", monkeypatch)
    with pytest.raises(ConfigError, match="min_bleu"):
        check("fewstep run configs/demo.yaml --set evaluation.minimum_bleu=3", monkeypatch)
