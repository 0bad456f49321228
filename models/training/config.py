"""How a network is trained. Everything here is part of the recipe; where it runs is not (see `cluster` in the config)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Lt


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The recipe of one training."""

    seed: Annotated[int, Ge(0)] = 1
    """Seed of initialisation, batch order and dropout."""
    updates: Annotated[int, Ge(1)] = 10000
    """Optimiser updates at most."""
    batch_tokens: Annotated[int, Ge(1)] = 4096
    """Padded tokens in the batch of one update, over all workers and passes (the longer side of each pair, EOS included)."""
    max_tokens: Annotated[int, Ge(1)] = 256
    """Pairs with a side longer than this many tokens are left out of training (counted)."""
    learning_rate: Annotated[float, Gt(0)] = 0.002
    """Peak learning rate of Adam."""
    schedule: Literal["inverse_sqrt", "cosine", "constant"] = "inverse_sqrt"
    """Learning rate after warm-up: falls with the square root of the update, as half a cosine to zero at `updates`, or stays."""
    warmup_updates: Annotated[int, Ge(0)] = 1000
    """Updates over which the learning rate rises linearly from zero."""
    adam_beta1: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Decay of Adam's first moment."""
    adam_beta2: Annotated[float, Ge(0), Lt(1)] = 0.98
    """Decay of Adam's second moment."""
    adam_epsilon: Annotated[float, Gt(0)] = 1e-9
    """Term added to the root of the second moment."""
    weight_decay: Annotated[float, Ge(0)] = 0.0
    """Decoupled weight decay (AdamW)."""
    clip_norm: Annotated[float, Ge(0)] = 1.0
    """Largest norm of the gradient per counted token; 0 does not clip."""
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Mass spread evenly over the vocabulary (eps / V each)."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Arithmetic of the network; weights, sums and losses stay fp32. CPUs without instructions for bf16 compute in fp32 instead."""
    log_every: Annotated[int, Ge(1)] = 50
    """Updates between two lines of training metrics."""
    validate_every: Annotated[int, Ge(1)] = 500
    """Updates between two validations; each gives a candidate for keeping and averaging."""
    validation_metric: Literal["loss", "bleu", "rougeL"] = "bleu"
    """What chooses the best candidates: validation loss (lower), or BLEU or ROUGE-L of greedy outputs (higher), as the task is."""
    validation_sentences: Annotated[int, Ge(0)] = 500
    """Validation sources, from the top, that are decoded for BLEU or ROUGE-L; 0 decodes none (the metric must be loss)."""
    patience: Annotated[int, Ge(0)] = 0
    """Validations without a new best after which training stops; 0 never stops early."""
    average: Literal["best", "last"] = "best"
    """Which candidates are averaged into the final weights."""
    average_count: Annotated[int, Ge(1)] = 5
    """Candidates that are kept and averaged; 1 takes the single best or last."""
    keep_first: bool = False
    """Also keep the weights of the first validation, for analyses that compare a network with what it was early in training?"""
