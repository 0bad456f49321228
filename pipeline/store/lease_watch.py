"""All leases of a store, watched by a process that wants to know which holders live."""

from __future__ import annotations

import logging
from pathlib import Path

from pipeline.store.artifacts import Store
from pipeline.store.lease import POLL_SECONDS, Lease
from pipeline.store.marker import FOLDERS

log = logging.getLogger(__name__)

LEASE = ".lease"
UNREADABLE_SECONDS = 60.0
"""Seconds without a change after which a lease without readable content expires."""


class LeaseWatch:
    """The leases of the steps and runs of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._leases: dict[Path, Lease] = {}

    def living(self) -> dict[Path, str]:
        """Return the id of the holder of each lease whose holder lives, by the path of the lease.

        Waits until each holder whose process cannot be seen has renewed its lease or let it expire.
        """
        host = self._store.host
        for path in self._paths():
            self._lease(path)
        states = {path: lease.watch() for path, lease in self._leases.items()}
        unknown = [path for path, lives in states.items() if lives is None]
        if unknown:
            longest = max(self._leases[path].seconds_to_watch() for path in unknown)
            log.warning(
                "waits up to %.0f s to see whether the holder of %s lives%s",
                longest,
                unknown[0],
                f", and of {len(unknown) - 1} more" if unknown[1:] else "",
            )
        while None in states.values():
            host.sleep(POLL_SECONDS)
            states = {path: self._leases[path].watch() if lives is None else lives for path, lives in states.items()}
        return {path: str((self._leases[path].holder() or {}).get("owner")) for path, lives in states.items() if lives}

    def lease_of(self, directory: Path) -> Lease:
        """Return the lease on making the artifact `directory`, for `gc` as its owner."""
        return self._lease(directory.with_name(f"{directory.name}{LEASE}"))

    def _lease(self, path: Path) -> Lease:
        if path not in self._leases:
            host = self._store.host
            self._leases[path] = Lease(path, f"gc-{host.token()}", UNREADABLE_SECONDS, host)
        return self._leases[path]

    def _paths(self) -> list[Path]:
        """Return the paths of all leases, without the numbers of their files."""
        root = self._store.root
        files = [path for name in FOLDERS for path in (root / name).glob(f"*{LEASE}-*")]
        files += (root / "runs").glob(f"*/*{LEASE}-*")
        return sorted({path.with_name(path.name.rpartition("-")[0]) for path in files})
