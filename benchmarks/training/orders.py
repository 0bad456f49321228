"""Training speed under an order of generation compared with autoregressive training of the same network.

Both sides train on the same batches in a bare loop and take turns in one process; the ratio is the median of the rounds.

    python -m benchmarks.training.orders interleaved interleaved-sa --precision bfloat16 --threads 1 --json orders.json
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import publish
from benchmarks.training.loop import FAMILY, bare, timed, whole_stream, write_tokens
from fewstep.config.network import SIZES, Sizes
from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.families.stepwise.orders import ORDERS
from models.training.batch import Position, shares
from models.training.config import TrainingConfig
from stages.context import StepContext
from stages.workers import LocalWorkers, Resources


def measure(arguments: argparse.Namespace, context: StepContext) -> dict[str, Any]:
    """Return seconds of each order by round, and its speed relative to the autoregressive one; the first round warms up."""
    write_tokens(context, 30000, arguments.vocabulary)
    sizes = Sizes(arguments.vocabulary, arguments.vocabulary, True)
    stream = whole_stream(context.directory, sizes)
    total = (arguments.rounds + 1) * arguments.updates
    recipe = replace(TrainingConfig(), updates=total, precision=arguments.precision, batch_tokens=arguments.batch_tokens)
    batches = [own[0].slices[0] for own in islice(shares(stream.pools(Position()), arguments.batch_tokens, recipe.seed), total)]
    names = ["autoregressive", *arguments.orders]
    sides = {}
    for name in names:
        torch.manual_seed(1)
        network = StepwiseConfig(order=name, size=arguments.size, dropout=arguments.dropout, **SIZES[arguments.size])
        sides[name] = bare(FAMILY.build(network, sizes).train(), batches, recipe, torch.device("cpu"))
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(arguments.rounds + 1):
        for name in names if turn % 2 else names[::-1]:
            spent = timed(sides[name], arguments.updates, torch.device("cpu"))
            if turn:
                seconds[name].append(spent)
    ratios = {name: [ar / own for ar, own in zip(seconds["autoregressive"], seconds[name], strict=True)] for name in names}
    return {"seconds": seconds, "ratios": ratios, "median": {name: statistics.median(ratios[name]) for name in names}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("orders", nargs="+", choices=sorted(ORDERS))
    parser.add_argument("--size", choices=sorted(SIZES), default="tiny")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=20, help="Updates of each side in each round.")
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        resources = Resources(workers=1, cpus=arguments.threads)
        context = StepContext(directory=path, attempt="benchmark", workers=LocalWorkers(), resources=resources, shard_cache=path)
        result = measure(arguments, context)
    publish(
        arguments,
        section="Training speed against a bare loop",
        explanation="Training speed of an order as a share of the autoregressive one, on the same batches, in turns.",
        columns=["order", "share, median of rounds", "rounds"],
        rows=[
            [name, f"{ratio:.3f}", f"{min(result['ratios'][name]):.2f} to {max(result['ratios'][name]):.2f}"]
            for name, ratio in result["median"].items()
        ],
        seed=1,
        rounds=arguments.rounds,
        spread="column `rounds`",
        figures=result,
    )


if __name__ == "__main__":
    main()
