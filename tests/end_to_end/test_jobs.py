"""Runs as jobs of a cluster, and whole runs into languages of other scripts."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.config.load import load_config
from pipeline.plan.wiring import build_plan
from pipeline.run import execute
from pipeline.run.run_directory import Run
from pipeline.store.artifacts import Store
from stages.shared.embedded import pairs
from tests.end_to_end.nodes import cluster_apart
from tests.end_to_end.runs import ALONE, ROOT, SMALL, Watched, end
from tests.processes import SLOW_SECONDS
from tests.shared import rest_exhaustive
from tests.synthetic_text import LETTERS, translated

TOKEN = "0123456789abcdef" * 4
UNTIL = ("--until", "distill:train", "--set", "cluster.checkpoint_seconds=3600")


class Submitted(Watched):
    """A run that is submitted to a cluster."""

    jobs_address = ""

    def command(self) -> list[str]:
        config = str(SMALL.relative_to(ROOT))
        settings = ["--address", self.jobs_address, "--set", f"store.path={self.store}"]
        return [sys.executable, "-m", "pipeline", "submit", config, *settings, *self.options]

    def output(self) -> str:
        return self.output_file.read_text()

    def job(self) -> str:
        """The id of the latest job."""
        return [line for line in self.output().splitlines() if line.startswith("job ")][-1].split()[1].rstrip(":")


def ask(address: str, path: str, token: str, method: str = "GET") -> int:
    """Return the HTTP status of a request to the jobs API. A run is faster than Ray's client, so the API is called directly."""
    request = urllib.request.Request(f"{address}/api/jobs/{path}", method=method, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=SLOW_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Return the environment of clusters and of the commands that submit to them: one token, and this Python first on the path."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"RAY_AUTH_TOKEN_PATH": str(token), "RAY_AUTH_MODE": "token", "PATH": path}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return settings


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(3000)
def test_a_job_is_stopped_loses_its_head_and_is_submitted_again(tmp_path: Path, environment: dict[str, str]) -> None:
    undisturbed = Watched(tmp_path / "undisturbed", *ALONE, *UNTIL)
    undisturbed.finish()
    run = Submitted(tmp_path / "run", *UNTIL)
    with cluster_apart(**environment) as run.jobs_address:
        process = run.start()
        run.wait(lambda: run.progress("train:teacher") >= 60, process)
        first = run.job()
        assert ask(run.jobs_address, f"{first}/stop", TOKEN, "POST") == 200
        run.ends(process, 130)
        directory = run.running("train:teacher")
        assert directory is not None
        (saved,) = [
            int(path.name) for path in (directory / "checkpoints").iterdir() if path.name.isdigit()
        ]  # the job had time to start

        process = run.start()
        run.wait(lambda: run.started("train:teacher") == 2 and run.progress("train:teacher") > saved, process)
        end(process)
    assert run.job() == f"{first}-2"
    with cluster_apart(**environment) as run.jobs_address:  # another head without records of the job
        with run.background() as process:
            run.ends(process)
        assert run.job() == first
        assert "distill:train done in" in run.output()
        assert run.agrees_with(undisturbed)
        # The driver of the lost cluster may live a little longer and ask for another attempt there, which it may see start, even
        # beside the next driver. Each attempt but the last counts once as repeated.
        started = run.started("train:teacher")
        assert 3 <= started <= 3 + len(run.events("step_retried"))
        assert Run(run.run_directory()).state().retried == started - 1

        assert ask(run.jobs_address, "", TOKEN) == 200
        assert ask(run.jobs_address, "", "another") in (401, 403)
        sent = ["--working-dir", ".", "--runtime-env", "configs/cluster/runtime-env.yaml", "--submission-id", "by-hand"]
        config = ["python", "-m", "pipeline", "run", str(SMALL.relative_to(ROOT)), "--set", f"store.path={run.store}", *UNTIL]
        submit = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", "--address", run.jobs_address, *sent, "--", *config]
        done = subprocess.run(submit, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "everything was in the store" in done.stdout


TOKENIZERS = {"ja": "ja-mecab", "zh": "zh", "ko": "ko-mecab", "ar": "13a"}


def written(part: str, count: int, language: str, directory: Path) -> dict[str, str]:
    """Write `count` pairs to two files and return the text of a config that names them."""
    sources = [source for source, _ in pairs(part, 0, count)]
    files = {"source": directory / f"{part}.en", "target": directory / f"{part}.{language}"}
    files["source"].write_text("".join(f"{text}\n" for text in sources), encoding="utf-8")
    files["target"].write_text("".join(f"{translated(text, language)}\n" for text in sources), encoding="utf-8")
    return {side: str(path) for side, path in files.items()}


def config_file(language: str, directory: Path) -> Path:
    values: dict[str, Any] = {
        "base": str(SMALL),
        "name": f"to-{language}",
        "languages": {"source": "en", "target": language},
        "corpus": {
            "train": {"embedded": 0, **written("train", 1500, language, directory)},
            "validation": {"embedded": 0, **written("validation", 60, language, directory)},
            "test": {"small": {"embedded": 0, **written("test", 80, language, directory)}},
        },
        "vocabulary": {"size": 110 if language == "ar" else 330, "joint": False},
        "systems": {
            "interleaved": {"order": "interleaved", "data": "distilled", "training": {"updates": 60}},
            "dag": {"family": "dag", "graph_factor": 4, "search": ["lookahead"], "training": {"updates": 60}},
        },
        "evaluation": {"metrics": ["bleu", "chrf", "ter", "tokenized_bleu"], "head_and_tail": True, "length_bins": [8]},
        "benchmark": {"enabled": True, "test": "small", "sentences": 5, "memory": False},
    }
    path = directory / "config.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("language", rest_exhaustive(TOKENIZERS, ["ja"]))
def test_a_run_ends_in_a_report_that_is_scored_by_the_tokeniser_of_the_language(language: str, tmp_path: Path) -> None:
    path = config_file(language, tmp_path)
    settings = load_config(path, [f"store.path={tmp_path / 'store'}"])
    store = Store(settings.store.path)
    report = execute.run(settings, build_plan(settings, store), store, config_file=str(path), in_process=True)
    assert report.failed == {}
    ledgers = [json.loads(path.read_text()) for path in (tmp_path / "store").glob("corpus/*/ledger.json")]
    dropped = {
        reason: count for ledger in ledgers for reason, count in ledger["dropped"].items() if reason != "duplicate" and count
    }
    assert sum(dropped.values()) <= 0.02 * sum(ledger["pairs_in"] for ledger in ledgers), dropped
    results = json.loads(next((tmp_path / "store").glob("report/*/results.json")).read_text())
    assert {row["system"] for row in results["rows"]} == {"autoregressive", "distilled", "interleaved", "dag"}
    for row in results["rows"]:
        assert f"|tok:{TOKENIZERS[language]}" in row["metrics"]["bleu"]["signature"]
    assert max(row["metrics"]["chrf"]["score"] for row in results["rows"]) > 1
    html = next((tmp_path / "store").glob("report/*/records/report.html")).read_text(encoding="utf-8")
    assert any(letter in html for letter in LETTERS[language])
