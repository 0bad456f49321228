"""The weights of a network as arrays: expected names and shapes, checks, and the form that native constructors take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from fewstep_native import F32

Precision = Literal["float32", "bfloat16", "int8"]

ACTIVATIONS = ("relu", "gelu", "swish")
"""Activations in the order of their numbers in native code."""

ANY_ROWS = -1
"""A placeholder in an expected shape for the number of rows of the given array."""


@dataclass(frozen=True, kw_only=True)
class TransformerShape:
    """Sizes and options of a network that its arrays do not determine."""

    encoder_layers: int
    decoder_layers: int
    width: int
    """Width of the residual stream (D), a multiple of `heads`."""
    feed_forward: int
    """Inner units of a feed-forward block (F)."""
    heads: int
    norm: Literal["pre", "post"]
    """"pre": x + block(norm(x)), with one more norm after the last layer of each stack; "post": norm(x + block(x))."""
    activation: Literal["relu", "gelu", "swish"] = "relu"
    scale_embeddings: bool = True
    """Whether embeddings are multiplied by sqrt(D)."""
    logits_bias: bool = False
    """Whether there is an array `logits_bias`."""


def native_arguments(arrays: Mapping[str, F32], wanted: Mapping[str, tuple[int, ...]], shape: TransformerShape) -> dict[str, Any]:
    """Return the arrays named in `wanted`, contiguous, and the sizes by name, as keyword arguments of native constructors.

    Raises ValueError that names all arrays that are missing or have another shape or type.
    """
    import numpy as np

    if problems := _problems(wanted, arrays, shape):
        raise ValueError(f"arrays: {'; '.join(problems)}")
    rows = {name: int(arrays[name].shape[0]) for name in ("target_embedding", "source_positions", "slot_codes")}
    if shape.logits_bias and len(arrays["logits_bias"]) != rows["target_embedding"]:
        raise ValueError(f"arrays: logits_bias: expected [{rows['target_embedding']}], got {list(arrays['logits_bias'].shape)}")
    sizes = {
        "encoder_layers": shape.encoder_layers,
        "decoder_layers": shape.decoder_layers,
        "width": shape.width,
        "feed_forward": shape.feed_forward,
        "heads": shape.heads,
        "pre_norm": int(shape.norm == "pre"),
        "source_vocabulary": int(arrays.get("source_embedding", arrays["target_embedding"]).shape[0]),
        "target_vocabulary": rows["target_embedding"],
        "source_positions": rows["source_positions"],
        "slots": rows["slot_codes"],
        "activation": ACTIVATIONS.index(shape.activation),
        "scale_embeddings": int(shape.scale_embeddings),
    }
    return {"arrays": {name: np.ascontiguousarray(arrays[name]) for name in wanted}, "shape": sizes}


def expected_arrays(shape: TransformerShape, own_source: bool) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array by name; `own_source` if sources have an embedding of their own."""
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
    expected: dict[str, tuple[int, ...]] = dict.fromkeys(tables, (ANY_ROWS, width))
    if shape.logits_bias:
        expected["logits_bias"] = (ANY_ROWS,)
    for stack, (layers, matrices, blocks) in stacks.items():
        for layer in range(layers):
            start = f"{stack}.layers.{layer}."
            for name, (outputs, inputs) in matrices.items():
                expected |= {f"{start}{name}.weight": (outputs, inputs), f"{start}{name}.bias": (outputs,)}
            for block in blocks:
                expected |= {f"{start}{block}_residual.norm.{part}": (width,) for part in ("weight", "bias")}
        if shape.norm == "pre":
            expected |= {f"{stack}.norm.{part}": (width,) for part in ("weight", "bias")}
    return expected


def _problems(wanted: Mapping[str, tuple[int, ...]], arrays: Mapping[str, F32], shape: TransformerShape) -> list[str]:
    sizes = (shape.width, shape.feed_forward, shape.heads)
    if min(sizes) < 1 or shape.width % shape.heads or min(shape.encoder_layers, shape.decoder_layers) < 0:
        return [f"shape: expected positive sizes and a width that is a multiple of heads, got {shape}"]
    problems = [f"missing {', '.join(missing)}"] if (missing := sorted(wanted.keys() - arrays.keys())) else []
    for name in sorted(wanted.keys() & arrays.keys()):
        array, size = arrays[name], wanted[name]
        if array.dtype.name != "float32":
            problems.append(f"{name}: expected float32, got {array.dtype}")
        fits = len(array.shape) == len(size) and all(want in (ANY_ROWS, have) for want, have in zip(size, array.shape, strict=True))
        if not fits or array.shape[0] < 1:
            expected = ",".join("rows" if want == ANY_ROWS else str(want) for want in size)
            problems.append(f"{name}: expected [{expected}], got {list(array.shape)}")
    return problems
