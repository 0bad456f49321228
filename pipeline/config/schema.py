"""The whole YAML as frozen dataclasses, those of stages and models among them, validated strictly by pydantic.

Each docstring below a field is its entry in `docs/configuration.md`. Relative paths are relative to the current directory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, MinLen
from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, ValidationError

from models.stepwise.config import StepwiseConfig
from pipeline.config.check import check
from pipeline.config.expand import expand
from pipeline.config.problems import Complaint, complaints, report
from pipeline.config.systems import (
    AggressiveSystem,
    DagSystem,
    Distillation,
    LatticeSystem,
    StepwiseSystem,
    StepwiseTeacher,
    UsedSystem,
    part,
)
from pipeline.config.tree import Node
from pipeline.config.yaml import read_config, read_value
from pipeline.errors import ConfigError
from pipeline.store.downloads import RemoteFile
from stages.align import AlignConfig
from stages.corpus import Filters
from stages.lattice import LatticeConfig
from stages.ngram import NgramConfig
from stages.score import MetricName
from stages.score.tasks import TaskName
from stages.stage import Resources
from stages.vocabulary import VocabularyConfig

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
StageName = Literal[
    "corpus",
    "vocabulary",
    "encode",
    "align",
    "lattice",
    "ngram",
    "train",
    "distill",
    "system",
    "tune",
    "decode",
    "score",
    "likelihood",
    "contrastive",
    "graphs",
    "lattices",
    "benchmark",
    "report",
]


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """Something finished earlier that is used as it is, instead of being made."""

    path: Annotated[Path, Field(alias="from")]
    """Directory of the finished artifact, in any store. It enters fingerprints by its own fingerprint, not by its path."""


@dataclass(frozen=True, kw_only=True)
class Languages:
    """The languages of the two sides."""

    source: Annotated[str, MinLen(1)] = "en"
    """Language code of what is read."""
    target: Annotated[str, MinLen(1)] = "de"
    """Language code of what is written; chooses the tokeniser of metrics."""


def _chosen_by(key: str, kind: type) -> Discriminator:
    """Of a choice, `kind` is meant by a map with `key`, or is there already; else the other."""

    def tag(value: Any) -> str:
        meant = key in value if isinstance(value, Mapping) else isinstance(value, kind)
        return f"<{kind.__name__}>" if meant else "<other>"

    return Discriminator(tag)


File = Annotated[Annotated[RemoteFile, Tag("<RemoteFile>")] | Annotated[Path, Tag("<other>")], _chosen_by("url", RemoteFile)]


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """One text in pairs, given in exactly one way. A single file may stand for a list of one; several are joined in order.

    Files are plain text, gzip or zstd by their suffix, UTF-8: paths, URLs, or maps of `url` and `sha256`.
    """

    embedded: Annotated[int, Ge(0)] = 0
    """Pairs drawn from the embedded corpus of the task (English-German sentences, or English documents with summaries); 0: none."""
    source: tuple[File, ...] = ()
    """Files of the source side, one sentence or document a line."""
    target: tuple[File, ...] = ()
    """Files of the target side, line by line the translations or summaries of `source`."""
    references: tuple[tuple[File, ...], ...] = ()
    """Further references of a test set: for each, its files, like `target`."""
    tsv: tuple[File, ...] = ()
    """Files of two columns, source and target, parted by a tab."""
    parquet: tuple[File, ...] = ()
    """Parquet files with text columns `source` and `target`."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The text in pairs."""

    train: TextConfig = TextConfig(embedded=20000)
    """Training text. Pairs with a side that occurs in a validation or test text are dropped."""
    validation: TextConfig = TextConfig(embedded=500)
    """Validation text, which chooses among checkpoints."""
    test: Annotated[dict[Name, TextConfig], MinLen(1)] = field(default_factory=lambda: {"test": TextConfig(embedded=500)})
    """Test sets by name; any number, but not called `train` or `validation`."""
    filters: Filters = field(default_factory=Filters)
    """Which training pairs are dropped."""
    max_source_tokens: Annotated[int, Ge(1)] | None = None
    """Longer sources are cut to their first so many tokens (EOS not counted) wherever they are read: in training, validation,
    decoding, timing and `translate`; how many are cut is counted. Empty: training leaves out what is longer than
    `training.max_tokens`, decoding cuts what is longer than `max_positions`."""
    shard_rows: Annotated[int, Ge(1)] = 4096
    """Pairs in a shard, the unit in which text is encoded and decoded."""


