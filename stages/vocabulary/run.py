"""Run the vocabulary stage."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from sentencepiece import SentencePieceTrainer

from fewstep.text.masks import mask, symbols
from fewstep.vocabulary import BOS, EOS, PAD, RESERVED, UNK
from stages.artifacts import Text
from stages.context import Context, StepContext
from stages.errors import DataError
from stages.shared.shards import read_shard, row_counts, shard_paths
from stages.shared.vocabulary import processor
from stages.vocabulary import BYTE_FALLBACK_SIZE, PieceFiles, VocabularyConfig, VocabularyInputs
from stages.vocabulary.imported import dictionaries, imported_models
from stages.vocabulary.words import check_covered

LONGEST_LINE = 1 << 20
"""Longest line in bytes. SentencePiece leaves longer lines out of the training."""
LONGEST_WORD = 20_000
"""Longest word in characters. SentencePiece ends with an internal error at 65,536 and needs minutes for many shorter ones."""
BYTE_COVERAGE = 0.9995
"""Fraction of characters that have pieces besides bytes, SentencePiece's default."""


def run(inputs: VocabularyInputs, config: VocabularyConfig, context: StepContext) -> None:
    """Write `source.spm`, `target.spm` and `vocabulary.json`. Equal text and config give equal bytes.

    Raises DataError when the text gives fewer than `size` pieces, or has more characters than pieces, and the size is `exact`; for
    words above `LONGEST_WORD`; and for files that cannot be imported (`stages.vocabulary.imported`).
    """
    if inputs.files is not None:
        models = imported_models(inputs.files)
        joint = inputs.files.joint
        if inputs.files.source is None and inputs.text is not None:
            _check_dictionaries(inputs.files, inputs.text)
    else:
        assert inputs.text is not None, "a vocabulary is trained on a text or imported from files"
        models = _trained(inputs.text, config)
        joint = config.joint
    sides = tuple(models)
    for side, model in models.items():
        _write(context.directory / f"{side}.spm", model, context)
    sizes = {f"{side}_size": processor(context.directory, side).get_piece_size() for side in sides}
    context.write_json(context.directory / "vocabulary.json", {"joint": joint, **sizes})


def with_fallback(config: VocabularyConfig) -> VocabularyConfig:
    """Return a config that states `byte_fallback` and `character_coverage`."""
    if config.model == "word":
        return replace(config, byte_fallback=False, character_coverage=1.0)
    fallback = config.size >= BYTE_FALLBACK_SIZE if config.byte_fallback is None else config.byte_fallback
    coverage = config.character_coverage
    if coverage is None:
        coverage = BYTE_COVERAGE if fallback else 1.0
    return replace(config, byte_fallback=fallback, character_coverage=coverage)


def _check_dictionaries(files: PieceFiles, text: Text) -> None:
    """Raise DataError for a token of the text that its dictionary lacks."""
    for side, tokens in dictionaries(files).items():
        file = (files.target_dictionary if side == "target" else None) or files.source_dictionary
        assert file is not None
        check_covered(str(file.path / file.member), tokens, _lines(text.path, (side,), sum(row_counts(text.path))), side)


def _trained(text: Text, config: VocabularyConfig) -> dict[str, bytes]:
    sides = ("source", "target")
    if config.joint:
        return dict.fromkeys(sides, _train(text, sides, config, "joint"))
    return {side: _train(text, (side,), config, side) for side in sides}


class _SizeError(DataError):
    """A size that the text does not support."""

    def __init__(self, text: str, supported: int) -> None:
        super().__init__(text)
        self.supported = supported


def _train(text: Text, sides: tuple[str, ...], config: VocabularyConfig, name: str) -> bytes:
    try:
        return train_pieces(_lines(text.path, sides, config.sentences), config, name)
    except _SizeError as error:
        if not config.exact:
            fitting = replace(with_fallback(config), size=error.supported)
            return train_pieces(_lines(text.path, sides, config.sentences), fitting, name)
        if config.byte_fallback is None and error.supported < BYTE_FALLBACK_SIZE <= config.size:
            # A size that the text supports has no bytes by default: the error of a training without them names the largest one.
            return train_pieces(_lines(text.path, sides, config.sentences), replace(config, byte_fallback=False), name)
        raise


