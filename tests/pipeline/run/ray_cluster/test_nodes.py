"""The watch over the nodes of a cluster: what is said of nodes that fall silent, end, are lost, join and answer again."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pipeline.run.ray_cluster import nodes
from pipeline.run.ray_cluster.nodes import NodeWatch
from tests.waiting import FAST_SECONDS, until


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "LOOK_SECONDS", 0.02)


class Node:
    """A server that answers the beginning of each connection with a byte, until it falls silent or ends."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.answers = True
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        kept = []  # connections that get no answer stay open
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            if self.answers:
                connection.sendall(b"\0")
                connection.close()
            kept.append(connection)

    def end(self) -> None:
        """Leave the address: connections are refused from now on."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextmanager
def watch(listed: dict[str, str]) -> Iterator[NodeWatch]:
    watch = NodeWatch(lambda: dict(listed))
    try:
        yield watch
    finally:
        watch.close()


def test_a_silent_node_is_named_once_and_again_when_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    node, other = Node(), Node()
    with caplog.at_level(logging.WARNING), watch({"a": node.address, "b": other.address}) as watching:
        node.answers = False
        until(lambda: f"the node at {node.address} does not answer (timed out)" in caplog.text)
        assert watching.ended() == set()
        node.answers = True
        until(lambda: f"the node at {node.address} answers again" in caplog.text)
    assert len(caplog.messages) == 2


def test_a_node_whose_process_ended_has_no_room_for_work(caplog: pytest.LogCaptureFixture) -> None:
    node, listed = Node(), {"b": Node().address}
    listed["a"] = node.address
    with caplog.at_level(logging.WARNING), watch(listed) as watching:
        node.end()
        until(lambda: watching.ended() == {"a"})
        assert "refused" in caplog.text
        del listed["a"]
        until(lambda: f"the node at {node.address} is lost" in caplog.text)
        assert watching.ended() == set()


def test_a_node_that_joins_is_named(caplog: pytest.LogCaptureFixture) -> None:
    known, late = {"a": Node().address}, Node().address
    listed = threading.Event()

    def list_nodes() -> dict[str, str]:
        found = dict(known)
        listed.set()
        return found

    with caplog.at_level(logging.WARNING):
        watching = NodeWatch(list_nodes)
        assert listed.wait(FAST_SECONDS)
        known["b"] = late
        until(lambda: f"a node has joined at {late}" in caplog.text)
        watching.close()
    assert caplog.messages == [f"a node has joined at {late}"]


def test_nodes_are_no_longer_listed_while_the_head_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    """A silent head says nothing about the nodes: none is lost."""
    node = Node()
    answers: list[dict[str, str] | None] = [{"a": node.address}]
    looks = 0

    def list_nodes() -> dict[str, str] | None:
        nonlocal looks
        looks += 1
        return answers.pop() if answers else None

    with caplog.at_level(logging.WARNING):
        watching = NodeWatch(list_nodes)
        until(lambda: looks > 4)
        watching.close()
    assert caplog.messages == []