@dataclass(frozen=True, kw_only=True)
class Lattice(LatticeConfig):
    """Candidate tables, counted from word links between pieces."""

    data: Literal["raw", "distilled"] = "raw"
    """Which translations of the training text are linked and counted, the human ones or the teacher's, besides those that systems
    of family `lattice` ask for."""

    @property
    def counting(self) -> LatticeConfig:
        return part(self, LatticeConfig)


@dataclass(frozen=True, kw_only=True)
class MutualInformation:
    """Two systems that write their tokens in one arrangement."""

    parallel: str
    """System that writes several tokens a step."""
    sequential: str
    """System that writes one token a step."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How test sets are decoded, scored and shown."""

    baseline: str = ""
    """System that the others are compared with; empty: the first."""
    tokenizer: Literal["auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"] = "auto"
    """sacreBLEU tokeniser; auto follows the target language. ROUGE takes it too, but has words of its own in place of 13a."""
    lowercase: bool = False
    """Compare without case (`-lc`); ROUGE always does."""
    metrics: Annotated[tuple[MetricName, ...], MinLen(1)] = ("bleu", "chrf", "ter", "tokenized_bleu")
    """Metrics to compute."""
    head_and_tail: bool = False
    """Also the precision of the first and of the last words of hypotheses of long sentences?"""
    long_sentences: Annotated[int, Ge(0)] = 30
    """Words of the reference above which a sentence is long."""
    length_bins: tuple[Annotated[int, Ge(1)], ...] = ()
    """Also BLEU by the length of the reference: bins of up to so many words, ascending, and one above the last, such as
    `[10, 20, 30]`; none: no bins."""
    likelihood: bool = False
    """Also how likely each system holds the references: perplexity, per subword, comparable over one vocabulary?"""
    mutual_information: dict[Name, MutualInformation] = field(default_factory=dict)
    """Estimates of how much the tokens that are written together tell of each other, by any name: the loss in perplexity."""
    contrastive: Annotated[int, Ge(0)] = 0
    """Minimal pairs (English and German only) on which each system is asked for the number of a verb, by its distance from the
    subject; 0: none."""
    graphs: Annotated[int, Ge(0)] = 0
    """Look into the graphs of all systems of family `dag` (see docs/graphs.md), and draw those of so many sentences of each test
    set; 0: neither."""
    lattices: Annotated[int, Ge(0)] = 0
    """Look into the lattices of all systems of family `lattice` (see docs/lattice.md), and time so many sentences of each test set
    part by part; 0: neither."""
    minimum_bleu: Annotated[float, Ge(0)] = 0.0
    """The run fails when the baseline scores less on any test set: a check that the machinery learnt something; 0: no check."""
    minimum_rouge: Annotated[float, Ge(0)] = 0.0
    """The same in ROUGE-L."""
    samples: Annotated[int, Ge(0)] = 5
    """Sentences of each test set that the report shows with all systems' hypotheses."""
    length_penalties: tuple[Annotated[float, Ge(0)], ...] = ()
    """Length penalties that are tried on the validation text; each search that has one decodes the tests with the one that scores
    best there, and is bundled with it. None: the searches' own."""
    batch_tokens: Annotated[int, Ge(1)] = 4000
    """Padded source tokens in a batch of decoding."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Timing of all systems, interleaved in one process."""

    enabled: bool = True
    """Measure at all?"""
    test: str = ""
    """Test set whose sentences are timed; empty: the first."""
    sentences: Annotated[int, Ge(1)] = 100
    """Sentences timed, evenly spaced over the test set."""
    rounds: Annotated[int, Ge(2)] = 3
    """Rounds in which all systems take their turn."""
    batch_sizes: Annotated[tuple[Annotated[int, Ge(1)], ...], MinLen(1)] = (8, 32)
    """Sentences in a batch of the throughput measurements; short tables show the last."""
    memory: bool = True
    """Also the peak memory of each entry, in a process of its own, which takes some seconds for each?"""


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """Where artifacts and runs are kept. Nothing here changes a result."""

    path: Path = Path("store")
    """Directory of the store; on a cluster one that all machines share."""
    mirror: str = ""
    """URL of a folder on object storage (`s3://...`, `gs://...`; `file:///...` on a disk) that finished artifacts and checkpoints
    are copied to, and taken from where the store lacks them; empty: none. Credentials come from the environment."""
    lease_seconds: Annotated[float, Gt(0)] = 30.0
    """Seconds without a heartbeat after which another driver may take over a step."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where the work runs. Nothing here changes a result."""

    address: str = ""
    """Address of a Ray cluster (`auto`, `host:port` or `ray://host:port`); empty: the one in RAY_ADDRESS, else a local one."""
    cpus: Annotated[int, Ge(1)] | None = None
    """CPUs of the local cluster; empty: all of this machine."""
    resources: dict[StageName, Resources] = field(default_factory=dict)
    """What each step of a stage may hold, by the stage's name."""
    retries: Annotated[int, Ge(0)] = 2
    """Further attempts at a step that failed for a passing reason, such as a dead worker."""
    node_wait_seconds: Annotated[float, Ge(0)] = 300.0
    """Seconds that a step waits for machines where those that could hold it are gone, before it fails."""
    checkpoint_seconds: Annotated[float, Gt(0)] = 120.0
    """Seconds between the checkpoints from which a killed training resumes."""
    microbatch_tokens: Annotated[int, Ge(0)] = 0
    """Padded tokens that a training worker takes through the network at once, a matter of its memory; 0: its whole share."""


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """MLflow. Nothing here changes a result."""

    enabled: bool = True
    """Publish runs at all?"""
    uri: str = ""
    """Tracking URI; empty: a SQLite file in the store. The environment variable MLFLOW_TRACKING_URI wins over both."""
    experiment: str = ""
    """Name of the experiment; empty: the name of the config."""


