"""Cross-entropy over a large vocabulary, computed without holding all logits."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kernels import token_gradients_, token_scores_
from models.common.layers.logits import logits_parts, with_logits


class Terms(NamedTuple):
    """Weights of the terms other than -log p(y)."""

    smoothing: float
    penalty: float


class CrossEntropy(NamedTuple):
    """Sums over N tokens, float32; only `total` carries gradient."""

    total: Tensor
    """The sum of (1 - eps) (-log p(y)) + eps mean_v (-log p(v)) + c (log Z)^2, in nats."""
    nll: Tensor
    """The sum of -log p(y), in nats."""
    correct: Tensor
    """The number of labels that the network ranks first."""
    log_z_squared: Tensor
    """The sum of (log Z)^2."""


def cross_entropy(
    states: Tensor, weight: Tensor, labels: Tensor, smoothing: float, penalty: float = 0.0, bias: Tensor | None = None
) -> CrossEntropy:
    """Return the label-smoothed cross-entropy of softmax(states weight^T + bias) for states [N,D], weight [V,D], labels [N] and a
    bias [V] without gradient (None: 0).

    Every class, including the label, receives smoothing / V; classes with a bias of minus infinity receive nothing, and V does not
    count them. `penalty` c applies to the normaliser Z = sum_v exp(logit of v), which
    it draws to 1 (self-normalisation, Devlin et al. 2014). The gradient is computed along with the loss, some rows of the [N,V]
    logits at a time: softmax and sums in float32, products in autocast's type.
    """
    terms = Terms(smoothing, penalty)
    return CrossEntropy(*_CrossEntropy.apply(states, weight, bias, labels, terms, torch.is_grad_enabled()))  # type: ignore[no-untyped-call]


def token_log_probs(states: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return log p(y) [N] of softmax(states weight^T + bias), float32, for states [N,D], weight [V,D], labels [N] and a bias [V]
    (None: 0)."""
    found = torch.empty(len(labels), device=states.device)
    for part in logits_parts(len(states), len(weight), states.device):
        logits = states[part] @ weight.t() if bias is None else torch.addmm(bias.to(states.dtype), states[part], weight.t())
        logits = logits.float()
        found[part] = logits.gather(1, labels[part, None])[:, 0] - logits.logsumexp(1)
    return found


def product_type(states: Tensor) -> torch.dtype:
    device = states.device.type
    if not torch.is_autocast_enabled(device):
        return states.dtype
    # float16 would lose small gradients here: the scaling of the loss comes only afterwards.
    return torch.bfloat16 if torch.get_autocast_dtype(device) == torch.bfloat16 else torch.float32


def is_native(x: Tensor) -> bool:
    """Return whether there is a kernel for logits of this tensor's device and type."""
    return x.device.type in ("cpu", "cuda") and x.dtype in (torch.float32, torch.bfloat16)


def _natively(logits: Tensor, labels: Tensor, terms: Terms, with_gradient: bool) -> tuple[Tensor, Tensor]:
    """Return the sums of -log p(y), of tokens ranked first and of (log Z)^2, and the logits, which become the gradient if
    requested."""
    count = len(logits)
    device = logits.device
    rows = torch.arange(count, device=device)
    label = labels[:, None]
    scores, best = torch.empty((count, 1, 1), device=device), torch.empty((count, 1), dtype=torch.int64, device=device)
    normalisers = token_scores_(logits, label, rows, scores, best)
    first = logits.gather(1, label) >= logits.gather(1, best)
    sums = torch.stack((-scores.sum(), first.sum().float(), normalisers.square().sum()))
    if with_gradient:
        token_gradients_(logits, label, rows, torch.full_like(scores, -1.0), normalisers, **terms._asdict())
    return sums, logits


def _part(
    logits: Tensor, labels: Tensor, terms: Terms, with_gradient: bool, written: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute `_natively` in torch; `written` [V] is True for the classes that share in the smoothing (None: all)."""
    dtype = logits.dtype
    label = labels[:, None]
    logits = logits.float()
    highest = logits.amax(1, keepdim=True)
    chosen = logits.gather(1, label)
    weights = logits.sub_(highest).exp_()
    normaliser = weights.sum(1, keepdim=True)
    log_z = normaliser.log() + highest
    sums = torch.stack(((log_z - chosen).sum(), (chosen >= highest).sum().float(), log_z.square().sum()))
    if not with_gradient:
        return sums, logits
    gradient = weights.div_(normaliser)
    if terms.penalty:
        gradient *= 1.0 + 2.0 * terms.penalty * log_z
    gradient -= terms.smoothing / logits.size(1) if written is None else written * (terms.smoothing / written.sum())
    gradient.scatter_add_(1, label, torch.full_like(chosen, terms.smoothing - 1.0))
    return sums, gradient.to(dtype)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, terms: Terms, with_gradient: bool
    ) -> tuple[Tensor, ...]:
        dtype = product_type(states)
        x, w = states.to(dtype), weight.to(dtype)
        sums = torch.zeros(3, device=states.device)
        state_gradient = torch.empty_like(x) if with_gradient else None
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32) if with_gradient and ctx.needs_input_grad[1] else None
        product = torch.empty_like(w)
        written = None if bias is None else torch.isfinite(bias)
        parted = _natively if is_native(x) and bias is None else partial(_part, written=written)
        for part, logits in with_logits(x, w, None if bias is None else bias.to(dtype)):
            found, reduced = parted(logits, labels[part], terms, with_gradient)
            sums += found
            if state_gradient is not None:
                torch.mm(reduced, w, out=state_gradient[part])
            if weight_gradient is not None:
                weight_gradient += torch.mm(reduced.t(), x[part], out=product)
        nll, correct, squared = sums.unbind()
        if with_gradient:
            ctx.save_for_backward(state_gradient, weight_gradient)
            ctx.types = states.dtype, weight.dtype
        # mean_v(-log p(v)) exceeds -log p(y) by the logit of y less the mean logit.
        used = w if written is None else w[written]
        spread = (x.float() * (w.index_select(0, labels).float() - used.float().mean(0))).sum()
        if bias is not None and written is not None:
            spread = spread + (bias[labels] - bias[written].mean()).sum()
        total = nll + terms.smoothing * spread + terms.penalty * squared
        ctx.mark_non_differentiable(nll, correct, squared)
        return total, nll, correct, squared

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        state_gradient, weight_gradient = ctx.saved_tensors
        of_weight = None if weight_gradient is None else (weight_gradient * gradients[0]).to(ctx.types[1])
        return (state_gradient * gradients[0]).to(ctx.types[0]), of_weight, None, None, None, None
