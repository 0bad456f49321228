"""`plan` on configs and files from elsewhere, with limits of memory and processor time: it ends with words."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.run_specs import ROOT
from tests.stages.corpus.test_hostile_parquet import nested
from tests.stages.shared.test_hostile_archives import sparse_tar

MEMORY, SECONDS = 1 << 30, 20
CORPUS = "corpus: {{train: {train}, validation: {{embedded: 10}}, test: {{t: {{embedded: 10}}}}}}\nsystems: {{a: {{}}}}\n"


def planned(config: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `plan` on a config with limits."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    (folder / "c.yaml").write_text(config)
    return subprocess.run(
        [sys.executable, "-m", "pipeline", "plan", str(folder / "c.yaml"), "--set", f"store.path={folder / 'store'}"],
        cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=limit, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["nested parquet", "sparse tar", "pipe", "numbers", "keys", "nesting"])
def test_plan_ends_with_words_on_foreign_input(attack: str, tmp_path: Path) -> None:
    parquet, archive, pipe = tmp_path / "p.parquet", tmp_path / "c.tar", tmp_path / "pipe"
    nested(parquet, 20_000)
    os.mkfifo(pipe)
    if attack == "sparse tar":
        sparse_tar(archive)
        os.truncate(archive, 64 << 20)  # its digest is computed
    configs = {
        "nested parquet": CORPUS.format(train=f"{{parquet: {parquet}}}") + "vocabulary: {size: auto}\n",
        "sparse tar": CORPUS.format(train=f"{{source: {{path: {archive}, member: a}}, target: {{path: {archive}, member: b}}}}"),
        "pipe": CORPUS.format(train=f"{{source: {pipe}, target: {pipe}}}"),
        "numbers": CORPUS.format(train=f"{{embedded: {2**62}}}") + f"defaults: {{width: {2**62}, training: {{updates: -1}}}}\n",
        "keys": CORPUS.format(train="{embedded: 10}") + "".join(f"unknown_{number}: 1\n" for number in range(40_000)),
        "nesting": CORPUS.format(train="{embedded: 10}") + "a: " + "[" * 100_000,
    }
    done = planned(configs[attack], tmp_path)
    assert done.returncode in (0, 1, 2), done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 100_000
    if attack in ("pipe", "numbers", "keys", "nesting"):
        assert done.returncode == 2
        assert "expected" in done.stderr or "unknown" in done.stderr, done.stderr
