"""Translation with a Directed Acyclic Transformer (Huang et al. 2022): one pass writes a graph of vertices, on a CPU, natively."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kernels.lexicon import Lexicon
from kernels.lexicon import native_arguments as arguments_of
from kernels.transformer import ANY, Precision, TransformerShape, expected_arrays, native_arguments, native_precision

if TYPE_CHECKING:
    from fewstep_native import F32, I64


__all__ = ["GraphNetwork", "GraphPath", "GraphRules", "GraphScores"]


@dataclass(frozen=True, kw_only=True)
class GraphRules:
    """What vertices read and may write."""

    bos: int = 1
    """Read, and as the only word written, by the first vertex,"""
    eos: int = 2
    """the last one,"""
    mask: int = 4
    """and read by those between."""
    banned: tuple[int, ...] = (0, 1, 2, 4)
    """Ids that those between never write."""
    shortlist_words: int = 0
    """Words are chosen, and normalised, among so many common words of the network's lexicon; 0: among all."""
    shortlist_links: int = 0
    """And, where words are listed at all, among so many that each word of the source is linked to."""


class GraphPath(NamedTuple):
    """The output of one sentence."""

    ids: list[int]
    """Words of the vertices between the ends."""
    score: float
    """The sum of the path's transitions and words, those of the ends too."""


class GraphScores(NamedTuple):
    """What searches need of a batch of graphs, L the vertices of the largest; minus infinity where nothing is possible."""

    transitions: F32
    """[B,L,L] log-probability that the vertex of the column follows that of the row"""
    words: F32
    """[B,L,W] log-probabilities of the best words, best first"""
    ids: I64
    """[B,L,W]"""
    lengths: I64
    """[B] vertices"""


class GraphNetwork:
    """A network whose weights were copied and laid out once; it may be used from several threads at a time.

    A sentence's graph is the same to the last bit alone, in any batch, and with any number of threads. Sources [B,S] int64 count up
    to their `lengths` [B]. `graph_lengths` are vertices, 2 to as many as have codes: one for each source, or, with the array
    `lengths`, one for each length of the target that it ranks. Raises ValueError for shapes, ids and lengths that do not fit.
    """

    def __init__(
        self, arrays: Mapping[str, F32], *, shape: TransformerShape, precision: Precision = "fp32", lexicon: Lexicon | None = None
    ) -> None:
        """`arrays` as for `kernels.Transformer`, `slot_codes` being those of the vertices, and with H heads

            links [2D+H,D]          what the states of vertices give to the queries, keys and gates of transitions
            link_codes [T,2D+H]     what their places give to them, biases included
            lengths [C,D]           optional: times the mean state of a source, logits of its target's length

        `precision` bf16 rounds what the layers multiply and sums in fp32; transitions and the ranking of words stay in fp32. int8
        multiplies all that weights are multiplied with in 8 bits, what ranks words too, and sums in integers; attention and what
        transitions compare stay in fp32. `lexicon`: what lists of words are made of, over its words. Raises ValueError for another
        precision or other words, and that names all arrays that are missing or misshapen.
        """
        from kernels.native import fewstep_native

        wanted = expected_arrays(shape, "source_embedding" in arrays)
        links = 2 * shape.width + shape.heads
        wanted |= {"links": (links, shape.width), "link_codes": (ANY, links)}
        if "lengths" in arrays:
            wanted |= {"lengths": (ANY, shape.width)}
        arguments = native_arguments(arrays, wanted, shape)
        if len(arrays["link_codes"]) != arguments["slots"]:
            raise ValueError(f"link_codes: expected {arguments['slots']} rows as in slot_codes, got {len(arrays['link_codes'])}")
        classes = len(arrays["lengths"]) if "lengths" in arrays else 0
        self._native = fewstep_native.make_dag_network(
            **arguments, classes=classes, **arguments_of(lexicon), precision=native_precision(precision)
        )

    def follow(
        self, sources: I64, lengths: I64, graph_lengths: I64, *, word_weight: float, rules: GraphRules, threads: int = 1
    ) -> list[GraphPath]:
        """From vertex to vertex by the best sum of the transition and `word_weight` times the best word's score there (lookahead),
        or by the best transition alone (0: greedy)."""
        found = self._native.follow(sources, lengths, graph_lengths, token_weight=word_weight, **_rules(rules), threads=threads)
        return [GraphPath(*one) for one in found]

    def scores(
        self, sources: I64, lengths: I64, graph_lengths: I64, *, words: int, rules: GraphRules, threads: int = 1
    ) -> GraphScores:
        """The graphs, with the best `words` of each vertex."""
        vertices, transitions, scores, ids = self._native.scores(
            sources, lengths, graph_lengths, tokens=words, **_rules(rules), threads=threads
        )
        size = int(vertices.max(initial=0))
        cells = len(vertices), size, words
        return GraphScores(transitions.reshape(len(vertices), size, size), scores.reshape(cells), ids.reshape(cells), vertices)


def _rules(rules: GraphRules) -> dict[str, Any]:
    return {
        "banned": rules.banned,
        "bos": rules.bos,
        "eos": rules.eos,
        "mask": rules.mask,
        "shortlist_tokens": rules.shortlist_words,
        "shortlist_links": rules.shortlist_links,
    }
