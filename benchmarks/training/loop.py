"""Training speed of the pipeline compared with a bare PyTorch loop over the same model and the same batches.

The pipeline's side reads token shards, plans and pads batches in its thread, and writes lines of metrics, as the train stage does
between two validations. The bare side is handed batches that were padded beforehand and does nothing but forward, backward,
clipping and a fused AdamW. Both start from the same weights and take turns, so that other load of the machine affects both.

A third turn multiplies float32 matrices with the same threads, which is the peak of the machine at that moment. The share of it
that the pipeline reaches counts the products of both passes with weights and logits alone, padding included: neither attention,
whose kernels make their own products, nor anything else. With bfloat16 a share can exceed 1.

    python -m benchmarks.training.loop --precision bfloat16 --threads 2 --json training_speed.json
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.record import publish
from fewstep.config.network import SIZES, Sizes
from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.vocabulary import RESERVED
from models.family import family_named
from models.training.batch import Batch, Position, prefetch_batches, shares
from models.training.config import TrainingConfig
from models.training.loop import updates
from models.training.optimizer import ADAM_BETA1, Optimizer, learning_rate
from models.training.precision import TYPES, arithmetic
from models.training.worker import TrainingWorker
from stages.context import StepContext
from stages.shared.shards import write_shards
from stages.train.loop import Meter
from stages.train.token_files import PoolStream, TokenFiles
from stages.workers import LocalWorkers, Resources

FAMILY = family_named("stepwise").functions
PEAK_SIZE = 1024
"""Rows and columns of the matrices whose product is the machine's peak."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=sorted(SIZES), default="tiny")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--updates", type=int, default=20, help="Updates of each side in each round.")
    parser.add_argument("--json", type=Path, help="Write the table to this file.")
    return parser.parse_args()


def write_tokens(context: StepContext, rows: int, vocabulary: int) -> None:
    """Write token shards with the lengths of image captions: log-normal, about 14 tokens."""
    generator = np.random.default_rng(1)
    lengths = np.clip(np.exp(generator.normal(2.55, 0.35, rows)).astype(int), 1, 60)
    jitter = generator.normal(1.0, 0.15, rows)

    def side(sizes: np.ndarray) -> pa.Array:
        values = generator.integers(len(RESERVED), vocabulary, int(sizes.sum())).astype(np.uint16)
        return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32()), pa.array(values))

    sides = {"source": side(lengths), "target": side(np.clip((lengths * jitter).astype(int), 1, 60))}
    write_shards([pa.table({"id": pa.array(range(rows), pa.int64()), **sides})], context.directory, 4096, context)


def whole_stream(tokens: Path, sizes: Sizes) -> PoolStream:
    """Return the stream of all pairs."""
    files = TokenFiles([tokens], sizes)
    rows = [len(files.lengths(shard)[0]) for shard in range(len(files.paths))]
    return PoolStream(rows, files.pool, lambda source, target: np.ones(len(source), dtype=bool), TrainingConfig().seed)


def bare(model: nn.Module, batches: list[Batch], recipe: TrainingConfig, device: torch.device) -> Callable[[int], None]:
    """Return a function that makes the next n updates in a bare loop."""
    optimizer = torch.optim.AdamW(
        model.parameters(), betas=(ADAM_BETA1, recipe.adam_beta2), eps=recipe.adam_epsilon, weight_decay=0.0, fused=True
    )
    numbered = enumerate(batches, 1)

    def advance(count: int) -> None:
        for update, batch in islice(numbered, count):
            optimizer.zero_grad()
            precision = arithmetic(recipe.precision, device.type)
            with torch.autocast(device.type, TYPES[precision], enabled=precision != "float32"):
                loss = FAMILY.loss(model, batch.to(device), update, recipe.label_smoothing)
            (loss.total / loss.count).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
            optimizer.param_groups[0]["lr"] = learning_rate(recipe, update)
            optimizer.step()

    return advance


def pipeline(
    model: nn.Module, stream: PoolStream, recipe: TrainingConfig, worker: TrainingWorker, context: StepContext
) -> Callable[[int], None]:
    """Return a function that makes the next n updates as the train stage does."""
    meter = Meter()
    mine = prefetch_batches(shares(stream.pools(Position()), recipe.batch_tokens, recipe.seed))
    reports = updates(model, FAMILY.loss, mine, Optimizer(model, recipe), recipe, worker)

    def advance(count: int) -> None:
        for report in islice(reports, count):
            meter.add(report)
            context.stop_requested()
            if report.update % recipe.log_every == 0:
                context.metrics(report.update, meter.line())
                context.progress(report.update, recipe.updates, "updates")

    return advance


