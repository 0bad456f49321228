"""The artifact types: what each directory holds. Readers live with the stage that writes the type."""

from dataclasses import dataclass
from pathlib import Path

MANIFEST = "manifest.json"
"""Written last into an artifact's directory: where it is, the artifact is finished."""

RECORDS = "records"
"""Folder of what is never compared: timings, logs, metrics, figures."""

CHECKPOINTS = "checkpoints"
"""Folder of what a later attempt resumes from; dropped once the step is done."""

STOP = "stop"
"""A file of this name in a step's `.partial` directory asks it to save its state and end."""


@dataclass(frozen=True)
class ExternalFile:
    """A file of the user's. It enters a fingerprint by content (`digest`), never by path."""

    path: Path
    digest: str


@dataclass(frozen=True)
class Artifact:
    """What a step leaves: a directory, named by the fingerprint of all that went into it."""

    path: Path
    fingerprint: str

    @property
    def records(self) -> Path:
        return self.path / RECORDS


@dataclass(frozen=True)
class Text(Artifact):
    """`shards/00000.arrow ...` (id int64, source string, target string; test sets with several references also
    references list<string>, the target first), `text.json` (rows, shards, shard_rows), for training text also `ledger.json`."""


@dataclass(frozen=True)
class Vocabulary(Artifact):
    """`source.spm`, `target.spm` (the same bytes when joint), `vocabulary.json` (joint, source_size, target_size)."""


@dataclass(frozen=True)
class Tokens(Artifact):
    """`shards/00000.arrow ...` (id int64, source list<uint16 | uint32>, target likewise; no BOS, no EOS), `tokens.json`
    (rows, shards, source_tokens, target_tokens, source_size, target_size; where long sources are cut also max_source_tokens and
    sources_cut)."""


@dataclass(frozen=True)
class Links(Artifact):
    """Word links, with the rows and shards of the text: `shards/00000.arrow ...` (id int64; forward list<int16>: the source
    position of each target word, -1 for none; reverse list<int16>: the target position of each source word; link_sources and
    link_targets list<int16>: positions of the symmetrised links, sorted), `align.json` (rows, shards, unit, engine, what each
    direction was fitted to), and from the native engine `forward.align`, `reverse.align` (`kernels.AlignmentModel`)."""


@dataclass(frozen=True)
class Tables(Artifact):
    """`tables.bin` (candidate tables with their length line, mapped by `kernels.CandidateTables`), `lattice.json` (the line's slope
    and intercept; pairs and links that were counted, left out, dropped and cut; rows, entries)."""

    @property
    def file(self) -> Path:
        return self.path / "tables.bin"


@dataclass(frozen=True)
class Trained(Artifact):
    """`model.safetensors` (the averaged weights), `model.json` (family, network, vocabulary sizes, checksums),
    `kept/<update>.safetensors` (the best and the last weights, by option the first), `training.json` (updates, validations, what
    was averaged)."""


@dataclass(frozen=True)
class Ngram(Artifact):
    """`model.ngram` (mapped by `kernels.NgramModel.load`), `model.arpa` (the same as text), `ngram.json` (order, counts and
    discounts by order, unit, side, engine, sentences, the digest of its words)."""


@dataclass(frozen=True)
class System(Artifact):
    """Everything that decoding needs, in one directory (`models.bundle.directory`)."""


@dataclass(frozen=True)
class Tuned(Artifact):
    """`tuned.json`: the length_penalty chosen for a search and its score, and those tried beside it."""


@dataclass(frozen=True)
class Hypotheses(Artifact):
    """`shards/00000.arrow ...` (id int64, rank int32, text string, ids list<uint32>, score float64, steps int32; margin float64,
    null where the search told none; source_tokens int32; where drafts were verified also drafting map<string, float64>),
    `hypotheses.txt` (the best of each sentence, one a line), `decode.json` (rows, search, near_ties; drafting, see
    `stages.decode.draft_statistics`)."""


@dataclass(frozen=True)
class Scores(Artifact):
    """`scores.json`: metric name -> {score, signature}; where it was asked for, `head_and_tail.json` (`stages.ngram.counts`),
    `by_length.json` and `diversity.json` (`stages.score.breakdown`)."""


@dataclass(frozen=True)
class Likelihood(Artifact):
    """`shards/00000.arrow ...` (id int64; log_probability float64, null where left_out string says why; tokens int32 with EOS),
    `likelihood.json` (rows, left_out by reason, tokens and log_probability of the others, perplexity, vocabulary)."""


@dataclass(frozen=True)
class Contrasted(Artifact):
    """`shards/00000.arrow` (source, right, wrong; distance int32; log-probabilities and tokens of both), `contrastive.json` (pairs,
    left_out, correct, correct_by_mean, bands: the counts by distance)."""


@dataclass(frozen=True)
class DagAnalysis(Artifact):
    """`dag_analysis.json` (`stages.dag_analysis.statistics`), and drawings in `records/figures`."""


@dataclass(frozen=True)
class LatticeAnalysis(Artifact):
    """`lattice_analysis.json`: candidates, sentences, impossible (without a path); words and edges: how many of those on best paths
    had a rank up to 1, 2, 4, ... before the search. As records, what each part of decoding takes (`latency.json`)."""


@dataclass(frozen=True)
class Timings(Artifact):
    """`records/benchmark.json`: what was measured under which conditions. A timing is never a result that is compared."""


@dataclass(frozen=True)
class Report(Artifact):
    """`results.json`; `records/report.md`, `records/report.html` (one self-contained page)."""
