"""Translation with a Transformer (Vaswani et al. 2017) that writes several tokens a step, all of it native, on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from kernels.beam import BeamOptions, Outcome
from kernels.joint_step import SLOT_BY_SLOT, JointStep
from kernels.lexicon import Lexicon
from kernels.lexicon import native_arguments as arguments_of

if TYPE_CHECKING:
    from fewstep_native import F32, I64

__all__ = ["Transformer", "TransformerShape", "WritingRules"]


@dataclass(frozen=True, kw_only=True)
class TransformerShape:
    """What the arrays of a network do not say."""

    encoder_layers: int
    decoder_layers: int
    width: int
    """Of the residual stream (D); a multiple of `heads`."""
    feed_forward: int
    """Units between the two maps of a feed-forward block, behind its activation (F)."""
    heads: int
    norm: Literal["pre", "post"]
    """x + block(norm(x)), with one more norm after the last layer of each stack, or norm(x + block(x))."""
    activation: Literal["relu", "gelu"] = "relu"


@dataclass(frozen=True, kw_only=True)
class WritingRules:
    """What a slot sees and what may stand in it."""

    mask: Literal["block", "causal", "same-direction"] = "block"
    """Slots that a slot sees: all of its own and of earlier steps, those up to itself, or those of its direction."""
    directions: int = 1
    """Slots that are equal modulo this are of one direction (same-direction only)."""
    banned: tuple[int, ...] = (0,)
    """Ids that are never written; the one for padding is among them."""
    min_tokens: int = 1
    """EOS is banned in slots before this one."""
    shortlist_words: int = 0
    """Words are chosen, and normalised, among so many common words of the network's lexicon; 0: among all."""
    shortlist_links: int = 0
    """And, where words are listed at all, among so many that each word of the source is linked to."""


Search = Callable[["I64", "I64", "I64", int], list[Outcome]]
"""Sources [B,S], lengths [B], limits [B] and threads to what was found for each source."""

Precision = Literal["fp32", "bf16", "int8"]


def native_precision(precision: str) -> str:
    """Return the name that the extension gives to a precision."""
    return {"fp32": "float32", "bf16": "bfloat16"}.get(precision, precision)


