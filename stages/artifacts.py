"""Types of artifacts and the files in their directories. Readers are in the stage that writes the type."""

from dataclasses import dataclass, field
from pathlib import Path

MANIFEST = "manifest.json"
"""File that is written last into the directory of an artifact. An artifact with a manifest is finished."""

RECORDS = "records"
"""Folder of files that are never compared: timings, logs, metrics, figures."""

CHECKPOINTS = "checkpoints"
"""Folder of files from which a later attempt resumes. It is deleted when the step is finished."""

SHARDS = "shards"
"""Folder of the shards of an artifact. A shard has its name only when it is complete."""

STOP = "stop"
"""File in the `.partial` directory of a step that asks it to save its state and end."""


@dataclass(frozen=True)
class ExternalFile:
    """A file of the user. Its content (`digest`) and the part that is read are in fingerprints, its path, origin and
    licence are not."""

    path: Path
    digest: str
    member: str = ""
    """File inside this archive that is read; empty: the file itself."""
    columns: tuple[str | int, ...] = ()
    """Columns that are read: names, or numbers from 1; empty: those that the format determines."""
    origin: str = field(default="", compare=False)
    """URL or name of the data set that the file was downloaded from; empty for a file of this machine."""
    licence: str = field(default="", compare=False)
    """Licence of the file as its publisher states it; empty: unknown."""


@dataclass(frozen=True)
class Artifact:
    """The result of a step: a directory that is named by the fingerprint of its inputs."""

    path: Path
    fingerprint: str

    @property
    def records(self) -> Path:
        """The folder of records."""
        return self.path / RECORDS


@dataclass(frozen=True)
class Text(Artifact):
    """Parallel text.

    `shards/00000.arrow`, ... (id int64, source string, target string; for test sets with several references also references
    list<string>, the target first), `text.json` (rows, shards, shard_rows), for training text, and for
    text that lost units of its files, also `ledger.json`.
    """


@dataclass(frozen=True)
class Vocabulary(Artifact):
    """SentencePiece models: `source.spm`, `target.spm`, `vocabulary.json` (joint, source_size, target_size). The ids
    of a joint vocabulary have one meaning on both sides."""


@dataclass(frozen=True)
class Tokens(Artifact):
    """Token ids of parallel text.

    `shards/00000.arrow`, ... (id int64, source and target list<uint16 | uint32> without BOS and EOS), `tokens.json` (rows, shards,
    source_tokens, target_tokens, source_size, target_size; if long sources are truncated also max_source_tokens and sources_cut).
    """


@dataclass(frozen=True)
class Links(Artifact):
    """Links between words or pieces, with the rows and shards of the text.

    `shards/00000.arrow`, ... (id int64; forward list<int16>: the source position of each target word, -1 if it has no link; reverse
    list<int16>: the target position of each source word; link_sources and link_targets list<int16>: sorted positions of the
    symmetrised links), `align.json` (rows, shards, unit, engine, fitted parameters of each direction), and with the native engine
    `forward.align`, `reverse.align` (alignment models).
    """


@dataclass(frozen=True)
class Tables(Artifact):
    """Candidate tables.

    `tables.bin` (candidate tables with their line of lengths, memory-mapped), `lattice.json` (slope and intercept of the line;
    numbers of pairs and links that were counted, left out, dropped and cut; rows, entries).
    """

    @property
    def file(self) -> Path:
        """The file with the tables."""
        return self.path / "tables.bin"


@dataclass(frozen=True)
class Trained(Artifact):
    """A trained network.

    `model.safetensors` (averaged weights), `model.json` (family, network, vocabulary sizes, checksums), `kept/<update>.safetensors`
    (the best and the last weights, optionally the first), `training.json` (updates, validations, averaged updates).
    """


@dataclass(frozen=True)
class Ngram(Artifact):
    """An n-gram language model.

    `model.ngram` (memory-mapped), `model.arpa` (the same model in the ARPA format), `ngram.json` (order, counts and discounts by
    order, unit, side, engine, sentences, digest of its vocabulary).
    """


@dataclass(frozen=True)
class System(Artifact):
    """All files that decoding needs, in one directory (`models.bundle.directory`)."""


@dataclass(frozen=True)
class Tuned(Artifact):
    """Tuned options of a search: `tuned.json`.

    A tuned penalty has length_penalty, its score, and the scores of all candidates; a measured shortlist has shortlist: tokens
    (null: no number suffices), recall, written, links, expected_recall.
    """


@dataclass(frozen=True)
class Hypotheses(Artifact):
    """Hypotheses of a text.

    `shards/00000.arrow`, ... (id int64, rank int32, text string, ids list<uint32>, score float64, steps int32; margin float64, null
    if the search has no margins; source_tokens int32; with masks put_back int32, how many of them were put back; with drafting also
    drafting map<string, float64>), `hypotheses.txt` (the best hypothesis of each sentence, one a line), `decode.json` (rows,
    search, near_ties, unknown, with drafting also its statistics, see `stages.shared.decoding.draft_statistics`).
    """


@dataclass(frozen=True)
class Scores(Artifact):
    """Scores of hypotheses.

    `scores.json`: metric name -> {score, signature}. Optional: `head_and_tail.json` (`stages.shared.scoring.ngram_metrics`),
    `by_length.json`, `by_source_length.json`, `diversity.json`, `placeholders.json` and `terms.json` (`stages.score.breakdown`),
    `repetition.json` (`stages.score.breakdown`: `tokens` and `words` of hypotheses, `reference_tokens` and `reference_words`).
    """


@dataclass(frozen=True)
class Timings(Artifact):
    """Timings of systems: `systems.json` (systems, searches and sentences), `records/benchmark.json` (timings and conditions).

    Timings are records, since they are never compared.
    """


@dataclass(frozen=True)
class Report(Artifact):
    """The report of a run: `results.json`, `records/report.md`, `records/report.html` (one self-contained page)."""
