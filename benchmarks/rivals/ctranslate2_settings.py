"""CTranslate2 at its best: every setting that its documentation names, each in a process of its own.

    python -m benchmarks.rivals.ctranslate2_settings [--size base] [--batches 1 8 32] [--threads 1 2] [--only int8]
        [--models FOLDER] [--json FILE]

A network of random weights is converted (quantization int8 and float32) with the vocabulary map of the shortlists, and decodes as
the performance tips recommend: beam_size=1, no scores, a map, and for several threads either one translation on all of them
(intra_threads) or one on each (inter_threads with max_batch_size). All compute types and backends are tried with one thread, and
the fastest of them with more. Cells are milliseconds a sentence; a dash stands for a setting that the first batch left far behind.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import TypeAdapter

from benchmarks.decoding.networks import VOCABULARY, Layers, network, sentences
from benchmarks.decoding.random_systems import SHORTLIST, full_depth, lexicon
from benchmarks.record import load, publish
from fewstep.vocabulary import RESERVED
from models.stepwise.ctranslate2_model import MAP, vocabulary_map, write_model
from stages.benchmark.rivals.ctranslate2_entry import WORKER
from stages.benchmark.rivals.process import Process
from stages.shared.environment import cpu_model

Switches = tuple[tuple[str, str], ...]
OWN: Switches = ()
"""CTranslate2 chooses the backend: MKL on Intel's processors, oneDNN on others."""
MKL: Switches = (("CT2_USE_MKL", "1"),)
ONEDNN: Switches = (("CT2_USE_MKL", "0"),)
UNPACKED: Switches = (("CT2_PACKED_GEMM", "0"),)
TYPES = ("int8", "int8_float32", "float32")
SECONDS, SLOW, HOPELESS = 0.3, 2.0, 4.0
"""A setting is tried for at least `SECONDS`. One that is `SLOW` times slower than the fastest is tried by a single call, and
one that is `HOPELESS` times slower with the first batch is not tried with others."""
COLD = 4.0
"""A first call of more than this many times the time of a hopeless one is not repeated."""
FINALISTS = 2
"""Settings of each case that take part in the rounds."""


