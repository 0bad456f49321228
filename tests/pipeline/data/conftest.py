"""A local web server and a store for the tests of data by name, which may reach no other address."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.data.access import DataAccess
from pipeline.store import streams
from pipeline.store.artifacts import Store
from tests.pipeline.data.web import Site, serving
from tests.stages.steps import read_parquet_here


@pytest.fixture(autouse=True)
def no_other_address(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def local(self: socket.socket, address: Any) -> None:
        assert self.family == socket.AF_UNIX or address[0] == "127.0.0.1", f"expected no connection, got one to {address}"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local)


@pytest.fixture(autouse=True)
def _parquet_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    read_parquet_here(monkeypatch)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(streams, "PAUSE_SECONDS", 0.01)
    with serving() as site:
        yield site


@pytest.fixture
def access(tmp_path: Path) -> DataAccess:
    return DataAccess(Store(tmp_path / "store"), ("en", "de"))