def _kind_of_system(value: Any) -> str:
    """The tag of a system: of one that uses another, or of its family."""
    if isinstance(value, UsedSystem) or (isinstance(value, Mapping) and "use" in value):
        return "<use>"
    family = value.get("family") if isinstance(value, Mapping) else getattr(value, "family", None)
    return f"<{family}>" if isinstance(family, str) else "<stepwise>"


_PINNED = Annotated[Pinned, Tag("<Pinned>")]
_FROM = _chosen_by("from", Pinned)
_SYSTEM = (
    Annotated[UsedSystem, Tag("<use>")]
    | Annotated[StepwiseSystem, Tag("<stepwise>")]
    | Annotated[DagSystem, Tag("<dag>")]
    | Annotated[LatticeSystem, Tag("<lattice>")]
    | Annotated[AggressiveSystem, Tag("<aggressive>")]
)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A resolved config: every value is concrete."""

    name: Name = "run"
    """Name of the run, of letters, digits, _ and -."""
    task: TaskName = "translation"
    """What is learnt. Some defaults follow from it."""
    languages: Languages = Languages()
    """The languages of the two sides."""
    corpus: Corpus = field(default_factory=Corpus)
    """The text in pairs."""
    vocabulary: Annotated[_PINNED | Annotated[VocabularyConfig, Tag("<other>")], _FROM] = field(default_factory=VocabularyConfig)
    """How the subword vocabulary is trained, or `{from: DIRECTORY}` of a finished one."""
    alignment: AlignConfig | None = None
    """How words are linked. Absent: nothing is linked, or only for candidate tables, by defaults."""
    lattice: Lattice | None = None
    """How candidate tables are counted. Absent: none are, or only those of systems of family `lattice`, by defaults."""
    ngram: Annotated[_PINNED | Annotated[NgramConfig, Tag("<other>")], _FROM] | None = None
    """How an n-gram language model is estimated, or `{from: DIRECTORY}` of a finished one. Absent: none is."""
    teacher: Annotated[_PINNED | Annotated[StepwiseTeacher, Tag("<other>")], _FROM] | None = None
    """The autoregressive model that others learn from, or `{from: DIRECTORY}` of a finished training or system. Absent: none."""
    distillation: Annotated[_PINNED | Annotated[Distillation, Tag("<other>")], _FROM] = field(default_factory=Distillation)
    """How the teacher decodes the training source, or `{from: DIRECTORY}` of text that is distilled already."""
    systems: Annotated[
        dict[Name, Annotated[_SYSTEM, Discriminator(_kind_of_system)]],
        MinLen(1),
    ] = field(default_factory=lambda: {"autoregressive": StepwiseSystem()})
    """Systems by name: `{use: teacher}`, or one to be trained."""
    evaluation: Evaluation = field(default_factory=Evaluation)
    """How test sets are decoded, scored and shown."""
    benchmark: Benchmark = Benchmark()
    """Timing of the systems."""
    store: StoreConfig = StoreConfig()
    """Where artifacts and runs are kept."""
    cluster: Cluster = field(default_factory=Cluster)
    """Where the work runs."""
    tracking: Tracking = Tracking()
    """MLflow."""


@dataclass(frozen=True, kw_only=True)
class WrittenConfig(RunConfig):
    """What a file may hold."""

    base: str = ""
    """Another config, relative to this file, that this one is laid over: maps are merged, all else is replaced."""
    defaults: StepwiseSystem = field(default_factory=StepwiseSystem)
    """What the teacher and all trained systems share: a system states only what differs (`search` holds for `use:` too)."""


def stepwise_network(config: RunConfig, system: str) -> StepwiseConfig | None:
    """The network of a system of the `stepwise` family; None where it is of another, or pinned, and its own directory says."""
    settings = config.systems[system]
    if isinstance(settings, StepwiseSystem):
        return settings.network
    return config.teacher.network if isinstance(config.teacher, StepwiseTeacher) else None


WrittenConfig.__pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)  # type: ignore[attr-defined]


@cache
def adapter() -> TypeAdapter[WrittenConfig]:
    """Pydantic's validator, made on first use."""
    return TypeAdapter(WrittenConfig)


