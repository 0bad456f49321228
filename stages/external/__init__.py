"""Translate the training source with a teacher outside this project: a program of the user, a model of CTranslate2 or transformers,
or a language model behind a server or on the GPUs of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from fewstep.config.bounds import Ge, Gt, Le, MinLen
from stages.artifacts import ExternalFile, Text
from stages.shared.scoring.options import TargetChoice
from stages.shared.target_filters import TargetFilters
from stages.stage import OPERATIONAL, Implementation, Stage


@dataclass(frozen=True)
class ExternalInputs:
    text: Text
    files: tuple[ExternalFile, ...]
    """Files of the program, which are linked into its working directory."""
    model: dict[str, ExternalFile] = field(default_factory=dict)
    """Files of a directory of CTranslate2 by name, with `source_pieces` and `target_pieces`, or of one of transformers; else
    empty."""
    comet: ExternalFile | None = None
    """Checkpoint of a COMET model, which chooses targets."""


@dataclass(frozen=True, kw_only=True)
class CTranslate2Options:
    """The search of a model of CTranslate2, and the pieces around its sources."""

    beam_size: Annotated[int, Ge(1)] = 5
    """Number of hypotheses kept alive for each sentence; 1 is greedy search."""
    length_penalty: Annotated[float, Ge(0)] = 1.0
    """Exponent of the number of tokens by which scores are divided."""
    max_tokens: Annotated[int, Ge(1)] = 256
    """Longest output in tokens."""
    precision: Literal["default", "float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16"] = "default"
    """Arithmetic of products with weights; `default` is that of the file."""
    source_prefix: tuple[str, ...] = ()
    """Pieces in front of each source, such as a token of the target language (`>>deu<<`)."""
    source_suffix: tuple[str, ...] | None = None
    """Pieces behind each source. Empty: the end token, where the model needs it and CTranslate2 does not add it, as in models that
    were converted from transformers."""
    target_prefix: tuple[str, ...] = ()
    """Pieces that every output begins with, and that are cut off, such as a language token of NLLB."""


@dataclass(frozen=True, kw_only=True)
class TransformersOptions:
    """The search of an encoder-decoder of transformers, and the languages of its tokeniser."""

    source_language: str = ""
    """Language of the sources in the codes of the tokeniser, such as `eng_Latn` (NLLB) or `en` (M2M-100). Empty: none."""
    target_language: str = ""
    """Language whose token every output begins with, in the same codes. Empty: none."""
    source_prefix: str = ""
    """Text in front of each source, such as `<2de> ` (MADLAD)."""
    beam_size: Annotated[int, Ge(1)] = 5
    """Number of hypotheses kept alive for each sentence; 1 is greedy search."""
    length_penalty: float = 1.0
    """Exponent of the number of tokens by which scores are divided."""
    max_tokens: Annotated[int, Ge(1)] = 256
    """Longest output in tokens; longer sources are cut to as many."""
    precision: Literal["float32", "float16", "bfloat16"] = "float32"
    """Arithmetic."""
    batch_sentences: Annotated[int, Ge(1)] = field(default=32, metadata=OPERATIONAL)
    """Sentences that are decoded together, sorted by length."""


@dataclass(frozen=True, kw_only=True)
class LanguageModelOptions:
    """A language model, and what is asked of it for each source."""

    model: Annotated[str, MinLen(1)]
    """Name of the model."""
    prompt: str = (
        "Translate the following text from {source_language} into {target_language}. "
        "Write the translation and nothing else.\n\n{text}"
    )
    """Request, in which `{text}` is the source and `{source_language}` and `{target_language}` are the names of the languages."""
    protocol: Literal["chat", "completions"] = "chat"
    """`chat`: the prompt is a message of the user; `completions`: a text that is continued."""
    output: Literal["text", "json"] = "text"
    """`text`: the answer is the translation; `json`: it is an object with the key `translation`, which the model is asked for."""
    temperature: Annotated[float, Ge(0)] = 0.0
    """Temperature of sampling; above 0 with several answers (`distillation.n_best`)."""
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    """Probability of the tokens that are sampled from."""
    max_tokens: Annotated[int, Ge(1)] = 512
    """Longest answer in tokens."""


@dataclass(frozen=True, kw_only=True)
class OpenAIOptions(LanguageModelOptions):
    """A server that speaks OpenAI's protocol. Each source is a request."""

    url: Annotated[str, MinLen(1)] = field(metadata=OPERATIONAL)
    """Address in front of `/chat/completions` or `/completions`, such as `http://localhost:8000/v1`. It is not part of
    fingerprints, so that `model` must tell models apart."""
    key_variable: str = field(default="", metadata=OPERATIONAL)
    """Environment variable with the key of the server, on every machine that asks it. The key is not recorded. Empty: no key."""
    concurrency: Annotated[int, Ge(1)] = field(default=8, metadata=OPERATIONAL)
    """Requests of a worker at the same time."""
    retries: Annotated[int, Ge(0)] = field(default=6, metadata=OPERATIONAL)
    """Further tries of a request after 408, 409, 425, 429, 500 and above, a timeout, or an answer that is cut off."""
    timeout_seconds: Annotated[float, Gt(0)] = field(default=120.0, metadata=OPERATIONAL)
    """Seconds in which the answer to a request must be complete."""
    max_total_tokens: Annotated[int, Ge(1)] | None = field(default=None, metadata=OPERATIONAL)
    """Budget in tokens, of prompts and answers. A text whose estimate exceeds it is not begun. Empty: no limit."""
    max_cost: Annotated[float, Gt(0)] | None = field(default=None, metadata=OPERATIONAL)
    """Budget in money, in the currency of the prices. Empty: no limit."""
    input_price: Annotated[float, Ge(0)] = field(default=0.0, metadata=OPERATIONAL)
    """Price of a million tokens of prompts."""
    output_price: Annotated[float, Ge(0)] = field(default=0.0, metadata=OPERATIONAL)
    """Price of a million tokens of answers."""

    def cost(self, prompt_tokens: float, answer_tokens: float) -> float:
        """Return the price of tokens."""
        return (self.input_price * prompt_tokens + self.output_price * answer_tokens) / 1e6


