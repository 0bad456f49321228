"""The access to data from outside: the store that keeps it, the languages of the run, and whether the network may be used."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.config.schema import RunConfig
from pipeline.config.texts import Walk
from pipeline.store.artifacts import Store
from pipeline.store.downloads import RemoteFile, download
from stages.artifacts import ExternalFile


@dataclass(frozen=True)
class DataAccess:
    """The store of a run, its languages (source, target), and whether it works offline."""

    store: Store
    languages: tuple[str, str]
    offline: bool = False
    walk: Walk = field(default_factory=Walk, compare=False)
    """The files that the patterns of the run have looked at."""

    @classmethod
    def of(cls, config: RunConfig, store: Store, *, offline: bool | None = None) -> DataAccess:
        """Return the access to the data of a run, with its own `store.offline` unless `offline` is stated."""
        languages = (config.languages.source, config.languages.target)
        return cls(store, languages, config.store.offline if offline is None else offline)

    def download(self, remote: RemoteFile) -> ExternalFile:
        """Return a file in the store, after downloading it unless the store holds it. See `pipeline.store.downloads.download`."""
        return download(remote, self.store, offline=self.offline)