def load_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read, merge, resolve and check a config. Raises ConfigError with everything that is wrong."""
    root, problems = read_config(path, overrides)
    return _build(expand(root), problems)


def parse_search(text: str, where: str, family: str = "stepwise") -> Any:
    """A search of a family as a config writes it, such as `greedy` or `{beam: {beam_size: 4}}`. Raises ConfigError that names
    `where`."""
    problems: list[str] = []
    search = read_value(text, where, problems)
    needed = {"verifier": "other", "drafter_system": "other", "data": "raw"} if family == "aggressive" else {}
    others = {key: Node(value, where, ()) for key, value in needed.items()}
    entry = Node({"search": search, "family": Node(family, where, ()), **others}, where, ())
    systems = Node({"any": entry, "other": Node({}, where, ())}, where, ())
    config = _build(expand(Node({"systems": systems}, where, ())), problems)
    return config.systems["any"].search[0]


def resolved(config: RunConfig) -> dict[str, Any]:
    """The config as JSON-like values, which load back to an equal config."""
    written = WrittenConfig(**{f.name: getattr(config, f.name) for f in fields(RunConfig)})
    values: dict[str, Any] = adapter().dump_python(written, mode="json", by_alias=True)
    return {key: value for key, value in values.items() if key not in ("base", "defaults")}


def _build(root: Node, problems: Sequence[str]) -> RunConfig:
    config, found = _validate(root)
    pruned = [complaint.path for complaint in found]
    for _ in range(3):  # what is wrong is taken out, so that the rest can be checked in the same go
        if config is not None:
            break
        rest = root
        for path in pruned:
            rest = rest.without(path) if path else rest.with_value({})
        config, more = _validate(rest)
        pruned.extend(complaint.path for complaint in more)
    if config is not None:
        found.extend(check(config, pruned))
    if found or problems:
        raise ConfigError([*problems, *report(found, root)])
    assert config is not None
    return part(config, RunConfig)


def _validate(root: Node) -> tuple[WrittenConfig | None, list[Complaint]]:
    try:
        return adapter().validate_json(json.dumps(root.plain())), []
    except ValidationError as error:
        return None, complaints(error.errors(include_url=False), WrittenConfig)
