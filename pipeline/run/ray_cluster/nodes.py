"""The nodes of a Ray cluster that do not answer, are lost, or join: words for the user, before Ray itself acts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from fewstep.local_ray import ANSWER_SECONDS, check_answers

log = logging.getLogger("fewstep")

LOOK_SECONDS = 2.0
"""Time between two looks at all nodes. A node that does not answer delays a look by `ANSWER_SECONDS`."""


class NodeWatch:
    """A thread that looks whether the nodes answer.

    The head of the cluster decides which nodes are lost. By default it asks each node every 3 s, waits 10 s for an answer, and
    gives a node up at the fifth missing answer: after 15 s if its process has ended, after 65 s if the network is broken.
    """

    def __init__(self, list_nodes: Callable[[], Mapping[str, str] | None]) -> None:
        """`list_nodes` returns host:port of the manager of each node that the head has not given up, by the id of the node.

        It returns None if the head does not answer.
        """
        self._list_nodes = list_nodes
        self._nodes: dict[str, str] = {}
        self._silent: dict[str, OSError] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nodes", daemon=True)
        self._thread.start()

    def ended(self) -> set[str]:
        """Return the ids of nodes whose manager has ended, whether or not the head has given them up: no process listens there."""
        return {node for node, error in list(self._silent.items()) if isinstance(error, ConnectionRefusedError)}

    def close(self, *, wait: bool = True) -> None:
        """End the thread. With `wait`, wait for its request to the head, but not for a head that does not answer."""
        self._closed.set()
        if wait:
            self._thread.join(2 * ANSWER_SECONDS)

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            nodes = self._list_nodes()
            if nodes is not None:
                self._take(dict(nodes))
            for node, address in self._nodes.items():
                if not self._closed.is_set():
                    self._look(node, address)

    def _take(self, nodes: dict[str, str]) -> None:
        """Take the nodes that are alive now, and report those that are lost or have joined since."""
        before, self._nodes = self._nodes, nodes
        for node in before.keys() - nodes.keys():
            self._silent.pop(node, None)
            log.warning("the node at %s is lost: its work is repeated on the other nodes", before[node])
        for node in nodes.keys() - before.keys() if before else ():
            log.warning("a node has joined at %s", nodes[node])

    def _look(self, node: str, address: str) -> None:
        try:
            check_answers(address)
        except OSError as error:
            if node not in self._silent:
                log.warning(
                    "the node at %s does not answer (%s): Ray gives it up after about a minute unless the head reaches it",
                    address,
                    error,
                )
            self._silent[node] = error
            return
        if self._silent.pop(node, None):
            log.warning("the node at %s answers again", address)
