"""All families in int8 at Transformer-base size, where arithmetic and not Python dominates, in turns in one run.

    python -m benchmarks.decoding.base_size [--size base] [--batches 1 8 32] [--threads 1 2] [--rounds 5] [--quick] [--only graph]
        [--settings FILE] [--json FILE] [--roofline FILE]

Networks have random weights and read 27 tokens. Base has layers of 512 units and a vocabulary of 32,000, and `6-1` is six layers of
the encoder and one of the decoder; `--size tiny` has 4-4 layers of 128 units and a vocabulary of 8,000, as for Multi30k. Systems
choose among a shortlist. Stepwise networks and verifiers write 27 tokens; targets whose length is predicted are as long as their
sources. The path through a graph is random and does not affect its cost; lattices are as long as those of trained tables. The cost
of drafting depends on the number of accepted drafts, so both ends are measured: all are accepted (verifier and drafter are biased
towards the same token), or none.

Two ratios tell apart where a speed comes from. The first is the time of one token a step with all layers in this engine over the
row's: the gain of fewer steps and layers. The second is the time of CTranslate2's fastest setting with all layers and a vocabulary
map over the row's, which also contains the gain of the engine (`benchmarks.rivals.like_for_like` measures that alone).

A decode starts with lists of ids and ends with lists of ids, without rescoring. In each round the entries take turns (A B C A B C).
A cell is the median of the rounds in milliseconds a sentence, by one thread / by two. Memory is what a system and a batch of the
largest size add to a process. `--roofline` also writes the share of the machine's limits that each system reaches
(`benchmarks.decoding.roofline`). `--quick` measures a system of each kind, three rounds and no memory."""

from __future__ import annotations

import argparse
import ctypes
import gc
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.decoding.base_entries import Entry, chosen, entries
from benchmarks.decoding.networks import VOCABULARY, sentences
from benchmarks.decoding.roofline import Limits, least_seconds, measure_limits, sentence_bytes, sentence_products
from benchmarks.decoding.rounds import measure, medians, turns
from benchmarks.record import publish, spread
from benchmarks.rivals.ctranslate2_settings import depths
from benchmarks.rivals.entries import CTranslate2, named
from benchmarks.rivals.like_for_like import trials

Medians = dict[tuple[str, int, int], float]
"""Milliseconds by entry, threads and batch."""
PROGRAM = "benchmarks.decoding.base_size"
SECTION = "Comparison with CTranslate2"


