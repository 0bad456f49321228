"""Systems in a config: the choice among families, teachers of other toolkits, systems that reuse the teacher, distillation, and
pre-training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from pydantic import Discriminator, Field, Tag

from fewstep.config.bounds import Ge, Gt, MinLen
from fewstep.config.labels import labelled
from fewstep.config.search import SearchConfig
from fewstep.families.stepwise.config import StepwiseSearch
from models.family import FAMILIES, FamilyEntry, family_named
from models.stepwise.system import StepwiseTeacher, default_searches
from models.training.config import Infilling, TrainingConfig
from models.training.recipe import TrainedSystem, part
from stages.external import CTranslate2Options, OpenAIOptions, RayLLMOptions, TransformersOptions
from stages.shared.scoring.options import Choice
from stages.shared.target_filters import TargetFilters

TEACHER_FAMILY = StepwiseTeacher.family
"""Family of the teacher, and of systems that state no other."""


@dataclass(frozen=True, kw_only=True)
class MarianTeacher:
    """A Marian network in the format of Hugging Face's transformers, such as those of opus-mt."""

    marian: Path
    """Directory with `config.json`, `model.safetensors` (or `pytorch_model.bin`), `source.spm`, `target.spm` and `vocab.json`. The
    content of the files enters fingerprints, their path does not."""


@dataclass(frozen=True, kw_only=True)
class BartTeacher:
    """A BART network in the format of Hugging Face's transformers, with a vocabulary of byte-level BPE."""

    bart: Path
    """Directory with `config.json`, `model.safetensors`, `vocab.json` and `merges.txt`. The content of the files enters
    fingerprints, their path does not."""


@dataclass(frozen=True, kw_only=True)
class FairseqTeacher:
    """A Transformer that fairseq trained, with a vocabulary of SentencePiece."""

    fairseq: Path
    """Checkpoint, such as `checkpoint_best.pt`. It is read as tensors and settings; code in it is refused, not run. The content of
    all files enters fingerprints, their paths do not."""
    source_dictionary: Path
    """Dictionary of the source (`dict.en.txt`)."""
    target_dictionary: Path | None = None
    """Dictionary of the target. Empty: that of the source."""
    source_pieces: Path
    """SentencePiece model of the source. Codes of subword-nmt and fastBPE are not read."""
    target_pieces: Path | None = None
    """SentencePiece model of the target. Empty: that of the source."""

    @property
    def files(self) -> dict[str, Path]:
        """Return the files by their part."""
        parts = {
            "checkpoint": self.fairseq,
            "source_dictionary": self.source_dictionary,
            "target_dictionary": self.target_dictionary,
            "source_pieces": self.source_pieces,
            "target_pieces": self.target_pieces,
        }
        return {part: path for part, path in parts.items() if path is not None}


ImportedTeacher = MarianTeacher | BartTeacher | FairseqTeacher
"""Imported networks, which become systems of fewstep."""


@dataclass(frozen=True, kw_only=True)
class CommandTeacher:
    """A program that reads source lines and writes one translation for each."""

    command: Annotated[tuple[str, ...], MinLen(1)]
    """Program and arguments. There is no shell, and nothing is expanded."""
    version: Annotated[str, MinLen(1)]
    """Version of the program and of its models, in any words. It enters the fingerprint."""
    files: tuple[Path, ...] = ()
    """Files of the program. They enter the fingerprint by content, and are linked into its working directory by name."""
    environment: tuple[str, ...] = ()
    """Names of further environment variables that the program sees. Their values are not recorded."""
    shards_per_process: Annotated[int, Ge(1)] = 16
    """Shards of the text that one process translates."""
    timeout_seconds: Annotated[float, Gt(0)] = 1800.0
    """Seconds without a line after which the program is killed and started again."""


@dataclass(frozen=True, kw_only=True)
class CTranslate2Teacher(CTranslate2Options):
    """A model in a directory of CTranslate2, which the package ctranslate2 decodes."""

    ctranslate2: Path
    """Directory with `model.bin`, `config.json` and its vocabularies. The content of the files enters fingerprints, their path does
    not."""
    source_pieces: Path | None = None
    """SentencePiece model of the source. Empty: `source.spm` in the directory."""
    target_pieces: Path | None = None
    """SentencePiece model of the target. Empty: `target.spm` in the directory."""
    shards_per_process: Annotated[int, Ge(1)] = 16
    """Shards of the text that a worker translates before it reports."""


