"""Distillation that is killed at random moments repeats no finished work and writes the same bytes as an undisturbed run."""

import random
import re
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.runs import ALONE, Watched

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

KILLS = 3
SEARCH = "distillation={strategy: beam, beam_size: 8, n_best: 8, choose: reference}"
OPTIONS = (*ALONE, "--set", "corpus.shard_rows=48", "--set", "teacher.ensemble=2", "--set", SEARCH)


def decoded(run: Watched) -> Counter[str]:
    """Return the number of times that each shard was decoded and kept, over all attempts."""
    logs = {path.resolve() for path in (run.store / "runs").glob("*/logs/distill-train.*.log")}  # `latest` is a link
    return Counter(key for log in logs for key in re.findall(r"decoded ([0-9a-f]{64})", log.read_text()))


@pytest.mark.exhaustive
def test_killed_three_times_at_random_moments(tmp_path: Path) -> None:
    trained = Watched(tmp_path / "trained", *OPTIONS, "--until", "system:teacher")
    trained.finish()
    undisturbed, killed = runs = [
        Watched(tmp_path / name, *OPTIONS, "--until", "distill:train") for name in ("undisturbed", "killed")
    ]
    for run in runs:
        shutil.copytree(trained.store, run.store, symlinks=True)
    undisturbed.finish()
    shards = len(list((undisturbed.store / "shards").glob("*.arrow")))
    assert shards > 25

    seed = random.randrange(2**32)
    draw = random.Random(seed)
    times: dict[str, int] = {}
    for kill in range(KILLS):
        enough = draw.randrange(kill * shards // KILLS, (kill + 1) * shards // KILLS)
        later = draw.random() * 0.3

        def ready(enough: int = enough, later: float = later) -> bool:
            if any(e["step"] == "distill:train" for e in killed.events("step_done")):
                return True  # it was faster than this process, which kills nothing then
            if killed.running("distill:train") is None or len(list((killed.store / "shards").glob("*.arrow"))) < enough:
                return False
            time.sleep(later)
            return True

        killed.kill_when(ready)
        times |= {path.name: path.stat().st_mtime_ns for path in (killed.store / "shards").glob("*.arrow")}
    killed.finish()

    assert killed.files() == undisturbed.files(), f"seed {seed}"
    assert {path.name: path.stat().st_mtime_ns for path in (killed.store / "shards").glob("*.arrow")}.items() >= times.items()
    assert max(decoded(killed).values()) == 1, f"seed {seed}"
    assert sum(decoded(undisturbed).values()) == shards
    assert sum(decoded(killed).values()) >= shards - KILLS, "a kill between a shard and its line in the log"