def main() -> None:
    arguments = _arguments()
    found = entries(arguments.size, arguments.tokens, tuple(arguments.batches))
    if arguments.memory_of:
        print(_memory(found[arguments.memory_of], arguments))
        return
    kept = chosen(found, arguments.only, quick=arguments.quick)
    before = [measure_limits(count) for count in arguments.threads]
    memory = {} if arguments.quick or arguments.no_memory else _memories(kept, arguments)
    began = time.perf_counter()
    depth = depths(arguments.size)[0]
    baselines = f"CTranslate2 {named(depth)}, map", next(iter(found))
    decoders = {name: entry.make() for name, entry in {baselines[1]: found[baselines[1]], **kept}.items()}
    print(f"{len(decoders)} entries made in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    with TemporaryDirectory(prefix="fewstep-rivals-") as folder:
        rival = CTranslate2(Path(folder), arguments.size, arguments.tokens, trials(arguments, Path(folder), [depth]))
        given = arguments.batches, arguments.threads
        found_turns = rival.turns(baselines[0], depth, True, *given)
        found_turns += turns(decoders, *given, arguments.tokens, VOCABULARY[arguments.size])
        results = measure(found_turns, arguments.rounds)
    memory |= rival.mebibytes
    after = [measure_limits(count) for count in arguments.threads]
    limits = {count: Limits(*map(max, *pair)) for count, *pair in zip(arguments.threads, before, after, strict=True)}
    _publish_times(arguments, baselines, [baselines[0], *decoders], memory, results)
    _publish_roofline(arguments, kept, medians(results), limits)


def _memories(kept: Mapping[str, Entry], arguments: argparse.Namespace) -> dict[str, float | None]:
    began = time.perf_counter()
    options = ["--size", arguments.size, "--tokens", str(arguments.tokens)]
    options += ["--batches", *map(str, arguments.batches), "--threads", *map(str, arguments.threads)]
    found = {name: in_process(PROGRAM, options, name) for name in kept}
    print(f"memory measured in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return found


def _memory(entry: Entry, arguments: argparse.Namespace) -> float:
    """Return the MiB that a system and its largest batch add to this process."""
    torch.set_num_threads(max(arguments.threads))
    settle()
    before = resident_mib("VmRSS")
    decode = entry.make()
    settle()
    decode(sentences(max(arguments.batches), arguments.tokens, VOCABULARY[arguments.size]))
    return resident_mib("VmHWM") - before


def _publish_times(
    arguments: argparse.Namespace,
    baselines: tuple[str, str],
    names: Sequence[str],
    memory: Mapping[str, float | None],
    results: list[dict[str, Any]],
) -> None:
    rival, own = baselines
    found = medians(results)
    threads = " / ".join(map(str, arguments.threads))
    batches = arguments.batches

    def times(name: str, batch: int) -> str:
        return " / ".join(f"{found[name, count, batch]:.2f}" for count in arguments.threads)

    def ratios(base: str, name: str, batch: int) -> str:
        return " / ".join(f"{found[base, count, batch] / found[name, count, batch]:.2f}x" for count in arguments.threads)

    publish(
        arguments,
        section=SECTION,
        explanation=(
            f"All families, networks of size `{arguments.size}` with random weights in int8, {arguments.tokens} tokens in and out, "
            f"shortlists: milliseconds a sentence by {threads} threads; times faster than `{own}`, by fewer steps and layers in "
            f"the same engine; times faster than `{rival}` at its best setting, which also contains the engine; and the memory of "
            "a system."
        ),
        columns=[
            "entry",
            *(f"ms, batch {batch}" for batch in batches),
            *(f"x steps, batch {batch}" for batch in batches),
            *(f"x CTranslate2, batch {batch}" for batch in batches),
            "MiB",
        ],
        rows=[
            [
                name,
                *(times(name, batch) for batch in batches),
                *(ratios(own, name, batch) for batch in batches),
                *(ratios(rival, name, batch) for batch in batches),
                f"{memory[name]:.0f}" if memory.get(name) is not None else "-",
            ]
            for name in names
        ],
        seed=1,
        rounds=arguments.rounds,
        spread=spread([row["rounds"] for row in results]),
        figures=results,
    )


def _publish_roofline(
    arguments: argparse.Namespace, kept: Mapping[str, Entry], medians: Medians, limits: Mapping[int, Limits]
) -> None:
    arguments.json = arguments.roofline
    machine = "; ".join(f"{count} threads {_limit(limit)}" for count, limit in limits.items())
    cases = [(count, batch) for batch in arguments.batches for count in arguments.threads]
    publish(
        arguments,
        section=SECTION,
        explanation=(
            "The least work of a sentence by arithmetic from shapes, and the share of the machine's limits that a system reaches: "
            f"the least time by them over the measured time. Limits of this machine in the same run: {machine}."
        ),
        columns=[
            "entry",
            "million multiply-adds",
            *(f"MB, batch {batch}" for batch in arguments.batches),
            *(f"share, batch {batch}, {count}t" for count, batch in cases),
        ],
        rows=[
            [
                name,
                f"{sentence_products(entry.phases) / 1e6:.0f}",
                *(f"{sentence_bytes(entry.phases, batch) / 1e6:.1f}" for batch in arguments.batches),
                *(
                    f"{1000 * least_seconds(entry.phases, batch, *limits[count]) / medians[name, count, batch]:.0%}"
                    for count, batch in cases
                ),
            ]
            for name, entry in kept.items()
        ],
        seed=1,
        rounds=arguments.rounds,
        spread="as that of the times",
        figures={
            "limits": {count: limit._asdict() for count, limit in limits.items()},
            "phases": {name: [phase._asdict() for phase in entry.phases] for name, entry in kept.items()},
        },
    )


def _limit(limit: Limits) -> str:
    return f"{limit.bandwidth / 1e9:.1f} GB/s and {limit.peak / 1e9:.0f} billion 8-bit multiply-adds/s"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base", choices=list(VOCABULARY))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--tokens", type=int, default=27, help="Tokens of each source and each output.")
    parser.add_argument("--rounds", type=int, help="Timed rounds. Default: 5, with --quick 3.")
    parser.add_argument("--only", nargs="+", default=[""], help="Only entries whose names contain one of these.")
    parser.add_argument("--quick", action="store_true", help="A system of each kind, without memory.")
    parser.add_argument("--no-memory", action="store_true", help="Leave out the memory of each entry.")
    parser.add_argument("--settings", type=Path, help="Settings of CTranslate2 that were tried on this processor.")
    parser.add_argument("--json", type=Path, help="Write the table of times to this file.")
    parser.add_argument("--roofline", type=Path, help="Write the table of limits to this file.")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (3 if arguments.quick else 5)
    return arguments


def resident_mib(field: str, process: int | str = "self") -> float:
    """Return `VmRSS`, the present memory of a process, or `VmHWM`, its peak, in MiB."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    line = next(line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


def settle() -> None:
    """Return freed memory to the system and let the peak begin at the present memory."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def in_process(program: str, options: list[str], entry: str) -> float | None:
    """Return the memory of an entry in MiB by a process of its own, which prints it; None if the process failed, and say why."""
    command = [sys.executable, "-m", program, *options, "--memory-of", entry]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{entry}: memory was not measured: {done.stderr.splitlines()[-1:]}", file=sys.stderr)
        return None
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    main()
