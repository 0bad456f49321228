"""`fewstep data`."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from pipeline.commands.options import ConfigFile, Overrides
from pipeline.commands.output import print_table
from pipeline.config.load import load_config
from pipeline.data.access import DataAccess
from pipeline.data.pin import downloaded_files, pinned_texts
from pipeline.plan.packages import check_packages
from pipeline.store.marker import open_store


class Action(StrEnum):
    """The actions of `fewstep data`."""

    fetch = "fetch"
    pin = "pin"


def data(
    action: Annotated[
        Action,
        typer.Argument(metavar="fetch|pin", help="Download the text, or also print it with its digests.", show_default=False),
    ],
    config: ConfigFile,
    overrides: Overrides = None,
) -> None:
    """Download the text that CONFIG names into its store, so that runs need no network (store.offline).

    `pin` prints the texts as YAML, with the address, digest, member and columns of each file. Put it in place of the names, or
    into a config with `base: CONFIG`.
    """
    settings = load_config(config, overrides or ())
    check_packages(settings)
    access = DataAccess.of(settings, open_store(settings.store.path), offline=False)
    if action is Action.pin:
        import yaml

        yaml.safe_dump(pinned_texts(settings, access), sys.stdout, sort_keys=False, allow_unicode=True, width=132)
        return
    rows = [
        (place, f"{file.path.stat().st_size:,}", file.digest, str(file.path)) for place, file in downloaded_files(settings, access)
    ]
    print_table(("text", "bytes", "sha256", "file"), rows)
