"""The Directed Acyclic Transformer (Huang et al. 2022), native, on a CPU: one pass writes a graph of vertices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fewstep.native import fewstep_native
from fewstep.networks.arrays import (
    ANY_ROWS,
    Precision,
    TransformerShape,
    expected_arrays,
    native_arguments,
)
from fewstep.shortlist import Lexicon
from fewstep.shortlist import native_arguments as lexicon_arguments

if TYPE_CHECKING:
    from fewstep_native import F32, I64

VERTEX_KINDS = 3
"""Kinds of vertices that differ in their inputs: the first one, empty ones, and the last one."""


@dataclass(frozen=True, kw_only=True)
class DagRules:
    """The input tokens of vertices and the tokens that they may emit."""

    bos: int = 1
    """Input of the first vertex and the only token that it emits."""
    eos: int = 2
    """Input of the last vertex and the only token that it emits."""
    mask: int = 4
    """Input of all other vertices."""
    banned: tuple[int, ...] = (0, 1, 2, 4)
    """Ids that all other vertices never emit."""
    shortlist_tokens: int = 0
    """Choose, and normalise, among this many frequent tokens of the network's lexicon; 0: among all tokens."""
    shortlist_links: int = 0
    """With a shortlist, also among this many translations of each source token."""
    length_rank: int = 0
    """The rank of the target length that determines the graph, if the network predicts lengths; 0: the most probable one."""


class DagPath(NamedTuple):
    """The output of one sentence."""

    ids: list[int]
    """Tokens of the vertices between the ends."""
    score: float
    """Sum of the log-probabilities of the path's transitions and tokens, those of the ends included."""


class DagScores(NamedTuple):
    """The scores of a batch of graphs with up to L vertices, for searches; impossible entries are minus infinity."""

    transitions: F32
    """[B,L,D] log-probabilities that vertex i + 1 + d follows vertex i, for the D next vertices."""
    log_probs: F32
    """[B,L,W] log-probabilities of the best tokens of each vertex, best first."""
    ids: I64
    """[B,L,W] the ids of these tokens."""
    lengths: I64
    """[B] the number of vertices of each graph."""


class DagNetwork:
    """A network whose weights were copied and packed once; several threads may use it at the same time.

    The graph of a sentence is bit-identical alone, in any batch, and with any number of threads. Sources [B,S] int64 are padded to
    the right of their `lengths` [B]. `graph_lengths` are numbers of vertices, from 2 to the number of position codes: one for each
    source, or, if there is an array `lengths`, one for each target length that it ranks. Raises ValueError for shapes, ids and
    lengths that do not fit.
    """

    def __init__(
        self,
        arrays: Mapping[str, F32],
        *,
        shape: TransformerShape,
        precision: Precision = "float32",
        lexicon: Lexicon | None = None,
        max_transition_length: int | None = None,
    ) -> None:
        """Build a network from `arrays` as for `fewstep.Transformer`, where `slot_codes` are the position codes of vertices. With H
        heads there are in addition

            links [2D+H,D]          projection of vertex states to the queries, keys and gates of transitions
            link_codes [T,2D+H]     contribution of the vertex positions to them, biases included
            lengths [C,D]           optional: times the mean source state, logits of the target length
            vertex_inputs [3,D]     optional: inputs of the first, of empty, and of the last vertices, in place of the embeddings of
                                    BOS, mask and EOS

        `precision` bfloat16 rounds the operands of layer products, which are summed in float32; transitions and logits stay in
        float32. int8 multiplies all products with weights, the logits too, in 8 bits and sums them in integers; attention and the
        comparison of transition queries and keys stay in float32. `lexicon` provides shortlists of target tokens.
        `max_transition_length` is the number of next vertices that may follow a vertex; None: all later ones. Raises ValueError
        for an unknown precision, for a lexicon of another vocabulary, and for arrays that are missing or have another shape, all of
        which the message names.
        """
        wanted = expected_arrays(shape, "source_embedding" in arrays)
        links = 2 * shape.width + shape.heads
        wanted |= {"links": (links, shape.width), "link_codes": (ANY_ROWS, links)}
        if "lengths" in arrays:
            wanted |= {"lengths": (ANY_ROWS, shape.width)}
        if "vertex_inputs" in arrays:
            wanted |= {"vertex_inputs": (VERTEX_KINDS, shape.width)}
        arguments = native_arguments(arrays, wanted, shape)
        if len(arrays["link_codes"]) != (slots := arguments["shape"]["slots"]):
            raise ValueError(f"link_codes: expected {slots} rows as in slot_codes, got {len(arrays['link_codes'])}")
        arguments |= lexicon_arguments(lexicon)
        classes = len(arrays["lengths"]) if "lengths" in arrays else 0
        self._native = fewstep_native.make_dag_network(
            **arguments, classes=classes, precision=precision, max_transition_length=max_transition_length or 0
        )

    def follow(
        self, sources: I64, lengths: I64, graph_lengths: I64, *, token_weight: float, rules: DagRules, threads: int = 1
    ) -> list[DagPath]:
        """Follow from each vertex the transition with the best sum of its own score and `token_weight` times the score of the best
        token there (lookahead), or with the best own score (`token_weight` 0: greedy)."""
        paths = self._native.follow(
            sources, lengths, graph_lengths, token_weight=token_weight, **_arguments(rules), threads=threads
        )
        return [DagPath(*path) for path in paths]

    def scores(
        self, sources: I64, lengths: I64, graph_lengths: I64, *, tokens: int, rules: DagRules, threads: int = 1
    ) -> DagScores:
        """Return the graphs with the best `tokens` tokens of each vertex."""
        vertices, transitions, log_probs, ids = self._native.scores(
            sources, lengths, graph_lengths, tokens=tokens, **_arguments(rules), threads=threads
        )
        size = int(vertices.max(initial=0))
        cells = (len(vertices), size, tokens)
        graphs = (len(vertices), size, transitions.size // max(1, len(vertices) * size))
        return DagScores(transitions.reshape(graphs), log_probs.reshape(cells), ids.reshape(cells), vertices)


def _arguments(rules: DagRules) -> dict[str, Any]:
    return {
        "banned": rules.banned,
        "bos": rules.bos,
        "eos": rules.eos,
        "mask": rules.mask,
        "shortlist_tokens": rules.shortlist_tokens,
        "shortlist_links": rules.shortlist_links,
        "length_rank": rules.length_rank,
    }
