"""Options of fairseq's Transformer, and of networks that are built on it, as the config of a network of fewstep."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from fewstep.config.network import NetworkConfig
from fewstep.config.values import value_problems
from fewstep.families.stepwise.config import StepwiseConfig
from models.imports.files import ForeignModelError, shown

SIZES = ("encoder_layers", "decoder_layers", "embed_dim", "ffn_embed_dim", "attention_heads")
BASE = dict(zip(SIZES, (6, 6, 512, 2048, 8), strict=True))
BIG = BASE | {"embed_dim": 1024, "ffn_embed_dim": 4096, "attention_heads": 16}
PRE_NORM = {"encoder_normalize_before": True, "decoder_normalize_before": True}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "transformer": BASE,
    "transformer_tiny": dict(zip(SIZES, (2, 2, 64, 64, 2), strict=True)),
    "transformer_iwslt_de_en": BASE | {"ffn_embed_dim": 1024, "attention_heads": 4},
    "transformer_wmt_en_de": BASE,
    "transformer_vaswani_wmt_en_de_big": BIG,
    "transformer_vaswani_wmt_en_fr_big": BIG,
    "transformer_wmt_en_de_big": BIG,
    "transformer_wmt_en_de_big_t2t": BIG | PRE_NORM,
}
"""Values of options that a checkpoint does not state, by architecture; those of `SIZES` hold for both sides."""
TRANSFORMER, DAG, BLOCK = "transformer", "glat_decomposed_link", "block"
"""Beginnings of the architectures of fairseq's Transformer, of DA-Transformer, and of SpecDec's drafter."""
LIGHTSEQ = "ls_"
"""Beginning of architectures whose weights are stored as LightSeq's."""
NOT_LISTED = ("transformer_lm", "transformer_align", "transformer_from_pretrained")
"""Beginnings of architectures that compute something else."""
ABSENT = (
    "layernorm_embedding",
    "adaptive_input",
    "adaptive_softmax_cutoff",
    "no_token_positional_embeddings",
    "no_cross_attention",
    "cross_self_attention",
    "no_decoder_final_norm",
    "encoder_layers_to_keep",
    "decoder_layers_to_keep",
    "char_inputs",
    "base_layers",
)
"""Options that change the computation in ways that no network here does; all have a false default."""
SAME_ON_BOTH_SIDES = ("embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before", "learned_pos")
ACTIVATIONS = ("relu", "gelu", "swish")
DEFAULTS: dict[str, Any] = {
    "max_source_positions": 1024,
    "max_target_positions": 1024,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_fn": "relu",
}


class Options:
    """Options with the defaults of their architecture."""

    def __init__(self, stated: Mapping[str, Any], file: str, kind: str = TRANSFORMER) -> None:
        """`kind` is the beginning of the architecture. Raises ForeignModelError for another one."""
        self.file = file
        self._stated = {key: value for key, value in stated.items() if value is not None}
        self.architecture = shown(stated.get("arch") or stated.get("_name"))
        if not self.architecture.startswith(kind) or self.architecture.startswith(NOT_LISTED):
            found = self.architecture
            if found.startswith(LIGHTSEQ):
                found += "; convert it by the authors' script convert_ls_to_fs.py"
            raise ForeignModelError(f"{file}: arch: expected {kind} or one of its sizes, got {found}")
        usual = ARCHITECTURES.get(self.architecture, {})
        self._usual = DEFAULTS | {key: value for key, value in usual.items() if key not in SIZES[2:]}
        self._usual |= {f"{side}_{key}": usual[key] for side in ("encoder", "decoder") for key in SIZES[2:] if key in usual}

    def get(self, key: str) -> Any:
        """Return an option; None if neither the checkpoint nor its architecture states it."""
        return self._stated.get(key, self._usual.get(key))

    def flag(self, key: str) -> bool:
        """Return a switch, which is false unless it is stated."""
        return bool(self.get(key))

    def count(self, key: str) -> int:
        """Return a positive number. Raises ForeignModelError for another value, and for a size that nothing states."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error(key, "a positive number", value)
        return value

    def rate(self, key: str, usual: float) -> float:
        """Return a probability of dropout. Raises ForeignModelError for another value."""
        value = self.get(key)
        value = usual if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise self.error(key, "a probability below 1", value)
        return float(value)

    def error(self, key: str, expected: object, got: object) -> ForeignModelError:
        """Return the error for the value of an option."""
        return ForeignModelError(f"{self.file}: {key}: expected {shown(expected, 500)}, got {shown(got)}")


def network_of(options: Options) -> StepwiseConfig:
    """Return the network of a checkpoint's options.

    Raises ForeignModelError for an option that changes the computation in a way that no network here has.
    """
    learned = options.flag("encoder_learned_pos")
    config = StepwiseConfig(
        **shape_of(options),
        positions="learned" if learned else "sinusoidal",
        position_offset=0 if learned else 2,
        max_positions=min(options.count("max_source_positions"), options.count("max_target_positions")),
        scale_embeddings=not options.flag("no_scale_embedding"),
        start="shared",
        logits_bias=True,
    )
    check_network(options, config)
    return config


def shape_of(options: Options) -> dict[str, Any]:
    """Return the keys that the networks of all families have: sizes, dropouts, norm and activation.

    Raises ForeignModelError as `network_of` does.
    """
    _check(options)
    return {
        "encoder_layers": options.count("encoder_layers"),
        "decoder_layers": options.count("decoder_layers"),
        "width": options.count("encoder_embed_dim"),
        "feed_forward": options.count("encoder_ffn_embed_dim"),
        "heads": options.count("encoder_attention_heads"),
        "dropout": options.rate("dropout", 0.1),
        "attention_dropout": options.rate("attention_dropout", 0.0),
        "feed_forward_dropout": options.rate("activation_dropout", options.rate("relu_dropout", 0.0)),
        "norm": "pre" if options.flag("encoder_normalize_before") else "post",
        "activation": options.get("activation_fn"),
    }


def check_network(options: Options, config: NetworkConfig) -> None:
    """Raise ForeignModelError for options that make no network."""
    if problem := next(chain(value_problems(config), config.problems()), None):
        raise options.error(".".join(map(str, problem.path)), problem.expected, problem.got)


def _check(options: Options) -> None:
    for key in ABSENT:
        if options.flag(key):
            raise options.error(key, "false or none, since networks here have no such part", options.get(key))
    for part in SAME_ON_BOTH_SIDES:
        encoder, decoder = (options.get(f"{side}_{part}") for side in ("encoder", "decoder"))
        if (encoder or 0) != (decoder or 0):
            raise options.error(f"decoder_{part}", f"{shown(encoder or None)}, as in the encoder", decoder)
    for key in ("decoder_input_dim", "decoder_output_dim"):
        if options.get(key) not in (None, options.get("decoder_embed_dim")):
            raise options.error(key, f"decoder_embed_dim, {shown(options.get('decoder_embed_dim'))}", options.get(key))
    if options.get("activation_fn") not in ACTIVATIONS:
        raise options.error("activation_fn", f"one of {', '.join(ACTIVATIONS)}", options.get("activation_fn"))
