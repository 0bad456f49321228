"""The recipe of a training. Everything here changes results; `cluster` in the config says where a training runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from fewstep.config.bounds import Ge, Gt, Lt, MinLen
from fewstep.config.problems import Problem

TrainingPrecision = Literal["float32", "bfloat16", "float16", "int8", "auto"]
"""The arithmetic of training: one that decoding has as well, or `auto`."""


@dataclass(frozen=True, kw_only=True)
class CurriculumStage:
    """A part of a training that reads several texts in shares. All stages but the last have an end, `updates` or `epochs`."""

    mix: Annotated[Mapping[str, Annotated[float, Gt(0)]], MinLen(1)]
    """Shares of the pairs by the name of the text, in any unit: `raw`, the training text (`corpus.train`); `back_translation`;
    `distilled`; and those of `corpus.texts`. A text that ends begins again in another order."""
    updates: Annotated[int, Ge(1)] | None = None
    """Updates after which the next stage begins."""
    epochs: Annotated[int, Ge(1)] | None = None
    """Passes over the first text of the mix after which the next stage begins."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The recipe of one training."""

    seed: Annotated[int, Ge(0)] = 1
    """Seed of initialisation, batch order and dropout."""
    updates: Annotated[int, Ge(1)] = 10000
    """Largest number of optimiser updates."""
    batch_tokens: Annotated[int, Ge(1)] = 4096
    """Padded tokens in the batch of one update, over all workers and microbatches (the longer side of each pair, EOS included)."""
    max_tokens: Annotated[int, Ge(1)] = 256
    """Pairs with a side longer than this number of tokens are left out of training (and counted)."""
    learning_rate: Annotated[float, Gt(0)] = 0.002
    """Peak learning rate of Adam."""
    schedule: Literal["inverse_sqrt", "cosine", "linear", "constant"] = "inverse_sqrt"
    """Learning rate after warm-up: it falls with the square root of the update, falls as half a cosine or as a line to zero at
    `updates`, or is constant."""
    warmup_updates: Annotated[int, Ge(0)] = 1000
    """Updates over which the learning rate rises linearly from zero."""
    adam_beta2: Annotated[float, Ge(0), Lt(1)] = 0.98
    """Decay of Adam's second moment."""
    adam_epsilon: Annotated[float, Gt(0)] = 1e-9
    """Term added to the root of the second moment."""
    weight_decay: Annotated[float, Ge(0)] = 0.0
    """Decoupled weight decay (AdamW)."""
    clip_norm: Annotated[float, Ge(0)] = 1.0
    """Largest norm of the gradient per counted token; 0: no clipping."""
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Probability mass spread evenly over the vocabulary (eps / V each)."""
    precision: TrainingPrecision = "float32"
    """Arithmetic of the network: float32, bfloat16 or float16; `auto` is bfloat16 on CPUs and GPUs with instructions for it,
    float16 on other GPUs, and float32 on other CPUs. With float16, updates whose scaled gradient overflows are skipped and
    counted. Weights, sums and losses stay in float32. CPUs without instructions for bfloat16 compute in float32 instead."""
    log_every: Annotated[int, Ge(1)] = 50
    """Updates between two lines of training metrics."""
    validate_every: Annotated[int, Ge(1)] = 500
    """Updates between two validations; each gives a candidate for keeping and averaging."""
    validation_metric: Literal["loss", "bleu", "tokenized_bleu", "rougeL", "tokens_per_pass"] = "bleu"
    """Metric that the best candidates are chosen by: validation loss (lowest); BLEU or ROUGE-L of greedy outputs (highest), by the
    task; BLEU of the tokens of Moses, by which `evaluation.length_penalties` of the system are then compared as well; or, for a
    drafter, the mean number of tokens that a pass of its verifier writes (highest)."""
    validation_sentences: Annotated[int, Ge(0)] = 500
    """Number of validation sources, from the top, that are decoded for the other metrics; 0: none (the metric must be loss)."""
    patience: Annotated[int, Ge(0)] = 0
    """Validations without a new best after which training stops early; 0: it never stops early."""
    patience_epochs: Annotated[int, Ge(0)] = 0
    """Passes over the training text without a new best validation after which training stops early; 0: it never does for this
    reason."""
    average: Literal["best", "last"] = "best"
    """Candidates that are averaged into the final weights."""
    num_averaged: Annotated[int, Ge(1)] = 5
    """Number of candidates that are kept and averaged; 1 takes the single best or last."""
    keep_first: bool = False
    """Also keep the weights of the first validation, for analyses of a network early in training."""
    curriculum: tuple[CurriculumStage, ...] = ()
    """Stages that the training goes through, each with shares of texts, in place of the text of `data`. Empty: none."""

    def problems(self) -> Iterator[Problem]:
        """Yield the options that are not a valid combination."""
        if self.precision == "int8":
            yield Problem(("precision",), "auto, float32, bfloat16 or float16 in training", self.precision)
        if self.schedule in ("cosine", "linear") and self.warmup_updates >= self.updates:
            expected = f"less than updates ({self.updates}) with the {self.schedule} schedule"
            yield Problem(("warmup_updates",), expected, self.warmup_updates)
        if self.curriculum:
            yield from self._curriculum_problems()
        if self.validation_metric != "loss" and not self.validation_sentences:
            yield Problem(("validation_sentences",), f"at least 1 with validation_metric {self.validation_metric}", 0)

    def _curriculum_problems(self) -> Iterator[Problem]:
        """Yield the stages whose ends are not valid."""
        *earlier, last = self.curriculum
        for number, stage in enumerate(earlier):
            if (stage.updates is None) == (stage.epochs is None):
                got = "neither" if stage.updates is None else "both"
                yield Problem(("curriculum", number), "updates or epochs, after which the next stage begins", got)
        if last.updates is not None or last.epochs is not None:
            expected = "no end of the last stage, which lasts until the training ends"
            yield Problem(("curriculum", len(earlier)), expected, "updates" if last.updates is not None else "epochs")
        if (before := sum(stage.updates or 0 for stage in earlier)) >= self.updates:
            yield Problem(("curriculum",), f"stages that end before the last update ({self.updates})", f"{before} updates")
        if self.patience_epochs:
            yield Problem(("patience_epochs",), "0 with a curriculum (patience counts validations)", self.patience_epochs)


@dataclass(frozen=True, kw_only=True)
class Infilling:
    """Pairs that are made from text alone: some spans are masked, and the target is what they hold (text infilling)."""

    masked_share: Annotated[float, Gt(0), Lt(1)] = 0.15
    """Share of the tokens of a text that are masked, rounded to whole tokens; at least one."""
    mean_span_tokens: Annotated[float, Ge(1)] = 3.0
    """Mean number of tokens of a span. The spans of a text have equal lengths, up to one token, and at least one token between
    them."""
    target: Literal["spans", "segments", "text"] = "spans"
    """Target of a text: its masked spans, with the mask token between two of them; the spans, each in a segment of the graph of its
    own (systems of the family `dag`); or the whole text, for networks whose outputs cannot be much shorter than their sources."""
