"""Run the import stage."""

from __future__ import annotations

from fewstep.system.format import BundleError
from models.bundle.directory import load_system
from models.imports.bart import read_bart
from models.imports.fairseq import Dictionary, FairseqSide, read_fairseq
from models.imports.files import ForeignModelError, content_of
from models.imports.foreign import ForeignModel, write_foreign
from models.imports.marian import read_marian
from stages.context import StepContext
from stages.errors import DataError, unwritable
from stages.import_network import ImportConfig, ImportInputs
from stages.shared.dictionary import symbols


def run(inputs: ImportInputs, config: ImportConfig, context: StepContext) -> None:
    """Write the system, and `vocabulary.json`, which makes the directory a vocabulary as well; load it once.

    Raises DataError for files that do not hold a network of the format, StageError when the disk is full.
    """
    try:
        model = _read(inputs, config)
        write_foreign(
            model,
            context.directory,
            name=config.name,
            source_language=config.source_language,
            target_language=config.target_language,
        )
        context.write_json(context.directory / "vocabulary.json", model.vocabulary)
        load_system(context.directory)
    except (ForeignModelError, BundleError) as error:
        raise DataError(f"teacher.{config.kind}: {config.name}: {error}") from error
    except OSError as error:
        raise unwritable(context.directory, error) from error


def _read(inputs: ImportInputs, config: ImportConfig) -> ForeignModel:
    if config.kind == "fairseq":
        return _read_fairseq(inputs, config)
    files = {name: file.path for name, file in inputs.files.items()}
    digests = {name: file.digest for name, file in inputs.files.items()}
    if config.kind == "bart":
        return read_bart(files, name=config.name, digests=digests)
    return read_marian(files, name=config.name, digests=digests, target_token=config.target_token)


def _read_fairseq(inputs: ImportInputs, config: ImportConfig) -> ForeignModel:
    files = inputs.files

    def side(name: str) -> FairseqSide:
        pieces, listed = (files.get(f"{name}_{part}", files[f"source_{part}"]).path for part in ("pieces", "dictionary"))
        return FairseqSide(pieces, Dictionary(listed.name, symbols(str(listed), content_of(listed))))

    digests = {file.path.name: file.digest for file in files.values()}
    return read_fairseq(files["checkpoint"].path, side("source"), side("target"), name=config.name, digests=digests)
