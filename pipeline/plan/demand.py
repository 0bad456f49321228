"""The trainings that a config asks for, with the GPU-hours that they take by arithmetic alone, before anything has run.

A training computes 6 floating-point operations for each weight and token, 2 forward and 4 backward (Kaplan et al. 2020, section
2.1):

    FLOP of an update = batch_tokens * (6 * E + 6 * r * (D + V * d))
    GPU-hours         = updates * FLOP of an update / (SUSTAINED_FLOPS * 3600)

E and D are the weights of the matrices of all encoder and decoder layers, V the size of the vocabulary and d the width, whose
product is the output layer. r is the number of decoder rows that are computed for a token (`NetworkConfig.training_rows`): 1 for a
Transformer; the graph factor times 4/3 for a Directed Acyclic Transformer, whose glancing needs one more pass forward; and 1 for a
one-shot decoder or `upsampling` with CTC, times 4/3 with glancing. `batch_tokens` counts the longer side of each pair, for encoder
and decoder alike, and the scores of attention are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from fewstep.config.network import NetworkConfig
from models.imports import hugging_face
from models.stepwise.system import StepwiseTeacher
from models.training.config import TrainingConfig
from models.training.recipe import TrainedSystem
from pipeline.config.schema import Pinned, RunConfig
from pipeline.config.systems import PRETRAINING, BartTeacher, FairseqTeacher, MarianTeacher, TeacherVocabulary
from pipeline.store.files import read_json
from stages.vocabulary import VocabularyOptions

SUSTAINED_FLOPS = 30e12
"""Operations that a GPU sustains in a second of training. With 30 TFLOP/s a Directed Acyclic Transformer of base size takes the 32
hours on 16 V100 that Huang et al. (2022) report. Later devices are faster."""


CPU_SHARE = 0.5
"""Share of the rate of matrix products that a training on processors reaches, roughly."""


@dataclass(frozen=True)
class Demand:
    """The amount of computation of one training."""

    step: str
    """Name of its step."""
    updates: int
    """Largest number of updates."""
    flops: float
    """Floating-point operations of all updates."""

    @property
    def gpu_hours(self) -> float:
        """Hours of one GPU."""
        return self.flops / SUSTAINED_FLOPS / 3600


def demands(config: RunConfig, steps: Collection[str] | None = None) -> list[Demand]:
    """Return the demand of every training of a config, or of those whose steps are named."""
    size = vocabulary_size(config)
    found = [Demand(step, training.updates, flops(network, training, size)) for step, network, training in _trainings(config)]
    return [one for one in found if steps is None or one.step in steps]


def vocabulary_size(config: RunConfig) -> int:
    """Return the number of pieces of the target: as it is trained, or as the files of one that was trained elsewhere state it; 0
    for SentencePiece models, which planning does not read."""
    vocabulary = config.vocabulary
    teacher = config.teacher
    if isinstance(vocabulary, VocabularyOptions):
        return vocabulary.size
    if isinstance(vocabulary, Pinned):
        sizes = read_json(vocabulary.path / "system.json").get("sizes", {})
        return int(read_json(vocabulary.path / "vocabulary.json").get("target_size", sizes.get("target", 0)))
    if isinstance(vocabulary, TeacherVocabulary) and isinstance(teacher, MarianTeacher | BartTeacher):
        return hugging_face.vocabulary_size(teacher.marian if isinstance(teacher, MarianTeacher) else teacher.bart)
    named = teacher if isinstance(teacher, FairseqTeacher) and isinstance(vocabulary, TeacherVocabulary) else vocabulary
    dictionary = getattr(named, "target_dictionary", None) or getattr(named, "source_dictionary", None)
    return _lines(dictionary) if isinstance(dictionary, Path) else 0


def _lines(path: Path) -> int:
    try:
        with path.open("rb") as file:
            return sum(1 for _ in file)
    except OSError:
        return 0


def flops(network: NetworkConfig, training: TrainingConfig, vocabulary: int) -> float:
    """Return the floating-point operations of a training."""
    block = 2 * network.width * network.feed_forward
    square = network.width**2
    encoder = network.encoder_layers * (4 * square + block)
    decoder = network.decoder_layers * (8 * square + block) + vocabulary * network.width
    return training.updates * training.batch_tokens * 6 * (encoder + network.training_rows * decoder)


def summary(found: Iterable[Demand], gpus: bool) -> str:
    """Return the number of trainings, their updates and, with `gpus`, their GPU-hours as text; empty without trainings."""
    listed = list(found)
    if not listed:
        return ""
    text = f"{len(listed)} training{'s' if len(listed) > 1 else ''} to run, {sum(one.updates for one in listed):,} updates"
    hours = sum(one.gpu_hours for one in listed)
    return f"{text}, about {hours:,.0f} GPU-hours at {SUSTAINED_FLOPS / 1e12:.0f} TFLOP/s" if gpus else text


def processor_hours(found: Iterable[Demand]) -> float:
    """Return the hours of trainings on this machine's processors, at `CPU_SHARE` of the rate of float32 matrix products, which is
    measured in a fraction of a second."""
    import torch

    matrix = torch.ones((1024, 1024))

    def seconds_of_product() -> float:
        start = perf_counter()
        torch.mm(matrix, matrix)
        return perf_counter() - start

    rate = 2 * 1024**3 / min(seconds_of_product() for _ in range(20))
    return sum(one.flops for one in found) / (CPU_SHARE * rate) / 3600


def _trainings(config: RunConfig) -> Iterator[tuple[str, NetworkConfig, TrainingConfig]]:
    if isinstance(config.teacher, StepwiseTeacher):
        for number, recipe in enumerate(config.teacher.recipes(), 1):
            yield "train:teacher" + (f"/{number}" if number > 1 else ""), config.teacher.network, recipe
    for name, system in config.systems.items():
        if isinstance(system, TrainedSystem):
            if system.initial_weights == PRETRAINING and config.pretraining is not None:
                yield f"train:{name}/{PRETRAINING}", system.network, config.pretraining.recipe(system.training)
            yield f"train:{name}", system.network, system.training
