"""The sections of a config as frozen dataclasses, which pydantic validates strictly.

Each docstring below a field is its entry in `docs/reference/config.md`. Relative paths are relative to the current directory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, Tag

from fewstep.config.bounds import Ge, Gt, MinLen
from fewstep.config.network import NetworkConfig
from fewstep.config.search import SearchConfig
from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.text.masks import Kind
from models.imports import hugging_face
from models.stepwise.system import StepwiseSystem, StepwiseTeacher
from models.training.initial import FinishedNetwork
from models.training.recipe import TrainedSystem, part
from pipeline.config.systems import (
    AnySystem,
    BartTeacher,
    CommandTeacher,
    CTranslate2Teacher,
    Distillation,
    FairseqTeacher,
    MarianTeacher,
    OpenAITeacher,
    Pretraining,
    RayLLMTeacher,
    TeacherVocabulary,
    TransformersTeacher,
    UsedSystem,
)
from pipeline.config.texts import FORMATS, DistilledText, File, TextConfig, VocabularyDictionaries, VocabularyFiles, chosen_by
from pipeline.config.types import keys
from stages.align import AlignConfig
from stages.corpus import Filters
from stages.encode.modifiers import Modifiers
from stages.lattice import LatticeConfig
from stages.ngram import NgramConfig
from stages.score import ScoreOptions
from stages.shared.tasks import TaskName
from stages.table import STAGES
from stages.vocabulary import VocabularyOptions
from stages.workers import Resources

MAX_NAME = 64
"""Characters of a name. Names of steps, and so of files, consist of up to three names."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=MAX_NAME)]
StageName: Any = Literal[tuple(stage.name for stage in STAGES)]
"""The name of a stage. Its members are not known to the type checker."""


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """A finished artifact that is used as it is."""

    path: Annotated[Path, Field(alias="from")]
    """Directory of the finished artifact, in any store. It enters fingerprints by its own fingerprint, not by its path."""


@dataclass(frozen=True, kw_only=True)
class Languages:
    """The languages of the two sides."""

    source: Annotated[str, MinLen(1)] = "en"
    """Language code of the source side."""
    target: Annotated[str, MinLen(1)] = "de"
    """Language code of the target side; it selects the tokeniser of metrics."""
    target_token: str = ""
    """Token of the target language for an imported teacher that translates into several, such as `>>deu<<`."""


@dataclass(frozen=True, kw_only=True)
class BackTranslation:
    """Pairs whose targets are text in the target language, and whose sources a system writes (Sennrich et al. 2016)."""

    monolingual: Annotated[tuple[Path, ...], MinLen(1)]
    """Files of text in the target language, one sentence per line. They are filtered as the training text is, and sentences of test
    and validation texts are dropped. The pairs join the training text with its own targets (`data: raw`)."""
    by: Path
    """Directory of a finished system from the target language into the source language. It decodes with its default search."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The parallel text."""

    train: TextConfig = field(default_factory=TextConfig)
    """Training text. Pairs with a side that occurs in a validation or test text are dropped."""
    texts: dict[Name, TextConfig] = field(default_factory=dict)
    """Further training texts by any name, which curricula mix (`training.curriculum`). They are cleaned as the training text is.
    Vocabularies, tables, teachers' translations and n-gram models are made of `train` alone."""
    validation: TextConfig = field(default_factory=TextConfig)
    """Validation text, which checkpoints are chosen by."""
    test: Annotated[dict[Name, TextConfig], MinLen(1)] = field(default_factory=lambda: {"test": TextConfig()})
    """Test sets by name, with any names except `train` and `validation`."""
    filters: Filters = field(default_factory=Filters)
    """Filters of the training pairs."""
    pairs: Annotated[int, Ge(1)] | None = None
    """Number of pairs of the training text, which values `auto` follow from. Empty: it is counted, if there are such values, in
    files on this machine."""
    paper_pairs: Annotated[int, Ge(1)] | None = None
    """Number of pairs that the paper of a recipe trained on. `plan` says how many the training text has, if it has fewer."""
    max_source_tokens: Annotated[int, Ge(1)] | None = None
    """Longer sources are truncated to this number of tokens (without EOS) wherever they are read: in training, validation,
    decoding, timing and `translate`. The number of truncated sources is reported. Empty: training leaves out pairs longer than
    `training.max_tokens`, and decoding truncates sources longer than `max_positions`."""
    placeholders: tuple[Kind, ...] = ()
    """Kinds of placeholders that tokens of the vocabulary stand for on both sides, in training and use: `code` in backquotes,
    `url`, `tag`, `reference` (a role and its word), `role` (`:ref:`), `directive` (`%s`, `{0}`), `entity` (`&nbsp;`), `number`,
    and `term`, for terms of a glossary. They are restored in outputs. Empty: none."""
    modifiers: Modifiers | None = None
    """Changes of a share of the pairs that systems learn from, of the training text and of distilled text. Absent: none."""
    back_translation: BackTranslation | None = None
    """Text in the target language whose sources a finished system writes. Absent: none."""
    shard_rows: Annotated[int, Ge(1)] = 4096
    """Number of pairs in a shard, the unit of encoding and decoding."""


