"""Export of finished systems to the formats of other toolkits."""

from __future__ import annotations

import shutil
from pathlib import Path

from fewstep.config.options import Shortlist
from fewstep.pieces import pieces_of
from fewstep.system.description import read_description
from fewstep.system.format import SOURCE_PIECES, TARGET_PIECES, network_folders
from fewstep.system.integrity import check_parts
from fewstep.system.networks import sizes_of
from fewstep.system.parts import load_lexicon
from models.bundle.weights import make_model
from models.stepwise.ctranslate2_model import MAP, convertible, vocabulary_map, write_model


def export_ctranslate2(
    system: Path, directory: Path, precision: str, verify: bool = True, shortlist: Shortlist | None = None
) -> None:
    """Write a CTranslate2 model of an autoregressive system into `directory`, with weights in `precision` and its vocabularies,
    and a vocabulary map for a `shortlist` of stated size.

    To use it, encode a line as pieces with `source.spm` (CTranslate2 appends EOS) and decode pieces with `target.spm`. With
    `verify`, the system's files are compared with their digests first. Raises BundleError for a directory that does not hold a
    complete system, EngineError if CTranslate2 is not installed, and ValueError for a network that CTranslate2 cannot express.
    """
    description = read_description(system, verify)
    if verify:
        check_parts(system, description)
    if len(network_folders(description)) > 1:
        raise ValueError("CTranslate2: expected a single network, got an ensemble")
    model = convertible(make_model(system, description, "cpu"))
    sizes = sizes_of(system, description)
    source, target = (pieces_of(system, description, side, getattr(sizes, side)) for side in ("source", "target"))
    names = [[pieces.id_to_piece(id_) for id_ in range(len(pieces))] for pieces in (source, target)]
    write_model(model, directory, source_pieces=names[0], target_pieces=names[1], precision=precision)
    lexicon = load_lexicon(system, description, sizes) if shortlist else None
    if shortlist is not None and lexicon is not None:
        text = vocabulary_map(shortlist, lexicon, source_pieces=names[0], target_pieces=names[1])
        (directory / MAP).write_text(text, encoding="utf-8")
    for part in (SOURCE_PIECES, TARGET_PIECES):
        shutil.copyfile(system / part, directory / part)
