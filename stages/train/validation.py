"""Validation in training: loss on the validation tokens, and BLEU or ROUGE-L of greedy outputs, or for a drafter the tokens that a
pass of its verifier writes. All workers take part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fewstep import CandidateTables
from fewstep.decoding import batches, decode_sentences
from fewstep.system.description import read_description
from fewstep.system.format import BundleError
from fewstep.text.masks import kinds_of, mask_pair, restored
from fewstep.vocabulary import vocabulary_digest
from models.bundle.weights import make_model
from models.family import family_named
from models.training.averaging import Validation
from models.training.batch import plan
from models.training.parallel import all_gather
from models.training.seeds import seed_of
from models.training.worker import TrainingWorker
from stages.artifacts import System
from stages.errors import ArtifactError, DataError
from stages.shared.decoding.sentences import read_sentences
from stages.shared.scoring.metrics import Comparison, score
from stages.shared.scoring.tokenizers import tokenizer_of
from stages.shared.tasks import TASKS
from stages.shared.vocabulary import processor
from stages.train import TrainConfig, TrainInputs
from stages.train.token_files import TokenFiles, masking, vocabulary_sizes

BATCH_TOKENS = 4096
"""Largest number of padded tokens in a batch. A longer sentence forms a batch of its own."""


class Validator:
    """The validation text and tokens, which are read once."""

    def __init__(self, inputs: TrainInputs, config: TrainConfig, training_worker: TrainingWorker, num_shares: int) -> None:
        """Raise DataError when there are no pairs to validate on, or when the tokeniser of the metric is not installed."""
        self._config = config
        self._training_worker = training_worker
        self._num_shares = num_shares
        self._family = family_named(config.family).functions
        sizes = vocabulary_sizes(inputs.vocabulary)
        files = TokenFiles([inputs.validation.path], sizes)
        self._pool = files.pool(range(len(files.paths)))
        if (masked := masking(config, sizes)) is not None:
            self._pool = masked(self._pool, "validation")
        source = self._pool.source.lengths
        target = self._pool.target.lengths
        rows = np.array([row for row in range(len(source)) if self._fits(int(source[row]), int(target[row]))], dtype=np.int64)
        if len(rows) == 0:
            raise DataError(
                f"{inputs.validation.path}: expected pairs to validate on, got none that the network can take; "
                "check the lengths of the validation text"
            )
        budget = max(BATCH_TOKENS, int(np.maximum(source, target)[rows].max()) + 1)
        self._batches = plan(source, target, rows, budget, seed_of("validation"))
        self._prepare_quality(inputs)

    def _prepare_quality(self, inputs: TrainInputs) -> None:
        self._verifier: dict[str, nn.Module] = {}
        count = self._config.training.validation_sentences
        self._pieces = processor(inputs.vocabulary.path, "target")
        language = self._config.target_language
        self._how = Comparison(language=language, tokenizer=tokenizer_of(language), lowercase=False)
        sentences = read_sentences(inputs.validation_text.path)[:count]
        self._references = [sentence.references for sentence in sentences]
        kinds = kinds_of(self._pieces)
        self._values = [mask_pair(sentence.source, sentence.references[0], kinds)[0].values for sentence in sentences]
        values, offsets = self._pool.source
        self._tables = _tables(inputs)
        self._sources = [values[offsets[row] : offsets[row + 1]].tolist() for row in range(len(self._references))]
        tokenized = self._config.training.validation_metric == "tokenized_bleu"
        self._metric = "tokenized_bleu" if tokenized else TASKS[self._config.task].metric
        # A tokeniser that is not installed is reported now, not at the first validation.
        score(self._metric, ["text"], [["text"]], self._how)
        self._search: Any = family_named(self._config.family).search.for_network(self._config.network)
        if inputs.verifier is not None:
            self._verifier = _verifier(inputs.verifier, self._training_worker.device)
        if self._config.task == "summarization":
            # An untrained network would write as much as it reads.
            self._search = self._search.with_max_tokens(int(self._pool.target.lengths.max()) + 1)

    def _fits(self, source_length: int, target_length: int) -> bool:
        return bool(self._family.fits(self._config.network, source_length, target_length))

    def validate(self, model: nn.Module, update: int) -> tuple[Validation, dict[str, float]]:
        """Return the loss and quality of the network, and the statistics of its family per counted token, equal on all workers. The
        network is in training mode afterwards."""
        model.eval()
        means = self._means(model, update)
        quality = self._quality(model) if self._references else None
        model.train()
        return Validation(update, means.pop("loss"), quality), means

    def _means(self, model: nn.Module, update: int) -> dict[str, float]:
        """The loss without label smoothing, in nats, and the statistics, per counted token; computed in float32."""
        numbers = range(self._training_worker.rank, self._num_shares, self._training_worker.world_size)
        own = _added(self._sums_of_share(model, update, number) for number in numbers)
        sums = _added(all_gather(self._training_worker, own))
        count = sums.pop("count")
        return {name: value / count for name, value in sums.items()}

    def _sums_of_share(self, model: nn.Module, update: int, number: int) -> dict[str, float]:
        """The sums of losses, counts and statistics over a share of the batches, which is drawn from a seed of its own."""
        torch.manual_seed(seed_of(self._config.training.seed, update, number, "validation"))
        sums: dict[str, Tensor] = {}
        with torch.inference_mode():
            for rows in self._batches[number :: self._num_shares]:
                found = self._family.loss(model, self._pool.batch(rows).to(self._training_worker.device), update, 0.0)
                for name, value in {"loss": found.total, "count": found.count, **found.statistics}.items():
                    sums[name] = sums.get(name, 0.0) + value.double()
        return {name: float(value) for name, value in sums.items()}

    def _quality(self, model: nn.Module) -> float:
        """The metric of the task, or tokens a pass. A source that the network cannot take has an empty output, in no pass."""
        decoder: Any = self._family.decoder(model, **self._tables, **self._verifier)
        lengths = [len(source) if self._fits(len(source), 0) else 0 for source in self._sources]
        own_batches = batches(lengths, BATCH_TOKENS)[self._training_worker.rank :: self._training_worker.world_size]
        rows = [row for batch in own_batches for row in batch]
        found = decode_sentences(decoder, [self._sources[row] for row in rows], self._search, batch_tokens=BATCH_TOKENS)
        own = {row: (ranked[0].ids, ranked[0].steps) for row, ranked in zip(rows, found, strict=True)}
        outputs = {row: found for part in all_gather(self._training_worker, own) for row, found in part.items()}
        if self._verifier:
            return sum(len(ids) for ids, _ in outputs.values()) / max(1, sum(steps for _, steps in outputs.values()))
        ids = {row: ids for row, (ids, _) in outputs.items()}
        texts = [restored(str(self._pieces.decode(ids.get(row, []))), values) for row, values in enumerate(self._values)]
        return float(score(self._metric, texts, self._references, self._how)["score"])


def _verifier(system: System, device: str) -> dict[str, nn.Module]:
    """The network of a system that verifies drafts, as an argument of the decoder. Raises ArtifactError for a damaged system."""
    try:
        return {"verifier": make_model(system.path, read_description(system.path), device)}
    except BundleError as error:
        raise ArtifactError(f"{error}; remove the artifact and run again") from error


def _tables(inputs: TrainInputs) -> dict[str, CandidateTables]:
    """The candidate tables as an argument of the decoder, if there are any. Raises ArtifactError for another vocabulary."""
    if inputs.tables is None:
        return {}
    try:
        return {"tables": CandidateTables.load(inputs.tables.file, vocabulary=vocabulary_digest(inputs.vocabulary.path))}
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{error}; remove the artifact and run again") from error


def _added(parts: Iterable[dict[str, float]]) -> dict[str, float]:
    """Return the sums of parts by name."""
    sums: dict[str, float] = {}
    for part in parts:
        sums = {**sums, **{name: sums.get(name, 0.0) + value for name, value in part.items()}}
    return sums
