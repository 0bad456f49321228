"""Run the system stage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from fewstep.config.network import Sizes
from fewstep.config.search import SearchConfig
from fewstep.pieces import MappedPieces
from fewstep.system.format import MERGES, WEIGHTS, BundleError
from models.bundle.directory import links_of, load_system, write_system, write_with_searches
from models.bundle.weights import save_weights
from models.training import averaging
from models.training.config import TrainingConfig
from models.training.finite import NotFiniteError
from stages.artifacts import CHECKPOINTS
from stages.context import Context, StepContext
from stages.errors import ArtifactError, unwritable
from stages.shared.decoding.searches import with_tuned_options
from stages.shared.tasks import TaskName, validation_quality
from stages.shared.vocabulary import processor
from stages.system import SystemConfig, SystemInputs


def run(inputs: SystemInputs, config: SystemConfig, context: StepContext) -> None:
    """Write the system and load it once, so that parts that do not fit are found here.

    Raises ArtifactError when weights, network and vocabulary do not belong together, or when weights are not finite; StageError
    when the disk is full.
    """
    searches = {label: with_tuned_options(search, inputs.tuned.get(label)) for label, search in config.searches.items()}
    try:
        if inputs.alone is None:
            _bundle(inputs, config, searches, context)
        else:
            write_with_searches(context.directory, inputs.alone.path, searches, config.default)
        load_system(context.directory)
    except (BundleError, NotFiniteError) as error:
        raise ArtifactError(f"system {config.name}: {error}") from error
    except OSError as error:
        raise unwritable(context.directory, error) from error


def _bundle(inputs: SystemInputs, config: SystemConfig, searches: Mapping[str, SearchConfig], context: StepContext) -> None:
    assert inputs.trained is not None
    assert inputs.vocabulary is not None
    trained = inputs.trained.path
    vocabulary = inputs.vocabulary.path
    description = json.loads((trained / "model.json").read_text(encoding="utf-8"))
    if description["family"] != config.family:
        raise ArtifactError(
            f"{trained}: expected a network of family {config.family}, got {description['family']}; use a training of this family"
        )
    if inputs.tables is not None:
        _check_links(inputs.tables.file, trained)
    write_system(
        context.directory,
        family=config.family,
        network=description["network"],
        sizes=Sizes(**description["sizes"]),
        weights=_weights(trained, config, description["network"], context),
        members=[member.path / WEIGHTS for member in inputs.members],
        source_vocabulary=vocabulary / "source.spm",
        target_vocabulary=vocabulary / "target.spm",
        name=config.name,
        source_language=config.source_language,
        target_language=config.target_language,
        searches=searches,
        default=config.default,
        task=config.task,
        max_source_tokens=config.max_source_tokens,
        ngram=None if inputs.ngram is None else inputs.ngram.path / "model.ngram",
        tables=None if inputs.tables is None else inputs.tables.file,
        merges=vocabulary / MERGES if (vocabulary / MERGES).is_file() else None,
        companions={role: companion.path for role, companion in inputs.companions.items()},
        imported=_map_of(vocabulary),
    )


def _map_of(vocabulary: Path) -> dict[str, Any]:
    """Return the description of a vocabulary whose ids come from a map of pieces, that of an imported teacher; empty for others."""
    sides = {side: processor(vocabulary, side) for side in ("source", "target")}
    unmapped = {side: pieces.unmapped for side, pieces in sides.items() if isinstance(pieces, MappedPieces)}
    return {"unmapped_pieces": unmapped} if unmapped else {}


def _weights(trained: Path, config: SystemConfig, network: dict[str, Any], context: Context) -> Path:
    """The file with the weights of the training, or with the mean of the selected candidates."""
    if config.averaging is None:
        return trained / WEIGHTS
    path = context.directory / CHECKPOINTS / f"mean.{context.attempt}.safetensors"
    path.parent.mkdir(exist_ok=True)
    save_weights(path, _mean(trained, config.averaging, config.task), network)
    return path


def _mean(trained: Path, recipe: TrainingConfig, task: TaskName) -> dict[str, Tensor]:
    """The mean of the candidates that `recipe` selects, which are among those that the training kept."""
    found = json.loads((trained / "training.json").read_text(encoding="utf-8"))["validations"]
    validations = [averaging.Validation(one["update"], one["loss"], one[validation_quality(recipe, task)]) for one in found]
    return averaging.mean([load_file(trained / "kept" / f"{update}.safetensors") for update in averaging.kept(recipe, validations)])


def _check_links(path: Path, trained: Path) -> None:
    """Raise ArtifactError for tables of other links than those that the training was validated with."""
    expected = json.loads((trained / "training.json").read_text(encoding="utf-8")).get("links")
    try:
        found = links_of(path)
    except BundleError as error:
        raise ArtifactError(f"{error}; remove the artifact and run again") from error
    if expected is not None and found != expected:
        raise ArtifactError(
            f"{path}: expected candidate tables of the links {expected[:16]}, which the training was validated with, got those of "
            f"{found[:16]}; use the tables of the training, or train again"
        )
