"""Loading of system directories."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fewstep.config.search import SearchConfig
from fewstep.decoding import Decoder
from fewstep.families.table import family_named
from fewstep.pieces import pieces_of
from fewstep.system.description import read_description
from fewstep.system.format import BundleError
from fewstep.system.integrity import REMEDY, check_parts
from fewstep.system.networks import sizes_of
from fewstep.system.remote import local_directory
from fewstep.system.system import System
from fewstep.text.masks import kinds_of

LoadDecoder = Callable[[Path, Mapping[str, Any], SearchConfig], Decoder]


def load(directory: str | os.PathLike[str], *, verify: bool = True) -> System:
    """Load a system that decodes in native code on a CPU, from its directory, a URL, `s3://` or `hf:ORG/NAME`
    (`fewstep.system.remote.local_directory`).

    With `verify`, the description and all parts are compared with their digests before any part is parsed; it reads every file
    once more. Raises `BundleError` (a ValueError) if the directory does not hold a complete system of this format, OSError if it
    lies elsewhere and cannot be copied.
    """
    return open_system(
        local_directory(directory),
        verify,
        lambda name: family_named(name).search,
        lambda path, description, search: family_named(description["family"]).load(path, description, search),
    )


def open_system(
    directory: Path, verify: bool, search_type: Callable[[str], type[SearchConfig]], load_decoder: LoadDecoder
) -> System:
    """Load a system whose decoder comes from `load_decoder(directory, description, default search)`.

    `search_type` returns the search type of a family, and raises ValueError for an unknown one. Raises BundleError as `load` does.
    """
    description = read_description(directory, verify)
    if verify:
        check_parts(directory, description)
    sizes = sizes_of(directory, description)
    searches, default = _searches(directory, description, search_type)
    source, target = _languages(directory, description)
    source_pieces = pieces_of(directory, description, "source", sizes.source)
    target_pieces = pieces_of(directory, description, "target", sizes.target)
    prefix = tuple(description.get("source_prefix", ()))
    if any(token >= sizes.source for token in prefix):
        raise BundleError(f"{directory / 'system.json'}: source_prefix: expected ids below {sizes.source}, got {list(prefix)}")
    decoder = load_decoder(directory, description, searches[default])
    longest = description["network"]["max_positions"] - 1 - bool(description["network"].get("source_bos"))
    cut = description.get("max_source_tokens")
    return System(
        name=description["name"],
        family=description["family"],
        task=description["task"],
        source_language=source,
        target_language=target,
        searches=searches,
        default_search=default,
        decoder=decoder,
        source_pieces=source_pieces,
        target_pieces=target_pieces,
        max_source_tokens=longest if cut is None else min(cut, longest),
        max_target_tokens=longest,
        cuts=cut is not None,
        masks=kinds_of(source_pieces),
        source_prefix=prefix,
    )


def _searches(
    directory: Path, description: Mapping[str, Any], search_type: Callable[[str], type[SearchConfig]]
) -> tuple[dict[str, SearchConfig], str]:
    """Return the searches of a system by label, and the label of the default one."""
    try:
        kind = search_type(description["family"])
        searches = {label: kind.from_values(values) for label, values in description["searches"].items()}
        if description["search"] not in searches:
            raise ValueError(f"search: expected one of {', '.join(searches)}, got {description['search']}")
    except ValueError as error:
        raise BundleError(f"{directory / 'system.json'}: {error}; use the version of fewstep that wrote it") from error
    return searches, description["search"]


def _languages(directory: Path, description: Mapping[str, Any]) -> tuple[str, str]:
    """Return the languages of the source and the target."""
    source, target = (description["languages"].get(side) for side in ("source", "target"))
    if not isinstance(source, str) or not isinstance(target, str):
        raise BundleError(f"{directory / 'system.json'}: languages: expected source and target as text; {REMEDY}")
    return source, target
