"""The end of a driver whose cluster has lost its head."""

import subprocess
import sys
import threading

import pytest

from pipeline.run.ray_cluster import head

PROGRAM = """
import atexit, sys, threading
import pipeline.__main__ as program
from pipeline.run.ray_cluster import head

head.LEAVE_SECONDS = 0.1
atexit.register(print, "the usual end")
head.leave({disconnect})
print("words")
program._end(130)
"""


@pytest.mark.parametrize(
    ("disconnect", "said"),
    [("threading.Event().wait", "words\n"), ("lambda: None", "words\nthe usual end\n")],
    ids=["ray still waits", "ray has left"],
)
def test_a_process_ends_at_once_only_while_ray_waits_for_the_head(disconnect: str, said: str) -> None:
    command = [sys.executable, "-c", PROGRAM.format(disconnect=disconnect)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, said, "")


def test_leaving_waits_no_longer_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "LEAVE_SECONDS", 0.1)
    lost = threading.Event()
    head.leave(lost.wait)
    assert head.is_leaving()
    lost.set()
    for thread in threading.enumerate():
        if thread.name == head.LEAVING:
            thread.join(10)
    assert not head.is_leaving()
