"""Words of Japanese by the program KyTea (Neubig et al. 2011), as Zhang, Titov and Sennrich (2020) score them. The program is not a
part of this project; it is found on PATH."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stages.errors import StageError
from stages.shared.programs import Program, run_to_end

KYTEA = "kytea"
PROGRAM = Program(
    KYTEA, KYTEA, "KyTea", "evaluation.tokenizer", "install it (http://www.phontron.com/kytea/), or choose ja-mecab or auto"
)
TIMEOUT_SECONDS = 3600.0
_words: dict[str, str] = {}


def read(texts: Iterable[str]) -> None:
    """Split texts that are new by one run of the program. Raises StageError if it is missing, fails, does not end or
    does not write a line for each text."""
    new = list(dict.fromkeys(text for text in texts if text.strip() and text not in _words))
    if not new:
        return
    given = "".join(re.sub(r"[\r\n]+", " ", text) + "\n" for text in new)
    found = run_to_end([PROGRAM.find(), "-out", "tok"], given.encode(), PROGRAM.key, timeout_seconds=TIMEOUT_SECONDS)
    lines = found.output.decode(errors="replace").split("\n")[:-1]
    if found.code or len(lines) != len(new):
        raise StageError(
            f"{PROGRAM.key}: expected a line of words from kytea for each of {len(new)} texts, got {len(lines)} and exit code "
            f"{found.code}; its last messages: {' '.join(found.messages[-2:]) or 'none'}"
        )
    _words.update(zip(new, lines, strict=True))


def words(text: str) -> str:
    """Return a text with spaces between its words; see `read`, which runs the program once for many texts."""
    read([text])
    return _words.get(text, "")
