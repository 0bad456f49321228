"""`fewstep translate DIR`: translate a stream line by line with the system in a directory."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fewstep.commands.options import Option, add_options
from fewstep.documents.document import FORMATS
from fewstep.streams import StreamError, Translate, json_text, open_streams, plain_text, rewrite, stream
from fewstep.text.escape import escaped

if TYPE_CHECKING:
    from fewstep.config.search import SearchConfig
    from fewstep.system.system import System

BAD_INPUT, FAILED = 2, 1

DOCUMENTS = ("po", "tmx", "xliff", "html", "md", "txt")
"""Formats of documents (`fewstep.documents`)."""

OPTIONS = (
    Option("input", Path, "FILE", "Plain text in UTF-8; default: standard input."),
    Option("output", Path, "FILE", "Default: standard output."),
    Option("search", str, "LABEL", "Label of a search of the system, or a derived label; default: its first search."),
    Option(
        "json",
        bool,
        "",
        "Write a line of JSON for each line, with scores, statistics, and what the system did not read.",
        False,
    ),
    Option("format", str, "FORMAT", f"Write the same document with its targets filled in: {', '.join(DOCUMENTS)}."),
    Option("overwrite", bool, "", "With --format: translate also what has a translation.", False),
    Option("glossary", Path, "FILE", "Terms that are translated as stated: a line for each, the source, a tab, and the target."),
    Option("n_best", int, "N", "Write the N best translations of each line, as a line of JSON.", min=1),
    Option("one_sentence_per_line", bool, "", "Take each line as one sentence, as in a test set, instead of splitting it.", False),
    Option("refuse_long", bool, "", "End with an error at a sentence that is too long, instead of cutting it.", False),
    Option("threads", int, "N", "Number of threads; default: OMP_NUM_THREADS, or all processors.", min=1),
    Option("batch", int, "LINES", "Maximum number of lines translated together.", 64, min=1),
    Option("no_verify", bool, "", "Load files without comparing them with their checksums.", False),
)
"""The options of the command, which the pipeline's command has too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("system", metavar="DIR", help="Directory of a system, its URL, or hf:ORG/NAME.")
    add_options(parser, OPTIONS)


def line_translator(system: System, search: SearchConfig | str | None, values: Mapping[str, Any]) -> Translate:
    """Return the function that translates the lines of a stream with the values of `OPTIONS`, by their names."""
    options = {name: values[name] for name in ("threads", "one_sentence_per_line", "refuse_long")}
    n_best = values["n_best"]

    def plain(lines: list[str], first: int) -> list[str]:
        return [plain_text(text) for text in system.translate(lines, search, first_line=first, **options)]

    def structured(lines: list[str], first: int) -> list[str]:
        found = system.hypotheses(lines, n_best, search, first_line=first, **options)
        return [json_text(ranked[0] if n_best is None else ranked) for ranked in found]

    return plain if n_best is None and not values["json"] else structured


def document_translator(system: System, search: SearchConfig | str | None, values: Mapping[str, Any]) -> Callable[[bytes], bytes]:
    """Return the function that translates a document with the values of `OPTIONS`, by their names, and reports what it did."""
    from fewstep.documents.translate import read_document, translate_document

    def translated(data: bytes) -> bytes:
        languages = system.source_language, system.target_language
        document = read_document(data, values["format"], str(values["input"] or "input"), languages)
        options = {name: values[name] for name in ("batch", "threads", "refuse_long")}
        found = translate_document(document, system, search, everything=values["overwrite"], **options)
        marked = f", {found.marked} of them to be reviewed" if found.marked else ""
        print(f"translated {found.translated} segments{marked}; {found.kept} have a translation", file=sys.stderr)
        return found.data

    return translated


def with_glossary(system: System, path: Path | None) -> System:
    """Return a system that translates the terms of the glossary in a file, if there is one, as stated.

    Raises StreamError for a glossary that cannot be used, and for a system without masks of terms.
    """
    from fewstep.text.glossary import GlossaryError, read_glossary

    try:
        return system if path is None else system.with_glossary(read_glossary(path))
    except GlossaryError as error:
        raise StreamError(f"--glossary: {error}") from error


def check_document_options(values: Mapping[str, Any]) -> bool:
    """Return whether a document is to be translated. Raises StreamError for options that do not belong together."""
    kind = values["format"]
    if kind is None:
        if values["overwrite"]:
            raise StreamError("--overwrite: expected --format, got none; only documents have translations to write over")
        if values["input"] and (meant := FORMATS.get(values["input"].suffix.lower())):
            raise StreamError(f"{values['input']}: expected plain text, got a {meant} file by its name; state --format {meant}")
        return False
    if kind not in DOCUMENTS:
        raise StreamError(f"--format: expected one of {', '.join(DOCUMENTS)}, got {kind!r}")
    if wrong := [f"--{name.replace('_', '-')}" for name in ("json", "n_best", "one_sentence_per_line") if values[name]]:
        raise StreamError(f"--format {kind}: expected no option of lines, got {', '.join(wrong)}; leave it out")
    return True


def run(arguments: argparse.Namespace) -> int:
    """Translate, and return the exit code: 0, 2 for bad input, 1 for a broken system or too little memory."""
    from fewstep.decoding import DecodingMemoryError
    from fewstep.system.format import BundleError

    try:
        _translate(arguments)
    except BundleError as error:
        return _complain(error, FAILED if os.path.isfile(Path(arguments.system) / "system.json") else BAD_INPUT)
    except ValueError as error:  # StreamError, and searches that the system does not have
        return _complain(error, BAD_INPUT)
    except BrokenPipeError:  # the reader of the output has ended
        raise
    except (DecodingMemoryError, ImportError, OSError) as error:
        return _complain(error, FAILED)
    return 0


def _translate(arguments: argparse.Namespace) -> None:
    values = vars(arguments)
    if check_document_options(values):
        rewrite(
            values["input"], values["output"], lambda data: document_translator(_loaded(arguments), arguments.search, values)(data)
        )
        return
    with open_streams(arguments.input, arguments.output, lambda: _loaded(arguments)) as (system, read, write):
        stream(line_translator(system, arguments.search, values), read, write, batch=arguments.batch)


def _loaded(arguments: argparse.Namespace) -> System:
    """Return the system. Raises StreamError for a search that it does not have or support."""
    from fewstep.system.load import load

    system = with_glossary(load(arguments.system, verify=not arguments.no_verify), arguments.glossary)
    try:
        search = system.chosen_search(arguments.search, arguments.n_best)
    except ValueError as error:
        raise StreamError(f"--search {arguments.search}: {error}") from error
    if problems := [problem.text() for problem in system.problems(search)]:
        raise StreamError("\n".join(f"{arguments.search or system.default_search}: {problem}" for problem in problems))
    return system


def _complain(error: Exception, code: int) -> int:
    print(escaped(f"fewstep translate: {error}"), file=sys.stderr)
    return code
