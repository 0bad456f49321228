"""An encoder-decoder in a directory of transformers as a translator of lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stages.artifacts import ExternalFile
from stages.errors import DataError
from stages.external import TransformersOptions

CONFIG = "config.json"
BLOCK = 1024
"""Lines that are sorted by length at once."""


class TransformersLines:
    """A loaded model, which translates lines of text. No code of the directory is run, and nothing is downloaded."""

    def __init__(self, files: Mapping[str, ExternalFile], options: TransformersOptions, *, device: str, threads: int) -> None:
        """Raise DataError if transformers is not installed or does not read the directory, and for a language that the tokeniser
        does not know."""
        import torch

        torch.set_num_threads(threads)
        self._options = options
        self._device = device
        self._tokenizer, self._model = _loaded(str(files[CONFIG].path.parent), options, device)
        self._first = self._first_token()

    def translate(self, lines: Sequence[str]) -> Iterator[str]:
        """Yield the translation of each line."""
        for start in range(0, len(lines), BLOCK):
            yield from self._translated(lines[start : start + BLOCK])

    def _translated(self, lines: Sequence[str]) -> list[str]:
        order = sorted(range(len(lines)), key=lambda index: len(lines[index]))
        outputs = [""] * len(lines)
        size = self._options.batch_sentences
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            for index, output in zip(batch, self._batch([lines[index] for index in batch]), strict=True):
                outputs[index] = output
        return outputs

    def _batch(self, lines: Sequence[str]) -> list[str]:
        import torch

        options = self._options
        given = [f"{options.source_prefix}{line}" for line in lines]
        inputs = self._tokenizer(given, return_tensors="pt", padding=True, truncation=True, max_length=options.max_tokens)
        first = {} if self._first is None else {"forced_bos_token_id": self._first}
        with torch.inference_mode():
            ids = self._model.generate(
                **inputs.to(self._device),
                num_beams=options.beam_size,
                do_sample=False,
                length_penalty=options.length_penalty,
                max_new_tokens=options.max_tokens,
                **first,
            )
        # Behind the start token is that of the language, which not every tokeniser takes for a special one.
        found = self._tokenizer.batch_decode(ids if self._first is None else ids[:, 2:], skip_special_tokens=True)
        return [" ".join(text.split()) for text in found]

    def _first_token(self) -> int | None:
        """Return the id of the token of the target language."""
        language = self._options.target_language
        tokenizer = self._tokenizer
        if not language:
            return None
        known = getattr(tokenizer, "lang_code_to_id", None) or {}
        found = known[language] if language in known else tokenizer.convert_tokens_to_ids(language)
        if found is None or found == tokenizer.unk_token_id:
            raise DataError(_unknown("target_language", language))
        return int(found)


def _unknown(key: str, language: str) -> str:
    return f"teacher.{key}: expected a language of the tokeniser, such as eng_Latn or en, got {language!r}"


def _loaded(directory: str, options: TransformersOptions, device: str) -> tuple[Any, Any]:
    import torch

    try:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
    except ImportError as error:
        raise DataError(f"teacher.transformers needs the package transformers: {error}; run: pip install transformers") from error
    only_here: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    language = {"src_lang": options.source_language} if options.source_language else {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, **only_here, **language)
    except KeyError as error:
        raise DataError(_unknown("source_language", options.source_language)) from error
    except (OSError, ValueError, ImportError, TypeError) as error:
        raise DataError(f"teacher.transformers: {directory}: expected a tokeniser, got: {error}") from error
    if language and tokenizer.convert_tokens_to_ids(options.source_language) == tokenizer.unk_token_id:
        codes = getattr(tokenizer, "lang_code_to_id", None) or {}
        if options.source_language not in codes:
            raise DataError(_unknown("source_language", options.source_language))
    try:
        model = AutoModelForSeq2SeqLM.from_pretrained(
            directory, use_safetensors=True, dtype=getattr(torch, options.precision), **only_here
        )
    except (OSError, ValueError, ImportError, RuntimeError, KeyError) as error:
        raise DataError(f"teacher.transformers: {directory}: expected an encoder-decoder with safetensors, got: {error}") from error
    return tokenizer, model.to(device).eval()
