"""CTranslate2 as an entry of the benchmark: an exported model in a process of its own, from text to text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import fewstep
from fewstep.families.stepwise.config import StepwiseSearch
from models.bundle.export import export_ctranslate2
from models.stepwise.decode import StepwiseDecoder
from stages.benchmark.rivals.process import Process
from stages.benchmark.timing import Output, Translate

WORKER = Path(__file__).with_name("ctranslate2_worker.py")
INT8 = "int8"


@contextmanager
def ctranslate2_translator(directory: Path, system: fewstep.System, search: StepwiseSearch, threads: int) -> Iterator[Translate]:
    """Yield a function that translates lines as one batch in a process with the user's environment, which times itself.

    The system in `directory` is exported first. CTranslate2 is called as its documentation recommends: without scores, and with a
    vocabulary map for a shortlist.
    """
    shortlist = search.shortlist if search.shortlist and search.shortlist.tokens else None
    quantized = INT8 if search.precision == INT8 else "float32"
    arguments = {"compute_type": search.precision, "inter_threads": 1, "intra_threads": threads}
    beam = search.strategy == "beam"
    max_positions = cast(StepwiseDecoder, system.decoder).model.config.max_positions

    def translated(process: Process, lines: Sequence[str]) -> Output:
        options: dict[str, Any] = {
            "beam_size": search.beam_size if beam else 1,
            "length_penalty": search.length_penalty if beam else 1,
            "min_decoding_length": search.output_limits.min_tokens,
            "max_decoding_length": longest_output(search, max(map(len, system.encode(lines))), max_positions),
            "use_vmap": shortlist is not None,
        }
        found = process.ask({"lines": list(lines), "options": options, "seconds": 0})
        before, decoding, after = found["seconds"]
        return Output(
            found["tokens"],
            found["tokens"] + len(lines),
            found["source_tokens"],
            before,
            after,
            seconds=before + decoding + after,
        )

    with TemporaryDirectory(prefix="fewstep-ctranslate2-") as folder:
        export_ctranslate2(directory, Path(folder), quantized, verify=False, shortlist=shortlist)
        with closing(Process([sys.executable, str(WORKER), folder, json.dumps(arguments)], {})) as process:
            yield partial(translated, process)


def longest_output(search: StepwiseSearch, source_tokens: int, max_positions: int) -> int:
    """Return the limit of a batch in tokens with EOS; other engines have the same for its longest source."""
    limits = search.output_limits
    return min(source_tokens + 1 + limits.max_extra_tokens, limits.max_tokens or max_positions, max_positions)
