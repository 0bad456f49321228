"""A directory of CTranslate2 as a translator of lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.artifacts import ExternalFile
from stages.errors import DataError
from stages.external import CTranslate2Options

MODEL, SETTINGS = "model.bin", "config.json"
PIECES = ("source_pieces", "target_pieces")
"""Parts that are SentencePiece models. The others have the names of the files."""
SPACE = "\u2581"
"""The space in a piece."""
BLOCK = 1024
"""Lines that are given to CTranslate2 at once."""
BATCH_TOKENS = 4096


class CTranslate2Lines:
    """A loaded model, which translates lines of text."""

    def __init__(self, files: Mapping[str, ExternalFile], options: CTranslate2Options, *, device: str, threads: int) -> None:
        """`files` are those of a directory and the SentencePiece models, by part.

        Raises DataError if CTranslate2 is not installed or does not read the directory, or for other files in place of the
        SentencePiece models.
        """
        self._options = options
        directory = files[MODEL].path.parent
        self._source, self._target = (_pieces(files[part].path) for part in PIECES)
        self._translator = _loaded(directory, options, device, threads)
        suffix = source_suffix(files[SETTINGS].path) if options.source_suffix is None else options.source_suffix
        self._before = list(options.source_prefix)
        self._after = list(suffix)

    def translate(self, lines: Sequence[str]) -> Iterator[str]:
        """Yield the translation of each line. Raises DataError for a model that cannot translate them."""
        for start in range(0, len(lines), BLOCK):
            yield from self._translated(lines[start : start + BLOCK])

    def _translated(self, lines: Sequence[str]) -> list[str]:
        options = self._options
        pieces = [[*self._before, *found, *self._after] for found in self._source.encode(list(lines), out_type=str)]
        prefix = [list(options.target_prefix)] * len(lines) if options.target_prefix else None
        try:
            results = self._translator.translate_batch(
                pieces,
                target_prefix=prefix,
                beam_size=options.beam_size,
                length_penalty=options.length_penalty,
                max_decoding_length=options.max_tokens,
                disable_unk=True,
                max_batch_size=BATCH_TOKENS,
                batch_type="tokens",
            )
        except (RuntimeError, ValueError) as error:
            raise DataError(f"teacher.ctranslate2: expected a model that translates text, got: {error}") from error
        return [self._text(result.hypotheses[0][len(options.target_prefix) :]) for result in results]

    def _text(self, pieces: list[str]) -> str:
        # SentencePiece leaves the space of pieces that it does not know, such as those of the source in a joint vocabulary.
        return " ".join(str(self._target.decode(pieces)).replace(SPACE, " ").split())


def source_suffix(settings: Path) -> tuple[str, ...]:
    """Return the pieces that end a source by `config.json` of a directory.

    Models converted from transformers (opus-mt, NLLB, M2M-100) expect their end token, which their tokeniser writes. They are
    recognised by a first token of outputs that is not `bos_token`; CTranslate2 adds the end itself for other models that need it.
    Raises DataError for a file without these settings.
    """
    from fewstep.system.format import BundleError, read_json

    try:
        values = read_json(settings, "a model of CTranslate2")
    except BundleError as error:
        raise DataError(f"teacher.ctranslate2: {error}") from error
    start, first, end = (values.get(key) for key in ("decoder_start_token", "bos_token", "eos_token"))
    if values.get("add_source_eos") or start == first or not isinstance(end, str):
        return ()
    return (end,)


def _pieces(path: Path) -> Any:
    from sentencepiece import SentencePieceProcessor

    try:
        return SentencePieceProcessor(model_proto=path.read_bytes())
    except (OSError, RuntimeError) as error:
        raise DataError(f"teacher.ctranslate2: {path}: expected a SentencePiece model, got: {error}") from error


def _loaded(directory: Path, options: CTranslate2Options, device: str, threads: int) -> Any:
    from models.stepwise.ctranslate2_model import EngineError, ctranslate2

    try:
        return ctranslate2().Translator(
            str(directory), device=device, compute_type=options.precision, inter_threads=1, intra_threads=threads
        )
    except EngineError as error:
        raise DataError(f"teacher.ctranslate2: {error}") from error
    except (RuntimeError, ValueError) as error:
        raise DataError(f"teacher.ctranslate2: {directory}: expected a model of CTranslate2, got: {error}") from error
