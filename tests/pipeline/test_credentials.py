"""Tests of masked credentials."""

from pathlib import Path

import pytest

from pipeline.__main__ import main
from pipeline.config.load import load_config
from pipeline.credentials import masked
from pipeline.run.run_directory import Run
from tests.pipeline.run_specs import plan_entry, run_spec


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:p@ss@host:5000/x", "http://***@host:5000/x"),
        ("postgresql+psycopg2://u:p@db/m failed", "postgresql+psycopg2://***@db/m failed"),
        ("http://user:p/a@s/s@host:5000/x and http://u:p@h", "http://***@host:5000/x and http://***@h"),
        ("http://host/x?auth=AB&pwd=CD&access=EF&pass%77ord=G&n=1", "http://host/x?auth=***&pwd=***&access=***&pass%77ord=***&n=1"),
        ("http://host/x#access_token=AB", "http://host/x#access_token=***"),
        ("http://host/x?author=me&user=you&passage=3", "http://host/x?author=me&user=you&passage=3"),
        ("hf:org/name@main/a.parquet https://host/a@v1", "hf:org/name@main/a.parquet https://host/a@v1"),
        ("s3://bucket/a?access_key=AB&region=eu", "s3://bucket/a?access_key=***&region=eu"),
        ("http://host/x mail me@there", "http://host/x mail me@there"),
        ("sqlite:////data/mlflow.db", "sqlite:////data/mlflow.db"),
    ],
)
def test_credentials_in_urls_are_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


URIS = ("http://user:PASSW0RD@host:5000", "https://u:PASSW0RD/x@host", "postgresql://u:PASSW0RD@db/m", "http://h?auth=PASSW0RD")


@pytest.mark.parametrize("uri", [*URIS, "http://h/?pwd=PASSW0RD", "http://PASSW0RD@host"])
def test_a_tracking_uri_with_credentials_is_refused_and_never_shown(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(f"base: {Path('configs/demo.yaml').absolute()}\ntracking: {{uri: '{uri}'}}\n")
    for command in ("plan", "run"):
        for arguments in ([str(tmp_path / "c.yaml")], ["configs/demo.yaml", "--set", f"tracking.uri={uri}"]):
            assert main([command, *arguments, "--set", f"store.path={tmp_path / 'store'}"]) == 2
            shown = "".join(capsys.readouterr())
            assert "tracking.uri: expected a URI without user, password or token" in shown
            assert "PASSW0RD" not in shown
    for wrong in (f"tracking.url={uri}", f"corpus.train.source=[{uri}", f"name={uri}", f"tracking.enabled={uri}", uri):
        assert main(["plan", "configs/demo.yaml", "--set", wrong, "--set", f"store.path={tmp_path / 'store'}"]) == 2
        assert "PASSW0RD" not in "".join(capsys.readouterr())
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("uri", ["http://host:5000", "sqlite:////data/a@b.db", "databricks://profile", "file:///tmp/x", "a/b.db"])
def test_a_tracking_uri_without_credentials_is_accepted(uri: str) -> None:
    assert load_config(Path("configs/demo.yaml"), [f"tracking.uri={uri}"]).tracking.uri == uri


def test_events_hold_no_credentials(tmp_path: Path) -> None:
    run = Run(tmp_path / "runs/a")
    run.create(run_spec(plan_entry("toy:a")))
    run.write_event("step_failed", step="toy:a", error=f"no answer from {URIS[0]}", command=["x", URIS[1]])
    assert "PASSW0RD" not in (run.path / "events.jsonl").read_text()
    assert run.state().steps["toy:a"].error == "no answer from http://***@host:5000"
