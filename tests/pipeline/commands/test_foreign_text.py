"""Tests of text from elsewhere in the output and the logs of commands."""

import json
import logging
import sys

import pytest

from fewstep.text.escape import EscapingFormatter
from pipeline.__main__ import main
from pipeline.commands.output import print_json, print_table
from stages.errors import DataError

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\r\x08\u202egnp.exe\udcff\x00"


def test_hostile_text_is_escaped_in_each_place_that_shows_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_json({"a": HOSTILE, "b": "ä"})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"a": HOSTILE, "b": "ä"}
    print_table(("a",), [(HOSTILE,)])
    for error in (DataError(HOSTILE), OSError(5, HOSTILE), ValueError(HOSTILE)):

        def fail(*arguments: object, error: Exception = error, **options: object) -> None:
            raise error

        monkeypatch.setattr("pipeline.commands.runs.all_runs", fail)
        assert main(["runs"]) in (1, 2)
    shown = "".join(capsys.readouterr())
    assert shown.count(r"\x1b]0;title") >= 4
    for text in (printed, shown):
        assert not any(character in text for character in "\x1b\x9b\r\x08\u202e\udcff\x00")


def test_logs_are_escaped() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record = logging.LogRecord("fewstep", logging.WARNING, "x", 1, "got %s", (HOSTILE,), sys.exc_info())
    shown = EscapingFormatter("%(message)s").format(record)
    assert shown.count(r"\x1b]0;title") == 2
    assert "\x1b" not in shown


def test_a_name_that_the_locale_cannot_write_ends_in_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        "данные".encode("iso8859-1")

    monkeypatch.setattr("pipeline.commands.runs.all_runs", fail)
    assert main(["runs"]) == 2
    assert (
        r"expected text in the encoding of the locale, latin-1, got '\u0434'; set LC_ALL=C.UTF-8"
        in capsys.readouterr().err.replace("iso8859-1", "latin-1")
    )
