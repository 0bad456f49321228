"""Tiny systems on disk, and servers in processes of their own."""

import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from fewstep.config.options import OutputLimits
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from fewstep.families.parallel.config import ParallelConfig, ParallelSearch
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.system.integrity import seal
from fewstep.system.load import load
from tests.architecture import ROOT
from tests.fewstep.systems import SMALL, count_tables, train, train_pieces, write
from tests.processes import FAST_SECONDS

LINES = ["ein hund läuft", "zwei katze springt schnell blau", "drei", "grün hund", "ein", "katze läuft läuft", "blau blau drei ein"]
SYSTEMS = {
    "small": (
        "stepwise",
        StepwiseConfig(**SMALL),
        {
            "greedy": StepwiseSearch(),
            "wide": StepwiseSearch(strategy="beam", beam_size=3, output_limits=OutputLimits(max_extra_tokens=4)),
        },
    ),
    "graph": (
        "dag",
        DagConfig(**SMALL),
        {"greedy": DagSearch(strategy="greedy"), "lookahead": DagSearch(strategy="lookahead")},
    ),
    "lattice": (
        "lattice",
        LatticeModelConfig(**SMALL, segment_length=2),
        {"viterbi": LatticeSearch(candidates=4, token_bonus=4.0)},
    ),
    "drafts": ("aggressive", AggressiveConfig(**SMALL, draft_width=4), {"gad": AggressiveSearch()}),
    "trees": ("aggressive", AggressiveConfig(**SMALL, draft_width=4), {"gad": AggressiveSearch(tree_nodes=6)}),
    "passes": (
        "parallel",
        ParallelConfig(**SMALL, objective="cmlm"),
        {"mask-predict": ParallelSearch(strategy="mask-predict", iterations=3, length_candidates=2)},
    ),
    "alignments": ("parallel", ParallelConfig(**SMALL, objective="ctc"), {"prefix-beam": ParallelSearch(strategy="prefix-beam")}),
}


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """The directories of systems of all families by name."""
    root = tmp_path_factory.mktemp("systems")
    pieces = train_pieces(root / "joint")
    count_tables(root / "tables", pieces)
    verified = {"companions": {"verifier": root / "small"}}
    more = {"lattice": {"tables": root / "tables"}, "drafts": verified, "trees": verified}
    for name, (family, config, searches) in SYSTEMS.items():
        weights = train(root / f"{name}-trained", family, config, 3)
        write(root / name, family, config, searches, weights, pieces, **more.get(name, {}))
    return {name: root / name for name in SYSTEMS}


@pytest.fixture(scope="session")
def directories(made):
    """The directories of the systems that most tests use."""
    return {name: made[name] for name in ("small", "graph")}


class Running:
    """A server that was started."""

    def __init__(self, process, lines):
        self.process, self.url, self._lines = process, lines[-1].split()[-1], lines
        self.host, self.port = urlsplit(self.url).hostname, urlsplit(self.url).port
        self._reader = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)
        self._reader.start()  # so that the process never waits for a reader

    def log(self):
        """Return all that the server printed, after its end."""
        self._reader.join()
        return "".join(self._lines)

    def request(self, method, path, body=None, headers=None, timeout=FAST_SECONDS):
        """Return the status, the headers and the body of an answer on a connection of its own."""
        connection = HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def post(self, body, path="/translate", **headers):
        """Return the status and the JSON of an answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, _, answer = self.request("POST", path, data, {"content-type": "application/json", **headers})
        return status, json.loads(answer)

    def metric(self, sample, **headers):
        """Return the value of a sample such as `fewstep_requests_total{path="/",status="200"}`, 0 if it is absent."""
        lines = self.request("GET", "/metrics", headers=headers)[2].decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == sample), 0.0)


def command(*arguments):
    return [sys.executable, "-m", "tests.fewstep.serve.program", *map(str, arguments)]


def environment(**more):
    return {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{ROOT}", "OMP_NUM_THREADS": "1", **more}


@contextmanager
def running(*arguments, port=0, delay=0.0, **more):
    """A server, at a free port by default; it is killed at the end if it still runs."""
    process = subprocess.Popen(
        command(*arguments, "--port", port), stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment(DELAY=str(delay), **more)
    )
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("serving "):
                break
        else:
            raise AssertionError(f"the server ended with {process.wait()}: {''.join(lines)}")
        yield Running(process, lines)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def server(directories):
    """A server of all systems with small limits."""
    limits = ("--max-sentences", 50, "--max-characters", 400, "--max-request-bytes", 100_000)
    with running(*directories.values(), *limits) as started:
        yield started


def changed(directory, folder, change):
    """Return a copy of a system with another description."""
    shutil.copytree(directory, folder)
    file = folder / "system.json"
    file.write_text(json.dumps(seal({**json.loads(file.read_text()), **change})))
    return folder


@pytest.fixture(scope="session")
def several(made, tmp_path_factory):
    """A server of three systems, for two pairs of languages and one of them twice, and these systems by name."""
    root = tmp_path_factory.mktemp("pairs")
    folders = [
        changed(made["small"], root / "one", {"name": "one", "search": "wide"}),
        changed(made["graph"], root / "two", {"name": "two", "languages": {"source": "fr", "target": "zh-Hant"}}),
        changed(made["graph"], root / "three", {"name": "three"}),
    ]
    with running(*folders) as started:
        yield started, {folder.name: load(folder) for folder in folders}
