"""Run the import stage."""

from __future__ import annotations

from fewstep.system.format import BundleError
from models.bundle.directory import load_system
from models.imports.foreign import ForeignModelError, write_foreign
from models.imports.marian import read_marian
from stages.context import StepContext
from stages.errors import DataError, unwritable
from stages.import_network import ImportConfig, ImportInputs


def run(inputs: ImportInputs, config: ImportConfig, context: StepContext) -> None:
    """Write the system, and `vocabulary.json`, which makes the directory a vocabulary as well; load it once.

    Raises DataError for files that do not hold a network of the format, StageError when the disk is full.
    """
    files = {name: file.path for name, file in inputs.files.items()}
    digests = {name: file.digest for name, file in inputs.files.items()}
    try:
        model = read_marian(files, name=config.name, digests=digests, target_token=config.target_token)
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
