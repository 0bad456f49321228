"""Foreign text does nothing but show."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fewstep.__main__ as runtime
import pipeline.__main__ as application
from fewstep.text.escape import escaped, log_to_stderr
from pipeline.commands import translate
from pipeline.errors import DataError

ATTACK = "\x1b]0;owned\x07\x1b[2J\u202eevil\x9b31m\r"


@given(st.text())
def test_what_is_escaped_shows_and_is_reversible(text: str) -> None:
    found = escaped(text)
    assert all(letter in "\n\t" or ord(letter) > 0x9F or 0x20 <= ord(letter) < 0x7F for letter in found)
    assert "\\" in text or found.encode("latin-1", "backslashreplace").decode("unicode_escape") == text


def test_ordinary_text_stays() -> None:
    text = "schön\t漢字 😀 नमस्ते a\u200db\n"
    assert escaped(text) == text


def test_errors_and_warnings_begin_no_command_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        logging.getLogger("fewstep").warning("a name: %s", ATTACK)
        raise DataError(f"a name: {ATTACK}")

    for handler in list(logging.root.handlers):
        monkeypatch.setattr(logging.root, "handlers", [one for one in logging.root.handlers if one is not handler])
    log_to_stderr()
    monkeypatch.setattr(translate, "translate_files", fail)
    monkeypatch.setattr(translate, "system_directory", lambda *_: None)
    assert application.main(["translate", "x"]) == 2
    assert runtime.main(["translate", f"nowhere{ATTACK}"]) == 2
    assert runtime.main(["serve", f"nowhere{ATTACK}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\\x1b[2J\\u202eevil\\x9b31m\\r") == 4
    assert not set(error) & set(ATTACK) & {"\x1b", "\x07", "\x9b", "\r", "\u202e"}
