"""Measure the BLEU of 8-bit greedy search after the weights of decoder and output were rounded to 4 bits in groups.

    python -m benchmarks.decoding.weight_bits SYSTEM... --source test.en --reference test.de [--json FILE]

Rounding shows what 4-bit products would cost in quality before there is a kernel for them. A group of weights of one output has a
scale of its own, the one of the least squared error among thirteen shares of the group's largest weight.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import sacrebleu
from safetensors.numpy import load_file, save_file

from benchmarks.record import publish
from fewstep import load

LARGEST = 7
"""Largest level of 4 bits; the lowest is -8."""
SHARES = np.linspace(0.7, 1.0, 13)
"""Shares of the largest weight of a group that its largest level may stand for."""
OUTPUT = "target_embedding.weight"
GROUPS = (32, 64)


def rounded(weights: npt.NDArray[np.float32], group: int) -> npt.NDArray[np.float32]:
    """Return weights [outputs, inputs] after rounding groups of `group` inputs to 4 bits."""
    rows, columns = weights.shape
    groups = weights.reshape(rows, columns // group, group)
    largest = np.maximum(np.abs(groups).max(-1, keepdims=True), 1e-12)
    best = groups
    least = np.full_like(largest, np.inf)
    for share in SHARES:
        scale = largest * share / LARGEST
        found = np.clip(np.rint(groups / scale), -LARGEST - 1, LARGEST) * scale
        error = ((found - groups) ** 2).sum(-1, keepdims=True)
        best, least = np.where(error < least, found, best), np.minimum(error, least)
    return best.reshape(rows, columns).astype(np.float32)


def round_system(system: Path, copy: Path, group: int, output: bool) -> None:
    """Write a copy of a system whose decoder's weights, and the output's on demand, are rounded."""
    shutil.copytree(system, copy)
    tensors = load_file(system / "model.safetensors")
    for name, tensor in tensors.items():
        if tensor.ndim == 2 and (name.startswith("decoder.") or (output and name == OUTPUT)):
            tensors[name] = rounded(tensor, group)
    save_file(tensors, copy / "model.safetensors")


def bleu(system: Path, search: str, sources: Sequence[str], references: Sequence[str]) -> float:
    """Return the BLEU of a system, whose files are not compared with their checksums."""
    loaded = load(system, verify=False)
    outputs = loaded.translate(sources, search=search)
    return float(sacrebleu.corpus_bleu(outputs, [references]).score)


def scores(system: Path, sources: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return the BLEU of each form of the weights."""
    found = {search: bleu(system, search, sources, references) for search in ("greedy", "greedy-int8")}
    with tempfile.TemporaryDirectory() as folder:
        for group in GROUPS:
            for output, name in ((False, "decoder"), (True, "decoder and output")):
                copy = Path(folder) / f"{group}-{output}"
                round_system(system, copy, group, output)
                found[f"4 bits in groups of {group}, {name}"] = bleu(copy, "greedy-int8", sources, references)
    return found


def main() -> None:
    """Print the table, and write it on demand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", type=Path, nargs="+", help="Directories of systems of the family stepwise.")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    args = parser.parse_args()
    texts = [path.read_text(encoding="utf-8").splitlines() for path in (args.source, args.reference)]
    found = [scores(system, *texts) for system in args.systems]
    means = {name: float(np.mean([row[name] for row in found])) for name in found[0]}
    publish(
        args,
        section="Weights of 4 bits",
        explanation="BLEU of greedy search with weights rounded to 4 bits and 8-bit products; systems differ by their seed.",
        columns=["weights", *(f"system {number}" for number in range(1, len(found) + 1)), "mean", "to int8"],
        rows=[
            [name, *(f"{row[name]:.2f}" for row in found), f"{mean:.2f}", f"{mean - means['greedy-int8']:+.2f}"]
            for name, mean in means.items()
        ],
        seed=None,
        rounds=1,
        spread="the columns of the systems",
        note="Nothing is random, and no time is measured.",
        figures=found,
    )


if __name__ == "__main__":
    main()