def train_pieces(lines: Iterator[str], config: VocabularyConfig, side: str = "joint") -> bytes:
    """Return a serialised SentencePiece model of exactly `config.size` pieces, which begin with `RESERVED`.

    Mask, blank and length are control symbols: no text is encoded to them, not even their names.
    """
    model: BytesIO = BytesIO()
    config = with_fallback(config)
    try:
        SentencePieceTrainer.train(
            sentence_iterator=(mask(line, config.placeholders).text for line in lines),
            model_writer=model,
            vocab_size=config.size,
            model_type=config.model,
            character_coverage=config.character_coverage,
            # Lines are normalised already, in training and use alike (`fewstep.text.normalise`).
            normalization_rule_name="identity",
            byte_fallback=config.byte_fallback,
            max_sentence_length=LONGEST_LINE,
            num_threads=1,  # the model depends on their number
            minloglevel=2,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            pad_piece=RESERVED[PAD],
            bos_piece=RESERVED[BOS],
            eos_piece=RESERVED[EOS],
            unk_piece=RESERVED[UNK],
            control_symbols=list(RESERVED[UNK + 1 :]),
            user_defined_symbols=symbols(config.placeholders),
        )
    except RuntimeError as error:
        raise _explained(error, config, side) from error
    return model.getvalue()


def _lines(directory: Path, sides: tuple[str, ...], max_lines: int) -> Iterator[str]:
    """Up to `max_lines` evenly spaced lines of each side: rows floor(i n / max_lines) of n rows."""
    counts = row_counts(directory)
    rows = sum(counts)
    chosen = min(rows, max_lines)
    for side in sides:
        start, taken = 0, 0
        for path, count in zip(shard_paths(directory), counts, strict=True):
            end = -(-(start + count) * chosen // rows) if rows else 0  # lines whose row is in this shard or an earlier one
            if end > taken:
                column = read_shard(path)[side]
                numbers = [line * rows // chosen for line in range(taken, end)]
                lines = column.take([number - start for number in numbers]).to_pylist()
                yield from (_checked(line, number, side) for line, number in zip(lines, numbers, strict=True))
            start += count
            taken = end


def _checked(line: str, number: int, side: str) -> str:
    """Return a line. Raises DataError for a word that SentencePiece cannot learn from."""
    if len(line) > LONGEST_WORD and (longest := max(map(len, line.split()))) > LONGEST_WORD:
        raise DataError(
            f"vocabulary: expected words of at most {LONGEST_WORD:,} characters, got one of {longest:,} in pair {number + 1:,} of "
            f"the cleaned text ({side}); lower corpus.filters.max_word_characters"
        )
    return line


def _write(path: Path, data: bytes, context: Context) -> None:
    context.temporary(path).write_bytes(data)
    os.replace(context.temporary(path), path)


def _explained(error: RuntimeError, config: VocabularyConfig, side: str) -> DataError:
    """An error of SentencePiece in terms of the config."""
    text = str(error)
    if max_size := re.search(r"value <= (\d+)", text):
        return _SizeError(
            f"vocabulary.size ({side}): expected at most {max_size[1]} for this text, got {config.size}; choose a smaller size, or "
            "exact: false",
            int(max_size[1]),
        )
    if min_size := re.search(r"required_chars\. \d+ vs (\d+)", text):
        return _SizeError(
            f"vocabulary.size ({side}): expected at least {min_size[1]}, the number of characters of this text"
            f"{' and of bytes' if config.byte_fallback else ''}, got {config.size}; choose a larger size or a smaller "
            "character_coverage",
            2 * int(min_size[1]),
        )
    return DataError(f"vocabulary ({side}): expected text from which SentencePiece can learn pieces, got: {text}; check the text")
