"""Mutated configs end in a plan or in an error that explains itself: no traceback, no hang, no signal."""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipeline.__main__ import main
from pipeline.store import downloads
from stages.errors import StageError
from tests.pipeline.config.mutations import mutated

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("demo.yaml", "summarization.yaml", "quickstart.yaml", "sweeps/orders.yaml", "sweeps/candidates.yaml", "papers/wmt14-en-de-dag.yaml")
SECONDS = 60
"""Time in which each command has to end."""


def offline(url: str, path: Path) -> dict[str, Any]:
    raise StageError(f"{url}: could not be downloaded: no network")


def test_mutated_configs_are_planned_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`FEWSTEP_MUTATIONS` is the number of configs, and `FEWSTEP_MUTATIONS_SEED` the first seed."""
    count, first = int(os.environ.get("FEWSTEP_MUTATIONS", "200")), int(os.environ.get("FEWSTEP_MUTATIONS_SEED", "0"))
    texts = [(ROOT / "configs" / name).read_text() for name in NAMES]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(downloads, "copy_from_url", offline)
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    started = time.monotonic()
    for seed in range(first, first + count):
        chance = random.Random(seed)
        data, overrides = mutated(chance.choice(texts), texts, chance)
        (tmp_path / "c.yaml").write_bytes(data)
        signal.alarm(SECONDS)  # its default action ends the process
        options = [part for override in overrides for part in ("--set", override)]
        code = main(["plan", "c.yaml", *options, "--set", f"store.path={tmp_path / 'store'}", "--set", "store.mirror=''"])
        signal.alarm(0)
        error = capsys.readouterr().err
        unexplained = "Traceback" in error or (code != 0 and not error.strip())
        outcomes["traceback" if unexplained else {0: "planned", 2: "refused", 1: "failed"}[code]] += 1
        if unexplained or code == 1:
            failures.append(f"seed {seed}: exit code {code}: {error[-1500:]}")
    with capsys.disabled():
        if count > 1000:
            print(f"{dict(outcomes)} in {time.monotonic() - started:.0f} s")
    assert not failures, f"{len(failures)} of {count}\n" + "\n".join(failures[:20])
    assert outcomes["planned"]
    assert outcomes["refused"]