@dataclass(frozen=True)
class Setting:
    """A way to run CTranslate2."""

    compute_type: str = "int8"
    switches: Switches = OWN
    inter_threads: int = 1
    intra_threads: int = 1

    @property
    def threads(self) -> int:
        return self.inter_threads * self.intra_threads

    @property
    def label(self) -> str:
        backend = " ".join(f"{name}={value}" for name, value in self.switches) or "own choice of backend"
        return f"{self.compute_type}, {backend}, {self.inter_threads} x {self.intra_threads} threads"

    def options(self, tokens: int, batch: int, use_map: bool) -> dict[str, Any]:
        """Return the arguments of `translate_batch` for outputs of `tokens` tokens."""
        split = {"max_batch_size": -(-batch // self.inter_threads)} if self.inter_threads > 1 else {}
        return {
            "beam_size": 1,
            "min_decoding_length": tokens,
            "max_decoding_length": tokens,
            "use_vmap": use_map,
            **split,
        }


def backends() -> tuple[Switches, ...]:
    """Return the choices of a backend that differ on this processor, CTranslate2's own first."""
    if "Intel" in cpu_model():
        return OWN, UNPACKED, ONEDNN
    return OWN, MKL, (*MKL, *UNPACKED)


def settings_of_one_thread() -> list[Setting]:
    """Return all settings with one thread; 16-bit integers are those of MKL alone."""
    intel = "Intel" in cpu_model()
    with_mkl = [switches for switches in backends() if (switches != ONEDNN if intel else switches != OWN)]
    found = [Setting(kind, switches) for switches in backends() for kind in TYPES]
    return [*found, *(Setting("int16", switches) for switches in with_mkl)]


def of_threads(setting: Setting, threads: int) -> list[Setting]:
    """Return the two arrangements of a setting on several threads."""
    kind, switches = setting.compute_type, setting.switches
    return [Setting(kind, switches, 1, threads), Setting(kind, switches, threads, 1)]


class Model:
    """A converted network of random weights with the vocabulary map of the shortlists, in `folder`."""

    def __init__(self, folder: Path, size: str, layers: Layers) -> None:
        self.folder = folder
        self.size = size
        self.layers = layers
        self.names = [RESERVED[id_] if id_ < len(RESERVED) else str(id_) for id_ in range(VOCABULARY[size])]

    @cached_property
    def directories(self) -> dict[str, Path]:
        """The directories by the quantization of their files."""
        made = {}
        for precision in ("int8", "float32"):
            made[precision] = directory = self.folder / f"{self.layers[0]}-{self.layers[1]}-{precision}"
            if not (directory / MAP).exists():
                found = network(self.size, self.layers)
                pieces = {"source_pieces": self.names, "target_pieces": self.names}
                write_model(found, directory, precision=precision, **pieces)
                (directory / MAP).write_text(vocabulary_map(SHORTLIST, lexicon(self.size), **pieces), encoding="utf-8")
        return made

    def process(self, setting: Setting, python: str = sys.executable) -> Process:
        """Start a process with this model."""
        directory = self.directories["int8" if setting.compute_type.startswith("int8") else "float32"]
        arguments = {
            "compute_type": setting.compute_type,
            "inter_threads": setting.inter_threads,
            "intra_threads": setting.intra_threads,
        }
        return Process([python, str(WORKER), str(directory), json.dumps(arguments)], dict(setting.switches))

    def request(self, sources: Sequence[Sequence[int]], setting: Setting, use_map: bool, seconds: float) -> dict[str, Any]:
        """Return the request to decode sources of equal length to outputs of that length."""
        options = setting.options(len(sources[0]), len(sources), use_map)
        return {"batch": [[self.names[id_] for id_ in source] for source in sources], "options": options, "seconds": seconds}


@dataclass(frozen=True)
class Trial:
    """The time of a setting."""

    layers: Layers
    use_map: bool
    batch: int
    setting: Setting
    milliseconds: float | None
    """Milliseconds a sentence; None: left out, because the first batch was `HOPELESS` times slower than the fastest setting."""


def try_settings(
    models: Iterable[Model],
    sources: Mapping[int, Sequence[Sequence[int]]],
    threads: Sequence[int],
    maps: Sequence[bool] = (True, False),
    only: Sequence[str] = ("",),
) -> list[Trial]:
    """Return the times of settings by layers, map and batch: all with one thread whose labels contain one of `only`, and the
    fastest of these with more."""
    found: list[Trial] = []
    for model in models:
        own: list[Trial] = []
        for setting in (one for one in settings_of_one_thread() if any(part in one.label for part in only)):
            own += _tried(model, setting, sources, maps, own)
        for count in (count for count in threads if count > 1):
            fast = dict.fromkeys(one.setting for use_map in maps for batch in sources for one in fastest(own, use_map, batch, 1))
            for setting in (arranged for one in fast if one.threads == 1 for arranged in of_threads(one, count)):
                own += _tried(model, setting, sources, maps, own)
        found += own
    return found


def _tried(
    model: Model, setting: Setting, sources: Mapping[int, Sequence[Sequence[int]]], maps: Sequence[bool], before: Sequence[Trial]
) -> Iterator[Trial]:
    process = model.process(setting)
    least = min(sources)
    for use_map in maps:
        best: dict[int, float] = {}
        for one in before:
            if one.use_map == use_map and one.milliseconds:
                best[one.batch] = min(one.milliseconds, best.get(one.batch, one.milliseconds))
        # The first call also prepares weights.
        first = process.ask(model.request(sources[least], setting, use_map, 0))["milliseconds"]
        left_out = first > COLD * HOPELESS * best.get(least, first)
        if left_out:
            yield Trial(model.layers, use_map, least, setting, first)
        for batch, some in sources.items():
            if batch < setting.inter_threads or (left_out and batch == least):
                continue
            taken = None
            if not left_out:
                taken = process.ask(model.request(some, setting, use_map, 0))["milliseconds"]
                left_out = batch == least and taken > HOPELESS * best.get(batch, taken)
                if taken < SLOW * best.get(batch, taken + 1):
                    taken = process.ask(model.request(some, setting, use_map, SECONDS))["milliseconds"]
            yield Trial(model.layers, use_map, batch, setting, taken)
    process.close()


def fastest(trials: Iterable[Trial], use_map: bool, batch: int, threads: int, count: int = FINALISTS) -> list[Trial]:
    """Return the fastest settings of a case that use at most `threads` threads."""
    found = [one for one in trials if (one.use_map, one.batch) == (use_map, batch) and one.setting.threads <= threads]
    return sorted((one for one in found if one.milliseconds), key=lambda one: one.milliseconds or 0)[:count]


def read_trials(path: Path) -> list[Trial]:
    """Return the trials of a file that this program wrote. Raises ValueError for another file, or for another processor's."""
    table = load(path)
    if cpu_model() not in (table.machine or ""):
        raise ValueError(f"{path}: expected settings that were tried on this processor, {cpu_model()}, found {table.machine}")
    return TypeAdapter(list[Trial]).validate_python(table.figures)


def depths(size: str) -> tuple[Layers, Layers]:
    """Return the layers of the compared networks: as deep a decoder as the encoder, and one of a single layer."""
    return full_depth(size), (full_depth(size)[0], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base", choices=list(VOCABULARY))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--tokens", type=int, default=27, help="Tokens of each source and each output.")
    parser.add_argument("--only", nargs="+", default=[""], help="Only settings whose labels contain one of these.")
    parser.add_argument("--models", type=Path, help="Keep the converted models and the sentences in this folder.")
    parser.add_argument("--json", type=Path, help="Write the table to this file, which other programs read with --settings.")
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="fewstep-ctranslate2-") as temporary:
        folder = arguments.models or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        models = [Model(folder, arguments.size, layers) for layers in depths(arguments.size)]
        sources = {batch: sentences(batch, arguments.tokens, VOCABULARY[arguments.size]) for batch in sorted(arguments.batches)}
        pieces = [[models[0].names[id_] for id_ in source] for source in sources[max(sources)]]
        (folder / "sentences.json").write_text(json.dumps(pieces), encoding="utf-8")
        trials = try_settings(models, sources, arguments.threads, only=arguments.only)
    publish_trials(arguments, trials)


def publish_trials(arguments: argparse.Namespace, trials: Sequence[Trial]) -> None:
    cases = list(dict.fromkeys((one.layers, one.use_map, one.batch) for one in trials))
    times = {(one.setting, one.layers, one.use_map, one.batch): one.milliseconds for one in trials}
    publish(
        arguments,
        section="Settings of CTranslate2",
        explanation=(
            f"CTranslate2 by setting: networks of size `{arguments.size}` with random weights, {arguments.tokens} tokens in and "
            "out, milliseconds a sentence by layers, vocabulary map and batch, one trial each."
        ),
        columns=["setting", *(f"{a}-{b}, {'map' if mapped else 'all tokens'}, {batch}" for (a, b), mapped, batch in cases)],
        rows=[
            [setting.label, *(f"{time:.2f}" if (time := times.get((setting, *case))) else "-" for case in cases)]
            for setting in dict.fromkeys(one.setting for one in trials)
        ],
        seed=1,
        rounds=1,
        spread="one trial of at least 0.3 s; the fastest settings take part in rounds with others",
        figures=[asdict(one) for one in trials],
    )


if __name__ == "__main__":
    main()
