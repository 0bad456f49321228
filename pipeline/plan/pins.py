"""Pinned artifacts: finished ones that a config names by directory (`from:`) instead of describing the step that makes them.

Each function raises DataError when the directory holds no finished artifact of the right stage, or one that does not match this
run, and ArtifactError when a file of it was altered.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

from fewstep.config.network import NetworkConfig
from fewstep.config.search import LimitedSearch, SystemParts
from fewstep.system.description import read_description
from fewstep.system.format import DRAFTER, NGRAM, RESCORER, SOURCE_PIECES, TABLES, BundleError, network_folders
from fewstep.system.integrity import SEAL, check_parts
from fewstep.system.networks import network_of, sizes_of
from fewstep.text.languages import base_code
from fewstep.vocabulary import vocabulary_digest
from models.family import family_named
from models.training.recipe import TrainedSystem
from pipeline.config.schema import Pinned, RunConfig
from pipeline.config.systems import FinishedSystem
from pipeline.plan.stage_configs import is_split
from pipeline.store.artifacts import Store
from pipeline.store.attempts import partial_directory
from pipeline.store.files import read_json
from pipeline.store.manifest import Manifest
from stages import distill, import_network, ngram, system, train, vocabulary
from stages.artifacts import Artifact, Ngram, System, Text, Trained, Vocabulary
from stages.errors import DataError, unwritable
from stages.stage import Stage
from stages.vocabulary.words import is_word_model

NETWORKS = (system.STAGE, train.STAGE, import_network.STAGE)


def pinned_vocabulary(pin: Pinned, store: Store) -> Vocabulary:
    """Return the vocabulary at `vocabulary.from`, which may be that of a system."""
    artifact, _ = _pinned(store, [vocabulary.STAGE, system.STAGE, import_network.STAGE], pin.path, "vocabulary.from")
    return Vocabulary(artifact.path, artifact.fingerprint)


def pinned_ngram(pin: Pinned, store: Store, vocabulary: Vocabulary) -> Ngram:
    """Return the language model at `ngram.from`, whose pieces must be those of `vocabulary`."""
    artifact, manifest = store.pinned([ngram.STAGE], pin.path, "ngram.from")
    found = manifest.inputs.get("vocabulary")
    if found and found != vocabulary.fingerprint:
        raise DataError(
            f"ngram.from: expected a model over this run's vocabulary {vocabulary.fingerprint[:8]}, got one over {found[:8]}: "
            f"{pin.path}; pin that vocabulary too (vocabulary.from), or remove ngram.from to estimate a new model"
        )
    return cast(Ngram, artifact)


def pinned_teacher(pin: Pinned, store: Store, vocabulary: Vocabulary) -> Trained | System:
    """Return the training or the system at `teacher.from`. A training must use `vocabulary`; a system brings its own."""
    artifact, manifest = _pinned(store, NETWORKS, pin.path, "teacher.from")
    if manifest and manifest.stage == train.STAGE.name and manifest.inputs["vocabulary"] != vocabulary.fingerprint:
        raise DataError(
            f"teacher.from: expected a network trained on this run's vocabulary {vocabulary.fingerprint[:8]}, got one trained on "
            f"{manifest.inputs['vocabulary'][:8]}: {pin.path}; pin that vocabulary too (vocabulary.from), or name the directory "
            "of a system, which brings its own"
        )
    return cast(Trained | System, artifact)


def pinned_weights(path: Path, key: str, settings: TrainedSystem, store: Store, vocabulary: Vocabulary) -> Trained | System:
    """Return the network at `initial_weights.from`, which must have the run's vocabulary and, if it is of the same family, the
    network of the system."""
    place = f"{key}.initial_weights.from"
    artifact, manifest = _pinned(store, NETWORKS, path, place)
    trained = manifest is not None and manifest.stage == train.STAGE.name
    if trained:
        assert manifest is not None
        found = store.manifest(vocabulary.path)
        known = {vocabulary.fingerprint, found.inputs.get("vocabulary") if found else None}
        same = manifest.inputs["vocabulary"] in known
    else:
        same = (vocabulary.path / "source.spm").is_file() and vocabulary_digest(vocabulary.path) == vocabulary_digest(artifact.path)
    if not same:
        raise DataError(
            f"{place}: expected a network with this run's vocabulary, got one whose embeddings are of other "
            f"pieces: {path}; use its vocabulary (vocabulary: {{from: ...}})"
        )
    _check_network(path, place, settings, "model.json" if trained else "system.json")
    return cast(Trained | System, artifact)


def _check_network(path: Path, place: str, settings: TrainedSystem, name: str) -> None:
    """Raise DataError for a network of the system's family with other options, of which only a part would be taken."""
    described = read_json(path / name)
    if described.get("family") != settings.family:
        return
    own, found = vars(settings.network), described["network"]
    differing = [key for key, value in own.items() if key in found and _plain(found[key]) != _plain(value)]
    if differing:
        values = ", ".join(f"{key}: {found[key]}" for key in differing)
        raise DataError(f"{place}: expected the network of {path}, got other options; state {values}")


def _plain(value: Any) -> Any:
    """Return tuples as the lists that JSON has, and other values as they are."""
    return list(value) if isinstance(value, tuple) else value