class Transformer:
    """A network whose weights were copied and laid out once; it may be used from several threads at a time.

    A sentence's outcome is the same to the last bit alone, in any batch, and with any number of threads.
    """

    def __init__(
        self, arrays: Mapping[str, F32], *, shape: TransformerShape, precision: Precision = "fp32", lexicon: Lexicon | None = None
    ) -> None:
        """`arrays`, float32, matrices [outputs,inputs]. With D, F and the numbers of layers of `shape`:

            target_embedding [V,D]      words of outputs, which they are also ranked by
            source_embedding [U,D]      words of sources; without it they are those of `target_embedding`
            source_positions [P,D]      codes of the places in a source
            slot_codes [T,D]            what slots of the decoder are told apart by (the first step's with the start vectors)

        words are scaled by sqrt(D), codes are not; and, each with its `.weight` and `.bias` [outputs],

            {encoder,decoder}.layers.I.attention.projection                 [3D,D]  queries, keys and values
            {encoder,decoder}.layers.I.attention.output                     [D,D]
            {encoder,decoder}.layers.I.feed_forward.widen                   [F,D]
            {encoder,decoder}.layers.I.feed_forward.narrow                  [D,F]
            {encoder,decoder}.layers.I.{attention,feed_forward}_residual.norm   [D]
            decoder.layers.I.cross_attention.queries                        [D,D]
            decoder.layers.I.cross_attention.projection                     [2D,D]  keys and values
            decoder.layers.I.cross_attention.output                         [D,D]
            decoder.layers.I.cross_attention_residual.norm                  [D]
            {encoder,decoder}.norm                                          [D]     with norm "pre"

        Other arrays are not looked at. `precision` is that of products with weights, in layers and in int8 where words are ranked,
        too; attention stays in fp32. `lexicon`: what lists of words are made of, over its words. Raises ValueError for another
        precision or other words, and that names all arrays that are missing or misshapen.
        """
        from kernels.native import fewstep_native

        self.shape = shape
        wanted = expected_arrays(shape, "source_embedding" in arrays)
        self._native = fewstep_native.make_transformer(
            **native_arguments(arrays, wanted, shape), **arguments_of(lexicon), precision=native_precision(precision)
        )

    def greedy(
        self,
        sources: I64,
        lengths: I64,
        limits: I64,
        *,
        options: BeamOptions,
        rules: WritingRules,
        threads: int = 1,
        others: Sequence[Transformer] = (),
        joint: JointStep = SLOT_BY_SLOT,
    ) -> list[Outcome]:
        """The likeliest word in each slot: one hypothesis for each of `sources` [B,S] int64, of which the first `lengths` [B] ids
        count; at most `limits` [B] tokens with EOS.

        A hypothesis is charged for the slots within its limit, and with the first EOS as its end only for those up to it. Of
        `options`, what concerns a beam is not read. The margin is the smallest gap between the best and the second word of a
        charged slot; where `joint` says that steps are chosen otherwise, there is none (infinite). With `others`, networks over the
        same words with the same lexicon, the probability of a word is the mean of all networks'. Raises ValueError for shapes that
        do not fit, unknown ids, a model over other words, a list of words without a lexicon, and for lengths and limits that there
        are no codes for (a limit rounded up to whole steps needs a code for each slot).
        """
        return self.greedy_call(options=options, rules=rules, others=others, joint=joint)(sources, lengths, limits, threads)

    def greedy_call(
        self,
        *,
        options: BeamOptions,
        rules: WritingRules,
        others: Sequence[Transformer] = (),
        joint: JointStep = SLOT_BY_SLOT,
    ) -> Search:
        """`greedy` of sources, lengths, limits and threads, ready to be called again and again: what is said by name takes a while
        to hand over."""
        search = partial(
            self._native.greedy,
            **_common(options, rules),
            others=[other._native for other in others],
            **joint.native(),
        )
        return partial(_outcomes, search)

    def beam_search(
        self,
        sources: I64,
        lengths: I64,
        limits: I64,
        *,
        options: BeamOptions,
        rules: WritingRules,
        threads: int = 1,
        others: Sequence[Transformer] = (),
    ) -> list[Outcome]:
        """The search of `kernels.Beam`, at most `options.n_best` hypotheses a source; arguments and errors as in `greedy`."""
        return self.beam_call(options=options, rules=rules, others=others)(sources, lengths, limits, threads)

    def beam_call(self, *, options: BeamOptions, rules: WritingRules, others: Sequence[Transformer] = ()) -> Search:
        """`beam_search`, as `greedy_call`."""
        search = partial(
            self._native.beam_search,
            **_common(options, rules),
            beams=options.beam_size,
            selection="exact" if options.step_size == 1 else options.selection,
            n_best=options.n_best,
            num_candidates=options.words,
            separate_eos=options.eos_apart,
            beam_threshold=options.prune,
            others=[other._native for other in others],
            **options.neighbours.native(),
        )
        return partial(_outcomes, search)


def _outcomes(search: Callable[..., Any], sources: I64, lengths: I64, limits: I64, threads: int) -> list[Outcome]:
    return [Outcome(*outcome) for outcome in search(sources, lengths, limits, threads=threads)]


def _common(options: BeamOptions, rules: WritingRules) -> dict[str, Any]:
    return {
        "step_size": options.step_size,
        "per_direction": options.per_direction,
        "eos": options.eos,
        "pad": options.pad,
        "alpha": options.length_penalty,
        "gnmt": options.gnmt,
        "mask": rules.mask,
        "directions": rules.directions,
        "banned": rules.banned,
        "min_tokens": rules.min_tokens,
        "shortlist_tokens": rules.shortlist_words,
        "shortlist_links": rules.shortlist_links,
    }


