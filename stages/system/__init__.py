"""Put everything that decoding needs into one directory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.training.config import TrainingConfig
from stages.artifacts import Ngram, System, Tables, Trained, Tuned, Vocabulary
from stages.errors import ArtifactError, unwritable
from stages.families import Search
from stages.score.tasks import TASKS, TaskName
from stages.stage import CHECKPOINTS, Stage, Work

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SystemInputs:
    trained: Trained
    vocabulary: Vocabulary
    ngram: Ngram | None = None
    """A language model over the target's pieces, for searches that ask it."""
    tables: Tables | None = None
    """Candidate tables, for a family that looks its words up: those that its training was validated with."""
    tuned: Tuned | None = None
    """The default search's length penalty; none: its own."""
    members: tuple[Trained, ...] = ()
    """Further trainings of the same network: all write together, by the mean of their probabilities."""
    verifier: System | None = None
    """The system whose network verifies what this one drafts."""
    drafter: System | None = None
    """Another system, whose outputs this one may draft from."""


@dataclass(frozen=True, kw_only=True)
class SystemConfig:
    """What a system says of itself."""

    name: str
    """Name of the system."""
    family: str
    """Family of its network."""
    source_language: str
    """Language code of what it reads."""
    target_language: str
    """Language code of what it writes."""
    search: Search
    """Its default search."""
    task: TaskName = "translation"
    """What it does."""
    max_source_tokens: int | None = None
    """Longer sources are cut to their first so many tokens, as in training; None: only what the network cannot take is cut."""
    averaging: TrainingConfig | None = None
    """Which of the candidates that its training kept are averaged; None: those that the training averaged."""


def run(inputs: SystemInputs, config: SystemConfig, work: Work) -> None:
    """Write the system and load it once, so that what does not fit together fails here.

    Raises ArtifactError when weights, network and vocabulary do not belong to one another, StageError when the disk is full.
    """
    from models.bundle.directory import load_system, write_system
    from models.bundle.weights import WEIGHTS, BundleError
    from models.family import Sizes
    from stages.tune import with_tuned_penalty

    trained, vocabulary = inputs.trained.path, inputs.vocabulary.path
    description = json.loads((trained / "model.json").read_text(encoding="utf-8"))
    if description["family"] != config.family:
        raise ArtifactError(f"{trained}: expected a network of family {config.family}, got {description['family']}")
    _check_links(inputs)
    try:
        write_system(
            work.directory,
            family=config.family,
            network=description["network"],
            sizes=Sizes(**description["sizes"]),
            weights=_weights(inputs, config, description["network"], work),
            members=[member.path / WEIGHTS for member in inputs.members],
            source_vocabulary=vocabulary / "source.spm",
            target_vocabulary=vocabulary / "target.spm",
            name=config.name,
            source_language=config.source_language,
            target_language=config.target_language,
            search=with_tuned_penalty(config.search, inputs.tuned),
            task=config.task,
            max_source_tokens=config.max_source_tokens,
            ngram=None if inputs.ngram is None else inputs.ngram.path / "model.ngram",
            tables=None if inputs.tables is None else inputs.tables.file,
            companions={
                name: companion.path
                for name, companion in (("verifier", inputs.verifier), ("drafter", inputs.drafter))
                if companion is not None
            },
        )
        load_system(work.directory)
    except BundleError as error:
        raise ArtifactError(f"system {config.name}: {error}") from error
    except OSError as error:
        raise unwritable(work.directory, error) from error


def _weights(inputs: SystemInputs, config: SystemConfig, network: dict[str, Any], work: Work) -> Path:
    """The file with the weights of the training, or with the mean of other candidates of it."""
    from models.bundle.weights import WEIGHTS, save_weights

    if config.averaging is None:
        return inputs.trained.path / WEIGHTS
    path = work.directory / CHECKPOINTS / "mean.safetensors"
    path.parent.mkdir(exist_ok=True)
    save_weights(path, _mean(inputs.trained.path, config.averaging, config.task), network)
    return path


def _mean(trained: Path, recipe: TrainingConfig, task: TaskName) -> dict[str, Tensor]:
    """The mean of the candidates that `recipe` chooses; it may choose fewer than the training did, which kept no others."""
    from safetensors.torch import load_file

    from models.training import averaging

    found = json.loads((trained / "training.json").read_text(encoding="utf-8"))["validations"]
    validations = [averaging.Validation(one["update"], one["loss"], one[TASKS[task].metric]) for one in found]
    return averaging.mean([load_file(trained / "kept" / f"{update}.safetensors") for update in averaging.kept(recipe, validations)])


def _check_links(inputs: SystemInputs) -> None:
    """Raises ArtifactError for tables of other links than those that the training was validated with."""
    from models.bundle.directory import BundleError, links_of

    if inputs.tables is None:
        return
    path = inputs.tables.file
    told = json.loads((inputs.trained.path / "training.json").read_text(encoding="utf-8")).get("links")
    try:
        found = links_of(path)
    except BundleError as error:
        raise ArtifactError(f"{error}; remove the artifact and run again") from error
    if told is not None and found != told:
        raise ArtifactError(
            f"{path}: expected candidate tables of the links {told[:16]}, which the training was validated with, got those of "
            f"{found[:16]}; they were counted from another alignment"
        )


STAGE = Stage(name="system", version=2, run=run, output=System, product=True)