@dataclass(frozen=True, kw_only=True)
class TransformersTeacher(TransformersOptions):
    """An encoder-decoder in a directory of transformers that is not read natively, such as NLLB, M2M-100, MADLAD or mT5."""

    transformers: Path
    """Directory with `config.json`, weights in safetensors and the files of the tokeniser. No code of it is run. The content of the
    files enters fingerprints, their path does not."""
    shards_per_process: Annotated[int, Ge(1)] = 16
    """Shards of the text that a worker translates before it reports."""


@dataclass(frozen=True, kw_only=True)
class OpenAITeacher:
    """A language model behind a server that speaks OpenAI's protocol: vLLM, llama.cpp, Ollama, and hosted ones."""

    openai: OpenAIOptions
    """The server, and what is asked of it."""


@dataclass(frozen=True, kw_only=True)
class RayLLMTeacher:
    """A language model on one's own GPUs, decoded by vLLM in the workers of the cluster."""

    ray_llm: RayLLMOptions
    """The model, and what is asked of it."""


ExternalTeacher = CommandTeacher | CTranslate2Teacher | TransformersTeacher | OpenAITeacher | RayLLMTeacher
"""Translators of text, whose networks are not systems of fewstep."""


def kind_of(teacher: ExternalTeacher) -> str:
    """Return the key by which a teacher is chosen."""
    return {
        CommandTeacher: "command",
        CTranslate2Teacher: "ctranslate2",
        TransformersTeacher: "transformers",
        OpenAITeacher: "openai",
        RayLLMTeacher: "ray_llm",
    }[type(teacher)]


@dataclass(frozen=True, kw_only=True)
class TeacherVocabulary:
    """The vocabulary of an imported teacher."""

    use: Literal["teacher"]
    """Use the vocabulary of the teacher, so that systems can share its weights, and so that it can verify drafts."""


@dataclass(frozen=True, kw_only=True)
class UsedSystem:
    """A system without a training of its own."""

    use: Literal["teacher", "ensemble"]
    """Evaluate the teacher under this name, alone or with all networks of its ensemble."""
    search: Annotated[dict[str, StepwiseSearch], MinLen(1)] = field(default_factory=default_searches)
    """Searches that it is evaluated with, the first its default."""

    @property
    def family(self) -> str:
        """Family of models."""
        return TEACHER_FAMILY

    @property
    def companions(self) -> dict[str, str]:
        """Return no names: the system needs no other system."""
        return {}


@dataclass(frozen=True, kw_only=True)
class FinishedSystem:
    """A system that was made before: by a run, by `fewstep convert` of a published checkpoint, or by `fewstep export`.

    It has a vocabulary, and companions, of its own.
    """

    path: Annotated[Path, Field(alias="from")]
    """Directory of the system, in any place. It enters fingerprints by its own fingerprint, not by its path."""
    family: str = ""
    """Family of its network. Empty: the one that the directory states."""
    search: Mapping[str, SearchConfig] = field(default_factory=dict)
    """Searches of its family that it is evaluated with, the first its default. Empty: the default of its family."""

    @property
    def companions(self) -> dict[str, str]:
        """Return no names: the directory holds the systems that it works with."""
        return {}


def _finished(name: str, entry: FamilyEntry) -> type[FinishedSystem]:
    """Return the finished systems of a family, whose searches are those of the family."""
    search: Any = entry.search
    keys: list[tuple[str, Any, Any]] = [
        ("family", Literal[name], field(default=name)),
        ("search", Annotated[dict[str, search], MinLen(1)], field(default_factory=lambda: labelled(search()))),
    ]
    made = make_dataclass(f"Finished{entry.system.__name__}", keys, bases=(FinishedSystem,), frozen=True, kw_only=True)
    made.__doc__ = FinishedSystem.__doc__
    return made