def native_arguments(arrays: Mapping[str, F32], wanted: Mapping[str, tuple[int, ...]], shape: TransformerShape) -> dict[str, Any]:
    """The arrays of shapes `wanted`, and the sizes. Raises ValueError that names all arrays that are missing or misshapen."""
    import numpy as np

    if problems := _misfits(wanted, arrays, shape):
        raise ValueError(f"arrays: {'; '.join(problems)}")
    rows = {name: int(arrays[name].shape[0]) for name in ("target_embedding", "source_positions", "slot_codes")}
    return {
        "arrays": {name: np.ascontiguousarray(arrays[name]) for name in wanted},
        "encoder_layers": shape.encoder_layers,
        "decoder_layers": shape.decoder_layers,
        "width": shape.width,
        "feed_forward": shape.feed_forward,
        "heads": shape.heads,
        "pre_norm": shape.norm == "pre",
        "source_vocabulary": int(arrays.get("source_embedding", arrays["target_embedding"]).shape[0]),
        "target_vocabulary": rows["target_embedding"],
        "source_positions": rows["source_positions"],
        "slots": rows["slot_codes"],
        "gelu": shape.activation == "gelu",
    }


ANY = -1
"""Stands for a number of rows that the array itself says."""


def expected_arrays(shape: TransformerShape, own_source: bool) -> dict[str, tuple[int, ...]]:
    """Shapes by name."""
    width, inner = shape.width, shape.feed_forward
    maps = {"attention.projection": (3 * width, width), "attention.output": (width, width)}
    maps |= {"feed_forward.widen": (inner, width), "feed_forward.narrow": (width, inner)}
    cross = {"queries": (width, width), "projection": (2 * width, width), "output": (width, width)}
    stacks = {
        "encoder": (shape.encoder_layers, maps, ("attention", "feed_forward")),
        "decoder": (
            shape.decoder_layers,
            maps | {f"cross_attention.{name}": size for name, size in cross.items()},
            ("attention", "cross_attention", "feed_forward"),
        ),
    }
    tables = ("target_embedding", "source_positions", "slot_codes", *(("source_embedding",) if own_source else ()))
    found: dict[str, tuple[int, ...]] = dict.fromkeys(tables, (ANY, width))
    for stack, (layers, matrices, blocks) in stacks.items():
        for layer in range(layers):
            start = f"{stack}.layers.{layer}."
            for name, (outputs, inputs) in matrices.items():
                found |= {f"{start}{name}.weight": (outputs, inputs), f"{start}{name}.bias": (outputs,)}
            for block in blocks:
                found |= {f"{start}{block}_residual.norm.{part}": (width,) for part in ("weight", "bias")}
        if shape.norm == "pre":
            found |= {f"{stack}.norm.{part}": (width,) for part in ("weight", "bias")}
    return found


def _misfits(wanted: Mapping[str, tuple[int, ...]], arrays: Mapping[str, F32], shape: TransformerShape) -> list[str]:
    sizes = (shape.width, shape.feed_forward, shape.heads)
    if min(sizes) < 1 or shape.width % shape.heads or min(shape.encoder_layers, shape.decoder_layers) < 0:
        return [f"shape: expected positive sizes and a width that is a multiple of heads, got {shape}"]
    problems = [f"missing {', '.join(missing)}"] if (missing := sorted(wanted.keys() - arrays.keys())) else []
    for name in sorted(wanted.keys() & arrays.keys()):
        array, size = arrays[name], wanted[name]
        if array.dtype.name != "float32":
            problems.append(f"{name}: expected float32, got {array.dtype}")
        fits = len(array.shape) == len(size) and all(want in (ANY, have) for want, have in zip(size, array.shape, strict=True))
        if not fits or array.shape[0] < 1:
            expected = ",".join("rows" if want == ANY else str(want) for want in size)
            problems.append(f"{name}: expected [{expected}], got {list(array.shape)}")
    return problems
