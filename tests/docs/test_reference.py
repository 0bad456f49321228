"""The generated reference of the command line is current and complete."""

import re

import pytest

from pipeline.commands.app import COMMANDS, load_command
from pipeline.commands.reference import PAGE, page

SECTIONS = dict(re.findall(r"^## fewstep (\w+)\n(.*?)(?=^## |\Z)", page(), re.MULTILINE | re.DOTALL))


def test_the_page_of_the_command_line_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), f"{PAGE.name}: expected the page that `make docs` writes"


def test_sections_stand_in_the_order_of_the_commands() -> None:
    assert tuple(SECTIONS) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_section_shows_the_help_of_its_command_and_of_each_parameter(name: str) -> None:
    command = load_command(name)
    section = SECTIONS[name].replace("\\|", "|")
    assert command.help in section
    for parameter in command.params:
        shown = parameter.opts[0] if parameter.opts[0].startswith("--") else parameter.metavar
        (row,) = (line for line in section.splitlines() if line.startswith(f"| `{shown}") and parameter.help in line)
        assert ("required" in row) == parameter.required


def test_defaults_bounds_and_repetition_are_shown() -> None:
    assert "| `--batch LINES` | `64` | Maximum number of lines translated together. At least 1. |" in SECTIONS["translate"]
    assert "| `--set KEY=VALUE` |  | Replace one value, as in defaults.training.updates=100. May be repeated. |" in SECTIONS["run"]
    assert "| `--no-wait` |  | Return once the job is accepted. |" in SECTIONS["submit"]


def test_every_placeholder_has_a_name() -> None:
    assert not [name for name, section in SECTIONS.items() if "None" in section]


def test_bars_do_not_end_a_cell() -> None:
    assert "| `RUN\\|DIRECTORY` | required |" in SECTIONS["translate"]