@dataclass(frozen=True, kw_only=True)
class Lattice(LatticeConfig):
    """Candidate tables, counted from alignment links between pieces."""

    data: Literal["raw", "distilled"] = "raw"
    """Translations of the training text that are linked and counted, the human ones or the teacher's, in addition to those that
    systems with candidate tables need."""

    @property
    def counting(self) -> LatticeConfig:
        return part(self, LatticeConfig)


@dataclass(frozen=True, kw_only=True)
class MutualInformation:
    """Two systems that write their tokens in the same arrangement."""

    parallel: str
    """System that writes several tokens a step."""
    sequential: str
    """System that writes one token a step."""


@dataclass(frozen=True, kw_only=True)
class Evaluation(ScoreOptions):
    """Decoding, scoring and display of test sets."""

    baseline: str = ""
    """Result that the others are compared with: a system with its default search, or `system/label` with another of its searches.
    Empty: the first system."""
    comet: Path | None = None
    """Checkpoint file of a COMET model on this machine, which adds the metric `comet`. Nothing is downloaded. Empty: no COMET."""
    comet_program: str = "comet-score"
    """The program `comet-score` of unbabel-comet, in an environment of its own: its path, or its name on PATH."""
    likelihood: bool = False
    """Also compute the perplexity of the references under each system, per subword, comparable over one vocabulary."""
    mutual_information: dict[Name, MutualInformation] = field(default_factory=dict)
    """Estimates, by any name, of the mutual information of tokens that are written together: the loss in perplexity."""
    contrastive: Annotated[int, Ge(0)] = 0
    """Number of minimal pairs (English and German only) that test each system's choice between singular and plural verbs, by the
    verb's distance from its subject; 0: none."""
    contrastive_pairs: File | None = None
    """File of contrastive pairs in the form of LingEval97 (JSON), in place of `contrastive`: a path, a URL, or a map with a
    digest. The report shows the accuracy of each system by type of error, distance and frequency. Empty: no file."""
    dag_analysis: Annotated[int, Ge(0)] = 0
    """Analyse the graphs of all systems of family `dag`, and draw those of this number of sentences of each test set; 0: no
    analysis."""
    parallel_analysis: bool = False
    """Analyse the slots of all systems of family `parallel`: the accuracy of target tokens under the best assignment, and their
    recall among the best candidates of slots."""
    lattice_analysis: Annotated[int, Ge(0)] = 0
    """Analyse the lattices of all systems of family `lattice`, and time the parts of decoding for this number of sentences of each
    test set; 0: no analysis."""
    min_bleu: Annotated[float, Ge(0)] = 0.0
    """Lowest BLEU of the baseline on every test set; the run fails below it. 0: no check."""
    min_rouge: Annotated[float, Ge(0)] = 0.0
    """Lowest ROUGE-L of the baseline on every test set; the run fails below it. 0: no check."""
    samples: Annotated[int, Ge(0)] = 5
    """Number of sentences of each test set that the report shows with all systems' hypotheses."""
    glossary: Path | None = None
    """Glossary: a file with a line for each term, the source, a tab, and the target. The report shows the share of its terms that
    outputs have as stated, for all searches, and for the default search of each system with the glossary. Empty: none."""
    length_penalties: tuple[Annotated[float, Ge(0)], ...] = ()
    """Length penalties that are tried on the validation text. Each search with a length penalty decodes the test sets with the best
    one, and systems keep it. Empty: the searches' own."""
    batch_tokens: Annotated[int, Ge(1)] = 4000
    """Padded source tokens in a batch of decoding."""

    def tunes(self, search: SearchConfig) -> bool:
        """Return whether the validation text is decoded to choose the length penalty or the shortlist of a search."""
        return search.unmeasured_shortlist is not None or (bool(self.length_penalties) and search.penalises_length)


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Timing of all systems, interleaved in one process."""

    enabled: bool = True
    """Whether systems are timed."""
    test: str = ""
    """Test set whose sentences are timed. Empty: the first."""
    sentences: Annotated[int, Ge(1)] = 100
    """Number of sentences that are timed, evenly spaced over the test set."""
    rounds: Annotated[int, Ge(2)] = 3
    """Number of rounds; all systems are timed in each."""
    batch_sizes: Annotated[tuple[Annotated[int, Ge(1)], ...], MinLen(1)] = (8, 32)
    """Numbers of sentences in a batch of the throughput measurements; short tables show the last."""
    memory: bool = True
    """Also measure the peak memory of each entry, in a process of its own, which takes some seconds for each."""


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """The place of artifacts and runs. Nothing here changes a result."""

    path: Path = Path("store")
    """Directory of the store; on a cluster a directory that all machines share."""
    mirror: str = ""
    """URL of a folder on object storage (`s3://...`, `gs://...`; `file:///...` on a disk). Finished artifacts and checkpoints are
    copied to it, and copied back if the store does not have them. Credentials come from the environment. Empty: no mirror."""
    offline: bool = False
    """Download no text: data sets and URLs have to be in the store (`fewstep data fetch`)."""
    lease_seconds: Annotated[float, Gt(0)] = 30.0
    """Seconds without a heartbeat after which another driver may take over a step."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The machines of a run. Trainings have the same batches on any of them. Their weights depend on the workers, the GPUs and
    `microbatch_tokens` by rounding and by the random numbers of dropout."""

    address: str = ""
    """Address of a Ray cluster (`auto`, `host:port` or `ray://host:port`). Empty: the one in RAY_ADDRESS, or a local one."""
    node_store: str = ""
    """Store of each machine of a cluster without a shared disk, such as `$HOME/fewstep`; variables are expanded on the machine.
    Artifacts are then exchanged through `store.mirror`. Empty: all machines share `store.path`."""
    cpus: Annotated[int, Ge(1)] | None = None
    """Number of CPUs of the local cluster. Empty: all of this machine."""
    resources: dict[StageName, Resources] = field(default_factory=dict)
    """Resources of each step of a stage, by the stage's name."""
    retries: Annotated[int, Ge(0)] = 2
    """Number of further attempts at a step that failed for a transient reason, such as a dead worker."""
    node_wait_seconds: Annotated[float, Ge(0)] = 300.0
    """Seconds that a step waits for lost machines to come back before it fails."""
    silence_seconds: Annotated[float, Gt(0)] = 300.0
    """Seconds without a sign of life after which a process on the cluster is considered hung. It is killed, and its work is
    repeated elsewhere. Training workers wait as long for one another, and at least 60 seconds."""
    checkpoint_seconds: Annotated[float, Gt(0)] = 120.0
    """Seconds between the checkpoints from which a killed training resumes."""
    microbatch_tokens: Annotated[int, Ge(0)] = 0
    """Largest number of padded tokens in a microbatch, one forward and backward pass of a training worker; `auto` or 0: the
    worker's whole share of the batch. If the memory does not suffice, this update is repeated, and later ones are made, in
    microbatches of half the size."""


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """MLflow. Nothing here changes a result."""

    enabled: bool = True
    """Whether runs are published."""
    uri: str = ""
    """Tracking URI. Empty: a SQLite file in the store. The environment variable MLFLOW_TRACKING_URI takes precedence."""
    experiment: str = ""
    """Name of the experiment. Empty: the name of the config."""
    models: bool = True
    """Whether systems are logged as MLflow models, with their weights, and the best one of each run is registered."""