def timed(advance: Callable[[int], Any], count: int, device: torch.device) -> float:
    started = time.perf_counter()
    advance(count)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


def peak(device: torch.device) -> float:
    """Return the operations a second of the fastest of a few float32 products of matrices: two for each multiplication."""
    x = torch.randn(PEAK_SIZE, PEAK_SIZE, device=device)
    seconds = min(timed(lambda count: [torch.mm(x, x) for _ in range(count)], 4, device) / 4 for _ in range(5))
    return 2 * PEAK_SIZE**3 / seconds


def measure(arguments: argparse.Namespace, context: StepContext) -> dict[str, Any]:
    """Measure rounds of both sides; the first one warms up and is left out."""
    device = torch.device(arguments.device)
    write_tokens(context, 30000, arguments.vocabulary)
    sizes = Sizes(arguments.vocabulary, arguments.vocabulary, True)
    stream = whole_stream(context.directory, sizes)
    total = (arguments.rounds + 1) * arguments.updates
    recipe = replace(TrainingConfig(), updates=total, precision=arguments.precision, batch_tokens=arguments.batch_tokens)
    batches = [own[0].slices[0] for own in islice(shares(stream.pools(Position()), arguments.batch_tokens, recipe.seed), total)]
    network = StepwiseConfig(size=arguments.size, dropout=arguments.dropout, **SIZES[arguments.size])
    sides = {}
    for name in ("bare", "pipeline"):
        torch.manual_seed(1)
        model = FAMILY.build(network, sizes).to(device).train()
        sides[name] = (
            bare(model, batches, recipe, device)
            if name == "bare"
            else pipeline(model, stream, recipe, TrainingWorker(device=arguments.device), context)
        )
    tokens = [sum(int(batch.target_lengths.sum()) for batch in part) for part in grouped(batches, arguments.updates)]
    speeds: dict[str, list[float]] = {"bare": [], "pipeline": []}
    peaks, operations = [], []
    for turn, count in enumerate(tokens):
        for name in sorted(sides, reverse=turn % 2 == 1):
            with FlopCounterMode(display=False) if not turn else nullcontext() as counter:
                seconds = timed(sides[name], arguments.updates, device)
            if counter is not None:
                operations.append(counter.get_total_flops() / count)
            else:
                speeds[name].append(count / seconds)
        if turn:
            peaks.append(peak(device))
    assert operations[0] == operations[1], "both sides make the same products"
    reached = [speed * operations[0] / at_most for speed, at_most in zip(speeds["pipeline"], peaks, strict=True)]
    ratios = [ours / theirs for ours, theirs in zip(speeds["pipeline"], speeds["bare"], strict=True)]
    return {
        "target_tokens_per_second": {name: statistics.median(values) for name, values in speeds.items()},
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "share_of_peak": statistics.median(reached),
        "shares_of_peak": reached,
        "operations_per_token": operations[0],
        "peak_operations_per_second": statistics.median(peaks),
        "rounds": speeds,
    }


def grouped(batches: list[Batch], size: int) -> Iterator[list[Batch]]:
    return (batches[start : start + size] for start in range(0, len(batches), size))


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        context = StepContext(
            directory=Path(folder),
            attempt="benchmark",
            workers=LocalWorkers(),
            resources=Resources(workers=1, cpus=arguments.threads),
            shard_cache=Path(folder),
        )
        result = measure(arguments, context)
    speeds, ratios = result["target_tokens_per_second"], result["ratios"]
    figures = "ratio", "share_of_peak"
    network = f"{arguments.size}, {arguments.precision}, {arguments.threads} threads"
    publish(
        arguments,
        section="Training speed against a bare loop",
        explanation=(
            "Target tokens a second of the pipeline's training and of a bare PyTorch loop with the same network and batches, "
            "in turns in one process, and the share of the machine's float32 peak that the pipeline's products of matrices reach."
        ),
        columns=["network", "bare loop", "pipeline", "ratio, median of rounds", "share of the peak"],
        rows=[[network, *(f"{speeds[name]:,.0f}" for name in ("bare", "pipeline")), *(f"{result[key]:.2f}" for key in figures)]],
        seed=1,
        rounds=arguments.rounds,
        spread=f"ratio from {min(ratios):.2f} to {max(ratios):.2f} over rounds",
        figures=result,
    )


if __name__ == "__main__":
    main()