@dataclass(frozen=True, kw_only=True)
class Distillation(StepwiseSearch):
    """The search with which the teacher decodes the training source. The keys of a search stand beside `batch_tokens`."""

    strategy: Literal["greedy", "beam", "sample"] = "beam"
    """Choice of the best token in each slot, beam search, or nucleus sampling."""
    batch_tokens: Annotated[int, Ge(1)] | None = 4000
    """Padded source tokens in a batch. Empty: the fastest number for each kind of device, measured when the step begins."""
    choose: Choice = "score"
    """The choice of the target among the n best outputs: the output with the best score of the search; the one with the highest
    sentence BLEU against the target of the training text, where ties go to the better score (sequence-level interpolation, Kim and
    Rush 2016, section 3.3); the one with the highest mean chrF, or COMET, against all of them (`mbr`, minimum Bayes risk); or the
    one that `comet` scores best without a reference (`quality`)."""
    comet: Path | None = None
    """Checkpoint file of a COMET model on this machine, for `choose`: one that compares with references for `mbr`, one for quality
    estimation for `quality`. Nothing is downloaded."""
    comet_program: str = "comet-score"
    """The program `comet-score` of unbabel-comet, in an environment of its own: its path, or its name on PATH."""
    min_quality: float | None = None
    """With `quality`: score below which an output is no target, in the units of the model."""
    max_ratio: Annotated[float, Gt(0)] | None = None
    """Longest output that is kept, in tokens per token of its source, both with EOS. Empty: only the search limits it."""
    filters: TargetFilters | None = None
    """Filters of outputs, which are counted by reason. Empty: the defaults for language models (`openai`, `ray_llm`), and
    none for other teachers."""
    monolingual: tuple[Path, ...] = ()
    """Files of further text in the source language, one sentence per line, that the teacher translates as well. Sentences of test
    and validation texts are dropped."""
    validation: bool = False
    """Translate the sources of the validation text as well: recall of candidates, and of slots (`evaluation.parallel_analysis`), is
    then measured on the teacher's translations of them, as in figure 1 of Deng and Rush (2021)."""

    @property
    def search(self) -> StepwiseSearch:
        """Return the search without the other keys."""
        return part(self, StepwiseSearch)


def _tag(value: Any) -> str:
    """Return the tag of a system: the tag of systems that use another one, or that of its family."""
    if isinstance(value, UsedSystem) or (isinstance(value, Mapping) and "use" in value):
        return "<use>"
    family = value.get("family") if isinstance(value, Mapping) else None
    if isinstance(value, TrainedSystem | FinishedSystem):
        family = value.family
    if isinstance(value, FinishedSystem) or (isinstance(value, Mapping) and "from" in value):
        return f"<{FROM}{family or ''}>"
    return f"<{family}>" if isinstance(family, str) else f"<{TEACHER_FAMILY}>"


FROM = "from "
"""The beginning of the tags of finished systems, before their family."""


def any_system() -> Any:
    """Return the type of a system: a choice by `use`, `from` and `family` among all that the table of families holds."""
    kinds = [Annotated[UsedSystem, Tag("<use>")]]
    kinds += [Annotated[entry.system, Tag(f"<{name}>")] for name, entry in FAMILIES.items()]
    kinds += [Annotated[_finished(name, entry), Tag(f"<{FROM}{name}>")] for name, entry in FAMILIES.items()]
    return Annotated[Union[tuple(kinds)], Discriminator(_tag)]  # noqa: UP007  (the members are not known to the type checker)


AnySystem = any_system()


def analysis_of(system: TrainedSystem | UsedSystem | FinishedSystem) -> str:
    """Return the key of `evaluation` that requests the analysis of a system; empty if it has none. The network of a finished system
    is not known: it may have none."""
    if isinstance(system, TrainedSystem):
        return system.analysis if system.network.is_analysed else ""
    return family_named(system.family).system.analysis if isinstance(system, FinishedSystem) else ""


PRETRAINING = "pretraining"
"""The value of `initial_weights` that asks for pre-training."""


@dataclass(frozen=True, kw_only=True)
class Pretraining(Infilling):
    """A training on text alone before that of a system: its network learns to write masked spans (Huang, Ke and Huang 2023).

    Systems with `initial_weights: pretraining` start from its weights. It has the network and the recipe of the system except for
    the keys here, and is validated by its loss. The vocabulary must be joint.
    """

    monolingual: tuple[Path, ...] = ()
    """Files of text in the source language, one sentence or document a line. Sentences of test and validation texts are dropped."""
    target_monolingual: tuple[Path, ...] = ()
    """Files of text in the target language. If there are no files for either language, the text is the source side of the training
    text."""
    updates: Annotated[int, Ge(1)] = 10000
    """Largest number of optimiser updates."""
    validate_every: Annotated[int, Ge(1)] = 500
    """Updates between two validations."""
    batch_tokens: Annotated[int, Ge(1)] | None = None
    """Padded tokens in the batch of one update. Empty: as in the training of the system."""
    learning_rate: Annotated[float, Gt(0)] | None = None
    """Peak learning rate. Empty: as in the training of the system."""
    warmup_updates: Annotated[int, Ge(0)] | None = None
    """Updates over which the learning rate rises. Empty: as in the training of the system."""

    def recipe(self, training: TrainingConfig) -> TrainingConfig:
        """Return the recipe of the pre-training of a system that is trained by `training`."""
        own = {key: getattr(self, key) for key in ("updates", "validate_every", "batch_tokens", "learning_rate", "warmup_updates")}
        stated = {key: value for key, value in own.items() if value is not None}
        return replace(training, **stated, validation_metric="loss", validation_sentences=0, keep_first=False, curriculum=())
