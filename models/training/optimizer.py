"""Adam over one flat vector of weights, and learning-rate schedules as pure functions of the update."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from models.training.config import TrainingConfig
from models.training.finite import REMEDY, NotFiniteError, not_finite

ADAM_BETA1 = 0.9
"""Decay of Adam's first moment, as in Vaswani et al. (2017) and all papers since."""
MAX_SKIPPED = 5
"""Number of consecutive updates with a gradient that is not finite after which training fails."""
MAX_SKIPPED_FLOAT16 = 20
"""The same number with float16, where the loss scale is halved after each of them."""
FIRST_SCALE = 256.0
"""The initial loss scale of float16."""
STEADY_UPDATES = 2000
"""The number of updates without overflow after which the loss scale is doubled."""
ALIGNMENT = 16
"""Alignment of weights in the flat vector, in elements, as if each had been allocated separately."""


def learning_rate(config: TrainingConfig, update: int) -> float:
    """Return the learning rate of an update, counted from 1.

    It rises linearly to the peak p over w = `warmup_updates` updates and then follows the schedule:

        inverse_sqrt: p sqrt(w / update)    (Vaswani et al. 2017, section 5.3, scaled to its peak)
        cosine:       p (1 + cos(pi (update - w) / (updates - w))) / 2
        linear:       p (updates - update) / (updates - w)    (fairseq's polynomial_decay)
        constant:     p
    """
    peak, warmup = config.learning_rate, config.warmup_updates
    if update < warmup:
        return peak * update / warmup
    if config.schedule == "inverse_sqrt":
        return peak * math.sqrt(max(warmup, 1) / update)
    if config.schedule == "cosine":
        return peak * 0.5 * (1.0 + math.cos(math.pi * (update - warmup) / max(config.updates - warmup, 1)))
    if config.schedule == "linear":
        return peak * max(config.updates - update, 0) / max(config.updates - warmup, 1)
    return peak


class Optimizer:
    """Adam with decoupled weight decay, clipping, loss scaling for float16, and skipping of updates that are not finite.

    Weights and gradients of the model become views of two flat vectors, so that summation, clipping and the update are one
    operation each. The model's gradients must be cleared by `clear`, never by setting them to None. Only `check` waits for a GPU.
    """

    def __init__(self, model: nn.Module, config: TrainingConfig) -> None:
        """Flatten the weights of `model`, which must already be on its device. Raises ValueError for float16 on a CPU."""
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        device = parameters[0].device
        if config.precision == "float16" and device.type == "cpu":
            raise ValueError(
                "training.precision: expected float32 or bfloat16 on a CPU, got float16; choose bfloat16, or train on a GPU"
            )
        self.config = config
        self.moments_since = 0
        """The update after which Adam's moments were zero: 0, or that of a checkpoint that was left without them."""
        starts = [0]
        for parameter in parameters:
            starts.append(starts[-1] + parameter.numel() + -parameter.numel() % ALIGNMENT)
        self.weights = torch.zeros(starts[-1], device=device)
        self.gradient = torch.zeros_like(self.weights)
        for parameter, start in zip(parameters, starts, strict=False):
            span = slice(start, start + parameter.numel())
            self.weights[span] = parameter.detach().flatten()
            parameter.data = self.weights[span].view_as(parameter)
            parameter.grad = self.gradient[span].view_as(parameter)
        flat = nn.Parameter(self.weights)
        flat.grad = self.gradient
        self._flat = flat
        self._adam = torch.optim.AdamW(
            [flat],
            betas=(ADAM_BETA1, config.adam_beta2),
            eps=config.adam_epsilon,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self._adam.state[flat] = {
            "step": torch.zeros((), device=device),
            "exp_avg": torch.zeros_like(self.weights),
            "exp_avg_sq": torch.zeros_like(self.weights),
        }
        self.scale = torch.tensor(FIRST_SCALE if config.precision == "float16" else 1.0, device=device)
        """The factor by which losses must be multiplied before their gradients are taken."""
        self._steady = torch.zeros((), dtype=torch.int64, device=device)
        self.skipped = torch.zeros((), dtype=torch.int64, device=device)
        """Number of skipped updates."""
        self.skipped_in_row = torch.zeros((), dtype=torch.int64, device=device)

    def clear(self) -> None:
        """Set the gradient to zero."""
        self.gradient.zero_()

    def learning_rate(self, update: int) -> float:
        """Return the learning rate of an update.

        After the moments were lost, the rate rises to that of the schedule over another `warmup_updates` updates: with new
        moments, Adam makes its first steps as long as the rate allows.
        """
        rate = learning_rate(self.config, update)
        warmup = self.config.warmup_updates
        return rate * min(1.0, (update - self.moments_since) / max(warmup, 1)) if self.moments_since else rate

    def step(self, update: int, count: Tensor) -> Tensor:
        """Make one update with the gradient of `scale` x a sum over `count` tokens.

        Returns the norm of the gradient per token before clipping; if it is not finite, the weights do not change.
        """
        divisor = count * self.scale
        norm: Tensor = torch.linalg.vector_norm(self.gradient) / divisor
        factor = (self.config.clip_norm / (norm + 1e-6)).clamp(max=1.0) if self.config.clip_norm else torch.ones_like(norm)
        self.gradient.mul_(factor / divisor)
        finite = torch.isfinite(norm)
        self._adam.param_groups[0]["lr"] = self.learning_rate(update)
        self._adam.found_inf = (~finite).float()  # type: ignore[attr-defined]  # the fused kernel leaves everything as it is
        self._adam.step()
        self._note(finite)
        return norm

    def check(self, update: int, loss: Tensor) -> None:
        """Raise NotFiniteError if the training has diverged: the weights are not finite, or the last 5 updates (20 with float16)
        were skipped. `loss` is that of the update. This method waits for a GPU.
        """
        if not_finite({"weights": self.weights}):
            raise NotFiniteError(
                f"update {update}: weights: expected finite values, got inf or NaN after a step with learning rate "
                f"{self.learning_rate(update):g}; {REMEDY}"
            )
        limit = MAX_SKIPPED_FLOAT16 if self.config.precision == "float16" else MAX_SKIPPED
        if int(self.skipped_in_row) >= limit:
            name = "gradient_norm" if bool(torch.isfinite(loss)) else "loss"
            raise NotFiniteError(
                f"update {update}: {name}: expected a finite value, got inf or NaN in each of the last {int(self.skipped_in_row)} "
                f"updates; {REMEDY}"
            )

    def _note(self, finite: Tensor) -> None:
        self.skipped += ~finite
        self.skipped_in_row += 1
        self.skipped_in_row *= ~finite
        if self.config.precision == "float16":
            self._steady += 1
            self._steady *= finite
            doubled = torch.where(self._steady % STEADY_UPDATES == 0, self.scale * 2.0, self.scale)
            self.scale.copy_(torch.where(finite, doubled, (self.scale * 0.5).clamp(min=1.0)))

    def state(self) -> dict[str, Tensor]:
        """Return the state that a resumed training needs in addition to the weights; the tensors are not copied."""
        own = {"scale": self.scale, "steady": self._steady, "skipped": self.skipped, "skipped_in_row": self.skipped_in_row}
        return {**own, **self._adam.state[self._flat]}

    def load(self, state: dict[str, Tensor]) -> None:
        """Continue from a state. Raises KeyError or RuntimeError for the state of another network."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
