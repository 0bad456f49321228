"""Files that are no plain text are refused by the tools that read text, not counted as words."""

import gzip
import io
import os
import sys
from pathlib import Path

import pytest

from kernels import NgramModel
from kernels.fast_align import command_line

PAIRS = "ein haus ||| a house\nein hund ||| a dog\n" * 9
FILES = {
    "gzip": gzip.compress(PAIRS.encode()),
    "zstd": b"\x28\xb5\x2f\xfd" + PAIRS.encode(),
    "UTF-16": PAIRS.encode("utf-16"),
    "UTF-16 or UTF-32": PAIRS.encode("utf-16-be"),
}


@pytest.mark.parametrize("kind", FILES)
def test_tools_refuse_what_is_no_plain_text(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    path, plain = tmp_path / "text", tmp_path / "plain"
    path.write_bytes(FILES[kind])
    plain.write_text(PAIRS)
    options = {"order": 2, "discount_fallback": (0.5, 1.0, 1.5)}
    with pytest.raises(ValueError, match=f"text: expected .*, got (an? )?{kind}"):
        NgramModel.estimate(path, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"text: expected .*, got (an? )?{kind}"):
        NgramModel.estimate(plain, **options).perplexity(path)  # type: ignore[arg-type]
    assert command_line.main(["-i", str(path), "-d"]) == 1
    assert f"{path}: expected " in capsys.readouterr().err


@pytest.mark.parametrize("packed", [True, False])
def test_the_standard_input_of_the_aligner_is_looked_at(
    tmp_path: Path, packed: bool, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    text = tmp_path / "plain"
    text.write_text(PAIRS * 2000)  # more than a pipe holds
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    assert command_line.main(["-i", str(text), "-d"]) == 0
    expected = sys.stdout.buffer.getvalue()  # type: ignore[attr-defined]
    given = tmp_path / "given"
    given.write_bytes(gzip.compress(text.read_bytes()) if packed else text.read_bytes())
    kept = os.dup(0)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    try:
        with given.open("rb") as file:
            os.dup2(file.fileno(), 0)
        code = command_line.main(["-i", "-", "-d"])
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    found = sys.stdout.buffer.getvalue()  # type: ignore[attr-defined]
    assert (code, found) == ((1, b"") if packed else (0, expected))
    assert (b"standard input: expected plain text, got a gzip file" in capfdbinary.readouterr().err) == packed
