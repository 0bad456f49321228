"""Directories of networks: the result of a training, and a whole system.

A training writes `model.json` and `model.safetensors`. A system consists of `system.json` (format, task, name, network, vocabulary
sizes, searches), `model.safetensors`, `source.spm` and `target.spm`; of `ngram/` if a search needs a language model, `tables/` if
candidates are looked up, `members/` if it is an ensemble, and `verifier/` and `drafter/`, which are systems themselves, if it works
with others. It needs nothing else to decode.

Both descriptions contain the size and the checksum of every file beside them (`fewstep.system.integrity`); each load compares them.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fewstep import CandidateTables
from fewstep.config.network import Sizes
from fewstep.config.search import SearchConfig
from fewstep.system.description import (
    SYSTEM_FORMAT,
    TRAINING_FORMAT,
    TRAINING_KEYS,
    read_description,
    read_versioned,
)
from fewstep.system.format import (
    CODES,
    MEMBERS,
    MERGES,
    NGRAM,
    SOURCE_PIECES,
    TABLES,
    TARGET_PIECES,
    WEIGHTS,
    BundleError,
    network_folders,
    write_json,
)
from fewstep.system.integrity import SEAL, check_parts, measure, seal
from fewstep.system.load import open_system
from fewstep.system.system import System
from models.bundle.weights import describe, make_model, save_weights
from models.common.layers.backbone import Backbone
from models.family import family_named

__all__ = ["System", "links_of", "load_model", "load_system", "save_model", "write_system", "write_with_searches"]


def save_model(
    directory: Path, family: str, network: Any, sizes: Sizes, state: Mapping[str, Tensor], kept: Sequence[str] = ()
) -> None:
    """Write the result of a training. `network` is the family's config dataclass, `state` a state dict.

    `kept` names files with other weights of the same network that are already in the directory.
    """
    directory.mkdir(parents=True, exist_ok=True)
    description = describe(family, network, sizes)
    save_weights(directory / WEIGHTS, state, description["network"])
    parts = {name: measure(directory / name) for name in (WEIGHTS, *kept)}
    write_json(directory / "model.json", seal({**description, "format": TRAINING_FORMAT, "parts": parts}))


def load_model(directory: Path, device: str = "cpu", weights: str = WEIGHTS, verify: bool = True) -> nn.Module:
    """Load the network of a directory that `save_model` wrote, in evaluation mode; `weights` names other weights that were kept
    there.

    With `verify`, the description and the weights are compared with their digests first. Raises BundleError.
    """
    description = read_versioned(directory / "model.json", "a trained network", TRAINING_FORMAT, TRAINING_KEYS, verify)
    if verify:
        check_parts(directory, description, [weights])
    return make_model(directory, description, device, weights)


def write_system(
    directory: Path,
    *,
    family: str,
    network: Any,
    sizes: Sizes,
    weights: Path,
    members: Sequence[Path] = (),
    source_vocabulary: Path,
    target_vocabulary: Path,
    name: str,
    source_language: str,
    target_language: str,
    searches: Mapping[str, SearchConfig],
    default: str = "",
    task: str = "translation",
    max_source_tokens: int | None = None,
    ngram: Path | None = None,
    tables: Path | None = None,
    merges: Path | None = None,
    companions: Mapping[str, Path] | None = None,
    imported: Mapping[str, Any] | None = None,
) -> None:
    """Write a system. `network` is the family's dataclass or an equal mapping; files are copied.

    `searches` are the family's dataclasses by label; `default` is the label of the default search (empty: the first).

    `members` are weights of further networks of the same sizes: the system decodes with the mean of their probabilities.
    `companions` are systems that are copied into this one, each into a directory of its own (`verifier`, `drafter`).
    Longer sources than `max_source_tokens` (without EOS) are cut wherever the system reads them, as they were in its training.
    `imported` holds the further keys of a system from another toolkit: `source_prefix`, `unmapped_pieces`, `origin`.
    `merges` are those of a vocabulary of byte-level BPE. The recorded checksums are those of the originals. Raises BundleError if
    `tables` is not a file of candidate tables.
    """
    directory.mkdir(parents=True, exist_ok=True)
    described = describe(family, network, sizes)
    parts = {WEIGHTS: weights, SOURCE_PIECES: source_vocabulary, TARGET_PIECES: target_vocabulary}
    parts |= {f"{MEMBERS}/{number}/{WEIGHTS}": member for number, member in enumerate(members, 2)}
    further = {NGRAM: ngram, TABLES: tables, MERGES: merges}
    parts |= {part: path for part, path in further.items() if path is not None}
    measured = _copy_parts(directory, parts, companions or {})
    for folder in network_folders({"parts": measured}):
        measured |= _write_codes(directory, folder, described)
    description = {
        "task": task,
        "name": name,
        "languages": {"source": source_language, "target": target_language},
        "parts": measured,
        **_described_searches(searches, default),
    }
    if max_source_tokens is not None:
        description["max_source_tokens"] = max_source_tokens
    if tables is not None:
        description["links"] = links_of(tables)
    description |= {**described, **(imported or {})}
    write_json(directory / "system.json", seal({**description, "format": SYSTEM_FORMAT}))


def _copy_parts(directory: Path, parts: Mapping[str, Path], companions: Mapping[str, Path]) -> dict[str, Any]:
    """Copy files and companions, and return their sizes and checksums by their names in the directory."""
    origins = dict(parts)
    measured = {file: measure(origin) for file, origin in parts.items()}
    for companion, origin in companions.items():
        files = {"system.json": measure(origin / "system.json"), **read_description(origin)["parts"]}
        measured |= {f"{companion}/{file}": values for file, values in files.items()}
        origins |= {f"{companion}/{file}": origin / file for file in files}
    for file, origin in origins.items():
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(origin, directory / file)
    return measured


def write_with_searches(directory: Path, origin: Path, searches: Mapping[str, SearchConfig], default: str = "") -> None:
    """Write the system in `origin` with other searches. All of its parts are links to those of `origin`, or copies where the file
    system has no links; both directories remain complete if the other one is deleted.

    `default` is the label of the default search (empty: the first). Raises BundleError if `origin` is no complete system.
    """
    described = {key: value for key, value in read_description(origin).items() if key != SEAL}
    for part in described["parts"]:
        target = directory / part
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # of an attempt before: a copy into a link would write into both
        try:
            target.hardlink_to(origin / part)
        except OSError:
            shutil.copyfile(origin / part, target)
    write_json(directory / "system.json", seal({**described, **_described_searches(searches, default)}))


def _described_searches(searches: Mapping[str, SearchConfig], default: str) -> dict[str, Any]:
    return {
        "search": default or next(iter(searches)),
        "searches": {label: search.values() for label, search in searches.items()},
    }


def _write_codes(directory: Path, folder: str, described: Mapping[str, Any]) -> dict[str, Any]:
    """Write the codes of the network in `folder`, and return their size and checksum by their name in the directory."""
    model = make_model(directory, described, "cpu", f"{folder}/{WEIGHTS}")
    if not isinstance(model, Backbone):
        return {}
    with torch.no_grad():
        save_weights(directory / folder / CODES, model.codes())
    return {str(Path(folder) / CODES): measure(directory / folder / CODES)}


def links_of(tables: Path) -> str:
    """Return the digest of the links from which candidate tables were counted. Raises BundleError for a file that is not a
    table."""
    try:
        return CandidateTables.load(tables).summary.links.hex()
    except (OSError, ValueError) as error:
        raise BundleError(f"{tables}: {error}") from error


def load_system(directory: Path | str, device: str = "cpu", verify: bool = True) -> System:
    """Load a system that any of its engines decodes. Raises BundleError if the directory does not hold a complete one.

    With `verify`, the description and all parts are compared with their digests before any part is parsed.
    """
    return open_system(
        Path(directory),
        verify,
        lambda name: family_named(name).search,
        lambda path, description, search: family_named(description["family"]).functions.load(path, description, search, device),
    )
