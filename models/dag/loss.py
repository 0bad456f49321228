"""The objectives of a graph: the likelihood of its target over all paths (Huang et al. 2022, sections 3.2 and 3.3), and fuzzy
alignment (Ma et al. 2023)."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewstep.families.dag.config import DagConfig
from fewstep.families.dag.graph_size import LENGTHS, decoding_factor
from fewstep.vocabulary import BOS
from kernels import dag_best_alignment, dag_log_likelihood, dag_max_log_likelihood
from models.common.glancing import first_pass
from models.common.losses.token_scores import token_scores
from models.dag import glancing
from models.dag.fuzzy_alignment import fuzzy_alignment
from models.dag.glancing import Glance
from models.dag.model import DagModel, Source, empty_vertices, graph_lengths
from models.dag.segments import Segments, segments_of
from models.dag.vertices import SampledVocabulary, sample_vocabulary
from models.family import Loss
from models.training.batch import Batch


class Graphs(NamedTuple):
    """A batch of graphs, with the scores of their targets."""

    tokens: Tensor
    """The log-probability of each target token at each vertex, [B,M,L]."""
    transitions: Tensor
    """The log-probabilities of transitions to the D next vertices, [B,L,D]."""
    best: Tensor | None
    """The token that each vertex ranks first, [B,L]; None when gradients are enabled."""


class Targets(NamedTuple):
    """Targets with BOS and EOS, and the sizes of their graphs."""

    ids: Tensor
    """The token ids, [B,M]."""
    lengths: Tensor
    """The numbers of tokens, [B]."""
    graph_lengths: Tensor
    """The numbers of vertices, [B]."""
    segments: Segments | None = None
    """The segments of the graphs, for targets that are spans."""

    @property
    def written(self) -> Tensor:
        """The numbers of tokens without separators of spans, [B]."""
        return self.lengths if self.segments is None else self.lengths - self.segments.separators.sum(1)


def loss(model: nn.Module, batch: Batch, update: int, label_smoothing: float) -> Loss:
    """Return the sum over sentences of -log P(target | source) / m for m tokens with BOS and EOS, in nats; with `objective: ngram`,
    of minus the agreement F of graph and target (`fuzzy_alignment`), from -1 to 0.

    If the network predicts lengths, `length_loss_weight` times the cross-entropy of m is added. The count is the number of
    sentences, including those without a path, whose likelihood is left out. With `label_smoothing` e, a vertex scores a token by
    (1 - e) log p(y) + e mean_w log p(w). In training with `sampled_tokens`, p is normalised over a sample of the vocabulary.

    Networks with `segments` have targets that are spans, with BOS between two of them, and a graph with a segment for each
    (`models.dag.segments`). Separators are written for certain; neither are they counted nor shown, and no length is predicted.

    The statistics are `accuracy` (the share of the best path's tokens that their vertices rank first), `shown` (the share of tokens
    that are shown), `impossible` (1 without a path) and, with `objective: ngram`, `precision` and `recall` of n-grams,
    `length_ratio` (the expected length over m) and `brevity`, the brevity penalty. No token is shown in evaluation mode.
    """
    network = cast(DagModel, model)
    source = network.read(batch.source, batch.source_lengths)
    target = targets(network.config, batch, training=network.training)
    graphs, glance = _graphs(network, source, target, update, label_smoothing)
    if network.config.objective == "ngram":
        total, statistics = _disagreement(network.config, graphs, target)
    else:
        total, statistics = _negative_log_likelihood(network.config, graphs, glance, target)
    if glance is not None:
        statistics |= {"accuracy": (glance.correct / target.written).sum(), "shown": (glance.shown.sum(1) / target.written).sum()}
    if source.lengths is not None and target.segments is None:
        total = total + network.config.length_loss_weight * F.cross_entropy(
            source.lengths.float(), target.lengths.clamp(max=LENGTHS - 1), reduction="sum"
        )
    return Loss(total, torch.tensor(len(target.ids), device=total.device), statistics)


def _negative_log_likelihood(
    config: DagConfig, graphs: Graphs, glance: Glance | None, target: Targets
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the sum of -log P(target | source) / m, and statistics."""
    tokens = graphs.tokens if glance is None else glancing.pinned(graphs.tokens, glance, config.pinning)
    objective = dag_log_likelihood if config.objective == "sum" else dag_max_log_likelihood
    scores = objective(tokens, graphs.transitions, target.lengths, target.graph_lengths)
    possible = scores.isfinite()
    return -(scores.where(possible, 0.0) / target.written).sum(), {"impossible": (~possible).sum()}