def _pinned(store: Store, stages: Sequence[Stage[Any, Any, Any]], path: Path, key: str) -> tuple[Artifact, Manifest | None]:
    """Return the artifact at `path` and its manifest; None for a directory of a system that was exported or copied, which has none
    and is copied into the store."""
    if store.manifest(path) is None and system.STAGE in stages and (path / "system.json").is_file():
        try:
            description = read_description(path)
            check_parts(path, description)
        except BundleError as error:
            raise DataError(f"{key}: {error}") from error
        return _taken_in(store, path, description), None
    return store.pinned(stages, path, key)


def _taken_in(store: Store, path: Path, description: Mapping[str, Any]) -> System:
    """Copy a system into the store, unless it has it, and return it. The digest of its description, which holds those of all
    parts, stands for its fingerprint. Raises StageError if the disk is full."""
    seal = str(description[SEAL])
    directory = store.directory(system.STAGE.name, seal[:32])
    if store.manifest(directory) is None:
        origin = description.get("origin", {})
        source = f"{origin['kind']}:{origin['name']}" if origin else str(path)
        entry = {"name": "system", "from": source, "sha256": seal, "licence": str(origin.get("licence", "unknown"))}
        attempt = token_hex(4)
        partial = partial_directory(directory, attempt)
        try:
            for part in ("system.json", *description["parts"]):
                (partial / part).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path / part, partial / part)
        except OSError as error:
            raise unwritable(partial, error) from error
        store.commit(
            directory,
            Manifest(
                stage=system.STAGE.name,
                version=system.STAGE.version,
                step=f"system:{description['name']}",
                fingerprint=seal[:32],
                config={},
                inputs={},
                environment={},
                code_digest="",
                git_revision="",
                run_id="",
                attempt=attempt,
                seconds=0.0,
                finished=time.time(),
                origin=[entry],
            ),
        )
    return System(directory, seal[:32])


def pinned_system(key: str, settings: FinishedSystem, config: RunConfig, store: Store) -> tuple[System, NetworkConfig]:
    """Return the system at `from` of the system `key`, and its network. The system must be of the run's task and languages, read
    text that is split as that of the run, and have its searches."""
    place = f"{key}.from"
    artifact, _ = _pinned(store, (system.STAGE, import_network.STAGE), settings.path, place)
    try:
        description = read_description(artifact.path, verify=False)
        if description["family"] != settings.family:
            raise DataError(f"{key}.family: expected {description['family']}, the family of {settings.path}, got {settings.family}")
        network = network_of(artifact.path, description, family_named(settings.family).network)
    except BundleError as error:
        raise DataError(f"{place}: {error}") from error
    _check_text(place, settings.path, description, config, words=is_word_model(artifact.path / SOURCE_PIECES))
    parts = _parts_of(artifact.path, description)
    for label, search in settings.search.items():
        for problem in search.problems(network, parts):
            raise DataError(f"{key}.search.{label}.{problem.text()}; it is the system of {settings.path}")
    return cast(System, artifact), network


def _check_text(place: str, path: Path, description: Mapping[str, Any], config: RunConfig, *, words: bool) -> None:
    """Raise DataError for a system of another task, of other languages, or of text that is split in another way."""
    languages = tuple(base_code(description["languages"][side]) for side in ("source", "target"))
    wanted = (base_code(config.languages.source), base_code(config.languages.target))
    if (description["task"], languages) != (config.task, wanted):
        raise DataError(
            f"{place}: expected a system of {config.task} from {wanted[0]} to {wanted[1]}, got one of {description['task']} from "
            f"{languages[0]} to {languages[1]}: {path}"
        )
    if words != is_split(config):
        kinds = {True: "split into tokens already", False: "not split"}
        raise DataError(
            f"{place}: expected a system of text that is {kinds[is_split(config)]}, as that of the run, got one of text that is "
            f"{kinds[words]}: {path}; name a vocabulary of such text (docs/guide/data.md)"
        )


def _parts_of(directory: Path, description: Mapping[str, Any]) -> SystemParts:
    parts = description["parts"]
    return SystemParts(
        ngram=NGRAM in parts,
        tables=TABLES in parts,
        drafter=f"{DRAFTER}/system.json" in parts,
        rescorer=f"{RESCORER}/system.json" in parts,
        networks=len(network_folders(description)),
        target_size=sizes_of(directory, description).target,
    )


def pinned_back_translator(path: Path, store: Store, languages: tuple[str, str]) -> tuple[System, LimitedSearch]:
    """Return the system at `corpus.back_translation.by`, which must translate between these languages, and its default search."""
    place = "corpus.back_translation.by"
    artifact, _ = _pinned(store, (system.STAGE, import_network.STAGE), path, place)
    described = read_json(artifact.path / "system.json")
    found = tuple(described["languages"][side] for side in ("source", "target"))
    if tuple(map(base_code, found)) != tuple(map(base_code, languages)):
        raise DataError(f"{place}: expected a system from {' to '.join(languages)}, got one from {' to '.join(found)}: {path}")
    search = family_named(described["family"]).search.from_values(described["searches"][described["search"]])
    return cast(System, artifact), cast(LimitedSearch, search)


def pinned_distillation(pin: Pinned, store: Store, training: Text) -> Text:
    """Return the text at `distillation.from`, which must be the teacher's output for `training`."""
    artifact, manifest = store.pinned([distill.STAGE], pin.path, "distillation.from")
    if manifest.inputs["text"] != training.fingerprint:
        raise DataError(
            f"distillation.from: expected outputs for this run's training text {training.fingerprint[:8]}, which holds no test "
            f"sentence, got outputs for {manifest.inputs['text'][:8]}: {pin.path}; restore the corpus settings of that text, or "
            "remove distillation.from to distil again"
        )
    return cast(Text, artifact)
