"""Dictionaries of fairseq: a symbol and its count on each line, in the order of the rows of an embedding."""

from __future__ import annotations

from fewstep.text.subwords import CONTINUED
from stages.errors import DataError

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
"""Symbols before the first line."""
OVERWRITE = "#fairseq:overwrite"
"""Third word of a line whose symbol may occur again."""
FILLER = "madeupword"
"""Beginning of symbols that fill a dictionary up to a multiple of 8."""
BPE_CODES = (
    "subword-nmt or fastBPE: their words are split by the tokeniser of Moses first, which no SentencePiece model reproduces; train "
    "a vocabulary (vocabulary: {size: ...}) on text that is not tokenised, or split all text and name the dictionaries alone"
)
"""The end of an error about them."""


def symbols(name: str, data: bytes, *, split: bool = False) -> list[str]:
    """Return the symbols of a dictionary in their order, without those before the first line.

    Raises DataError, which begins with `name`, for a file of another form, and unless the text is `split` already for subwords that
    mark continuation by `@@`.
    """
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}: expected a dictionary of fairseq in UTF-8, got a byte at {error.start}: {error.reason}"
        ) from error
    found: dict[str, None] = {}
    for number, line in enumerate(lines[:-1] if lines[-1] == "" else lines, 1):
        symbol, again = _symbol(name, number, line)
        if symbol in SPECIAL or (symbol in found and not again):
            raise DataError(f"{name}, line {number}: expected each symbol once, got {symbol!r} again; repair the file")
        found[symbol] = None
    continued = [symbol for symbol in found if symbol.endswith(CONTINUED) and symbol != CONTINUED]
    if not split and len(continued) > len(found) // 100:
        raise DataError(
            f"{name}: expected pieces of SentencePiece, got {len(continued)} symbols that end in {CONTINUED} ({continued[0]}), of "
            f"{BPE_CODES}"
        )
    return list(found)


def _symbol(name: str, number: int, line: str) -> tuple[str, bool]:
    again = line.endswith(f" {OVERWRITE}")
    symbol, _, count = line.removesuffix(f" {OVERWRITE}").rpartition(" ")
    if not symbol or not count.isdigit():
        raise DataError(
            f"{name}, line {number}: expected a symbol and its count, as in a dictionary of fairseq, got {line[:100]!r}"
        )
    return symbol, again
