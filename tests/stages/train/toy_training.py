"""A training on a toy language that takes a second, and contexts that stop it."""

from dataclasses import dataclass, replace

import pyarrow as pa
from safetensors.torch import load_file

from fewstep.families.stepwise.config import StepwiseConfig
from models.bundle import weights
from models.training.config import TrainingConfig
from stages.artifacts import Text
from stages.context import StepContext
from stages.shared.shards import write_shards
from stages.train import TrainConfig
from tests.stages.steps import context_in

NETWORK = StepwiseConfig(encoder_layers=1, decoder_layers=1, width=16, feed_forward=32, heads=2, dropout=0.1, max_positions=64)
RECIPE = TrainingConfig(
    updates=20, batch_tokens=120, learning_rate=0.01, warmup_updates=5, log_every=4, validate_every=6, validation_sentences=10,
    num_averaged=2,
)  # fmt: skip


def sentence(k, words, length):
    return " ".join(words[(k * 7 + j * j * (k % 5 + 1)) % len(words)] for j in range(length))


def make_text(directory, count, offset=0):
    english = ["one", "two", "three", "four", "five", "six", "seven"]
    german = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben"]
    lengths = [k % 6 + 1 for k in range(count)]
    table = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "source": [sentence(k + offset, english, n) for k, n in enumerate(lengths)],
            "target": [sentence(k + offset, german, n) for k, n in enumerate(lengths)],
        }
    )
    write_shards([table], directory, 32, context_in(directory))
    return Text(directory, directory.name)


def config_of(network=NETWORK, **recipe):
    return TrainConfig(family="stepwise", network=network, training=replace(RECIPE, **recipe))


@dataclass(frozen=True)
class Stopping(StepContext):
    """A context that requests a stop at the n-th question."""

    after: int = 0

    def for_workers(self):
        return self

    def stop_requested(self):
        counter = self.records("asked")
        asked = int(counter.read_text()) + 1 if counter.exists() else 1
        counter.write_text(str(asked))
        return asked == self.after


@dataclass(frozen=True)
class Dying(StepContext):
    """A context whose process dies when it logs an update."""

    at: int = 0

    def for_workers(self):
        return self

    def metrics(self, step, values):
        if step == self.at:
            raise SystemError("killed")


def spoil(path):
    """Put a value that is not finite into the weights of a file."""
    state = load_file(path)
    state["target_embedding.weight"][3, 1] = float("nan")
    weights.save_weights(path, state)
