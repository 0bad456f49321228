"""Tests of masked credentials."""

import pytest

from pipeline.credentials import masked


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:p@ss@host:5000/x", "http://***@host:5000/x"),
        ("postgresql+psycopg2://u:p@db/m failed", "postgresql+psycopg2://***@db/m failed"),
        ("s3://bucket/a?access_key=AB&region=eu", "s3://bucket/a?access_key=***&region=eu"),
        ("http://host/x mail me@there", "http://host/x mail me@there"),
        ("sqlite:////data/mlflow.db", "sqlite:////data/mlflow.db"),
    ],
)
def test_credentials_in_urls_are_masked(text: str, shown: str) -> None:
    assert masked(text) == shown