_PINNED = Annotated[Pinned, Tag("<Pinned>")]
_FROM = chosen_by(**{"from": Pinned})
_PIECES = Annotated[VocabularyFiles, Tag("<VocabularyFiles>")] | Annotated[VocabularyDictionaries, Tag("<VocabularyDictionaries>")]
_OF_TEACHER = Annotated[TeacherVocabulary, Tag("<TeacherVocabulary>")]
_VOCABULARY = chosen_by(
    **{"from": Pinned, "source_pieces": VocabularyFiles, "source_dictionary": VocabularyDictionaries, "use": TeacherVocabulary}
)
_MARIAN = Annotated[MarianTeacher, Tag("<MarianTeacher>")]
_BART = Annotated[BartTeacher, Tag("<BartTeacher>")]
_COMMAND = Annotated[CommandTeacher, Tag("<CommandTeacher>")]
_FAIRSEQ = Annotated[FairseqTeacher, Tag("<FairseqTeacher>")]
_CTRANSLATE2 = Annotated[CTranslate2Teacher, Tag("<CTranslate2Teacher>")]
_TRANSFORMERS = Annotated[TransformersTeacher, Tag("<TransformersTeacher>")]
_OPENAI = Annotated[OpenAITeacher, Tag("<OpenAITeacher>")]
_RAY_LLM = Annotated[RayLLMTeacher, Tag("<RayLLMTeacher>")]
_TEACHER = chosen_by(
    **{"from": Pinned},
    marian=MarianTeacher,
    bart=BartTeacher,
    fairseq=FairseqTeacher,
    command=CommandTeacher,
    ctranslate2=CTranslate2Teacher,
    transformers=TransformersTeacher,
    openai=OpenAITeacher,
    ray_llm=RayLLMTeacher,
)
_DISTILLED = Annotated[DistilledText, Tag("<DistilledText>")]
_DISTILLATION = chosen_by(**{"from": Pinned}, **dict.fromkeys(FORMATS, DistilledText))


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A resolved config: every value is concrete."""

    name: Name = "run"
    """Name of the run, of letters, digits, _ and -."""
    task: TaskName = "translation"
    """The task. Some defaults follow from it."""
    languages: Languages = Languages()
    """The languages of the two sides."""
    corpus: Corpus = field(default_factory=Corpus)
    """The parallel text."""
    vocabulary: Annotated[_PINNED | _PIECES | _OF_TEACHER | Annotated[VocabularyOptions, Tag("<other>")], _VOCABULARY] = field(
        default_factory=VocabularyOptions
    )
    """Training of the subword vocabulary, `{from: DIRECTORY}` of a finished one or of a system, `{source_pieces: FILE, ...}` of one
    that was trained elsewhere, or `{use: teacher}` for that of an imported teacher."""
    alignment: AlignConfig | None = None
    """Word alignment. Absent: only for candidate tables, with the defaults."""
    lattice: Lattice | None = None
    """Counting of candidate tables. Absent: only those that systems need, with the defaults."""
    ngram: Annotated[_PINNED | Annotated[NgramConfig, Tag("<other>")], _FROM] | None = None
    """Estimation of an n-gram language model, or `{from: DIRECTORY}` of a finished one. Absent: no model."""
    teacher: (
        Annotated[
            _PINNED
            | _MARIAN
            | _BART
            | _FAIRSEQ
            | _COMMAND
            | _CTRANSLATE2
            | _TRANSFORMERS
            | _OPENAI
            | _RAY_LLM
            | Annotated[StepwiseTeacher, Tag("<other>")],
            _TEACHER,
        ]
        | None
    ) = None
    """The autoregressive model that others learn from: one to be trained, `{from: DIRECTORY}` of a finished training or system,
    `{marian: DIRECTORY}` of a network of opus-mt, `{bart: DIRECTORY}` of a BART, `{fairseq: CHECKPOINT, ...}` of a Transformer of
    fairseq, `{command: [PROGRAM, ...]}` of a translator, `{ctranslate2: DIRECTORY}` or `{transformers: DIRECTORY}` of a model
    of these, `{openai: {url: ..., model: ...}}` of a language model behind a server, or `{ray_llm: {model: ...}}` of one on
    GPUs of the cluster. Absent: none."""
    distillation: Annotated[_PINNED | _DISTILLED | Annotated[Distillation, Tag("<other>")], _DISTILLATION] = field(
        default_factory=Distillation
    )
    """Decoding of the training source by the teacher, `{from: DIRECTORY}` of a distilled text, or `{source: FILES, target: FILES}`
    (or `tsv`, `parquet`) of text that was distilled elsewhere."""
    pretraining: Pretraining | None = None
    """Training on text alone before the training of systems with `initial_weights: pretraining`. Absent: none."""
    seeds: tuple[Annotated[int, Ge(0)], ...] = ()
    """Seeds that every system is trained with, in place of `training.seed`. The system NAME has the first seed, and each further
    seed S adds a system NAME-seedS with companions of the same seed; for `use: teacher` it is a network like the teacher. All learn
    from the translations of the one teacher. The report shows mean and standard deviation; only the first seed is timed. Empty: one
    training for each system."""
    systems: Annotated[dict[Name, AnySystem], MinLen(1)] = field(default_factory=lambda: {"autoregressive": StepwiseSystem()})
    """Systems by name: `{use: teacher}`, `{from: DIRECTORY}` of a finished one, or a system to be trained."""
    evaluation: Evaluation = field(default_factory=Evaluation)
    """Decoding, scoring and display of test sets."""
    benchmark: Benchmark = Benchmark()
    """Timing of the systems."""
    store: StoreConfig = StoreConfig()
    """The place of artifacts and runs."""
    cluster: Cluster = field(default_factory=Cluster)
    """The machines of a run."""
    tracking: Tracking = Tracking()
    """MLflow."""


@dataclass(frozen=True, kw_only=True)
class WrittenConfig(RunConfig):
    """The keys that a config file may have."""

    base: tuple[str, ...] = ()
    """Another config, or a list of configs, relative to this file, that this one extends: maps are merged, other values are
    replaced. Later files of a list win over earlier ones, and this file wins over all of them."""
    replace: tuple[str, ...] = ()
    """Keys, such as `systems` or `corpus.test`, whose map in this file replaces that of its base as a whole."""
    defaults: StepwiseSystem = field(default_factory=StepwiseSystem)
    """Values that the teacher and all trained systems share; a system states only its differences. `search` applies to `use:` and
    to finished systems of the family `stepwise` as well."""


def network_of(config: RunConfig, name: str) -> NetworkConfig | None:
    """Return the network of a system; None if it is not known before the run."""
    system = config.systems[name]
    if isinstance(system, UsedSystem):
        return teacher_network(config)
    return system.network if isinstance(system, TrainedSystem) else None


def teacher_network(config: RunConfig) -> StepwiseConfig | None:
    """Return the network of the teacher: the one that is trained, or the one that the directory of an imported teacher describes.

    None for a teacher that is pinned or comes from fairseq, whose files are not read before the run, and for one without a network.
    """
    teacher = config.teacher
    if isinstance(teacher, StepwiseTeacher):
        return teacher.network
    if isinstance(teacher, MarianTeacher):
        return hugging_face.network_of("marian", teacher.marian)
    return hugging_face.network_of("bart", teacher.bart) if isinstance(teacher, BartTeacher) else None


STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
WrittenConfig.__pydantic_config__ = STRICT  # type: ignore[attr-defined]


def _key_of(field: str) -> str:
    return next(key for key, other in keys(FinishedNetwork).items() if other == field)


FinishedNetwork.__pydantic_config__ = ConfigDict(**STRICT, alias_generator=_key_of)  # type: ignore[attr-defined]