@dataclass(frozen=True, kw_only=True)
class RayLLMOptions(LanguageModelOptions):
    """A language model on one's own GPUs, decoded by vLLM in the processor of `ray.data.llm`.

    `model` is a directory that all workers see, or a name on the Hub, which they download. Its content is not part of fingerprints.
    `cluster.resources.external` says how many engines there are (`workers`), and over how many GPUs each is split (`gpus`).
    """

    engine: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """Further arguments of vLLM's engine, such as `{max_model_len: 4096, quantization: fp8}`."""
    batch_sentences: Annotated[int, Ge(1)] = field(default=64, metadata=OPERATIONAL)
    """Sources that are sent to an engine together. It decodes several such batches at the same time."""


@dataclass(frozen=True, kw_only=True)
class ExternalConfig(TargetChoice):
    """A teacher outside this project: one of `command`, `ctranslate2`, `transformers`, `openai` and `ray_llm`, and the choice of
    targets."""

    command: tuple[str, ...] = ()
    """Program and arguments; empty for other teachers."""
    version: str = ""
    """Version of the program and its models."""
    ctranslate2: CTranslate2Options | None = None
    """Options of a model of CTranslate2."""
    transformers: TransformersOptions | None = None
    """Options of a model of transformers."""
    openai: OpenAIOptions | None = None
    """The server of a language model."""
    ray_llm: RayLLMOptions | None = None
    """A language model on GPUs of the cluster."""
    source_language: str = ""
    """Language of the sources, for the prompt of a language model."""
    n_best: int = 1
    """Answers of a language model for each source."""
    filters: TargetFilters | None = None
    """Filters of outputs; None for none."""
    environment: tuple[str, ...] = ()
    """Names of environment variables that the program sees."""
    shards_per_process: int = field(default=16, metadata=OPERATIONAL)
    """Shards that one process translates."""
    timeout_seconds: float = field(default=1800.0, metadata=OPERATIONAL)
    """Seconds without a line after which the process is killed."""

    @property
    def key(self) -> str:
        """Return the key of the config that describes the translator."""
        kinds = {
            "ctranslate2": self.ctranslate2,
            "transformers": self.transformers,
            "openai": self.openai,
            "ray_llm": self.ray_llm,
        }
        return f"teacher.{next((name for name, options in kinds.items() if options is not None), 'command')}"


STAGE: Stage[ExternalInputs, ExternalConfig, Text] = Stage(
    name="external", version=3, run=Implementation(__name__), output=Text, distributes=True
)