def _disagreement(config: DagConfig, graphs: Graphs, target: Targets) -> tuple[Tensor, dict[str, Tensor]]:
    """Return minus the sum of the agreements of graphs and targets, and statistics. Shown tokens are not pinned: the best path
    only chooses inputs (Ma et al. 2023, section 3.3)."""
    found = fuzzy_alignment(
        graphs.tokens, graphs.transitions, target.ids, target.lengths, target.graph_lengths, order=config.ngram_order
    )
    means = {
        "precision": found.precision,
        "recall": found.recall,
        "length_ratio": found.lengths / target.lengths,
        "brevity": found.brevity,
    }
    statistics = {name: values.detach().sum() for name, values in means.items()}
    return -found.scores.sum(), {**statistics, "impossible": (target.lengths > target.graph_lengths).sum()}


def log_probability(model: DagModel, batch: Batch) -> Tensor:
    """Return log P(target | source) [B] over all paths of the graph that decoding would compute.

    It is minus infinity for a target that is longer than its graph.
    """
    graphs, target, _ = decoded_graphs(model, batch)
    return dag_log_likelihood(graphs.tokens, graphs.transitions, target.lengths, target.graph_lengths)


class DecodedGraphs(NamedTuple):
    """Graphs as decoding computes them."""

    graphs: Graphs
    target: Targets
    states: Tensor
    """The states of the vertices, [B,L,D]."""


def decoded_graphs(model: DagModel, batch: Batch) -> DecodedGraphs:
    """Return the graphs that decoding would compute, and their targets. Their size is predicted if the network predicts lengths."""
    source = model.read(batch.source, batch.source_lengths)
    target = targets(model.config, batch, training=False)
    if source.lengths is not None:
        predicted = graph_lengths(model.config, batch.source_lengths, source.lengths.argmax(1), decoding_factor(model.config))
        target = target._replace(graph_lengths=predicted.clamp(max=model.config.max_vertices))
    vertices = empty_vertices(target.graph_lengths, int(target.graph_lengths.max()))
    states = model.states(vertices, target.graph_lengths, source)
    vocabulary = sample_vocabulary(model.output_table.weight, target.ids, bias=model.logits_bias)
    return DecodedGraphs(_scored(model, states, target, vocabulary), target, states)


def targets(config: DagConfig, batch: Batch, *, training: bool) -> Targets:
    """Return the targets of a batch with BOS. Factors of graphs are drawn at random in training, else `decoding_factor` is used."""
    ids = F.pad(batch.target, (1, 0), value=BOS)
    lengths = batch.target_lengths + 1
    if config.segments:
        segments = segments_of(config, ids, lengths, training=training)
        return Targets(ids, lengths, segments.graph_lengths, segments)
    low, high = config.factors
    factor: Tensor | float = decoding_factor(config)
    if training and low < high:
        factor = low + (high - low) * torch.rand(len(ids), device=ids.device)
    sizes = graph_lengths(config, batch.source_lengths, lengths, factor)
    return Targets(ids, lengths, sizes.clamp(max=config.max_vertices))


def _graphs(model: DagModel, source: Source, target: Targets, update: int, label_smoothing: float) -> tuple[Graphs, Glance | None]:
    """Return the graphs, and the tokens that were shown (None if glancing is off).

    A first pass without gradients, with the same dropout masks as the second one, determines the tokens to show.
    """
    empty = empty_vertices(target.graph_lengths, int(target.graph_lengths.max()))
    if target.segments is not None:
        empty = target.segments.opened(empty)
    noise = torch.rand((len(target.ids), target.ids.size(1) + 1), device=target.ids.device) if model.training else None
    sampled = model.config.sampled_tokens if model.training else None
    vocabulary = sample_vocabulary(model.output_table.weight, target.ids, sampled, label_smoothing, model.logits_bias)
    if noise is None or model.config.glancing == "none":
        return _pass(model, source, target, empty, vocabulary), None
    with first_pass(target.ids.device):
        first = _pass(model, source, target, empty, vocabulary)
        vertices = dag_best_alignment(first.tokens, first.transitions, target.lengths, target.graph_lengths).vertices
        assert first.best is not None
        correct = first.best.gather(1, vertices.clamp(min=0)) == vocabulary.targets
    if target.segments is not None:
        vertices = vertices.masked_fill(target.segments.separators, -1)
    glance = glancing.choose(model.config, update, vertices, correct, target.written, noise)
    return _pass(model, source, target, glancing.reveal(empty, target.ids, glance), vocabulary), glance


def _pass(model: DagModel, source: Source, target: Targets, vertices: Tensor, vocabulary: SampledVocabulary) -> Graphs:
    return _scored(model, model.states(vertices, target.graph_lengths, source, target.segments), target, vocabulary)


def _scored(model: DagModel, states: Tensor, target: Targets, vocabulary: SampledVocabulary) -> Graphs:
    transitions = model.transitions(states, target.graph_lengths, target.segments)
    with_best = not torch.is_grad_enabled()
    scores = token_scores(
        states,
        vocabulary.weight,
        vocabulary.targets,
        target.graph_lengths,
        bias=vocabulary.bias,
        smoothing=vocabulary.smoothing,
        with_best=with_best,
    )
    tokens = scores.log_probs if target.segments is None else target.segments.pinned(scores.log_probs)
    return Graphs(tokens, transitions, scores.best if with_best else None)
