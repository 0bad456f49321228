"""Tests of the URLs that a config may name."""

import pytest

from pipeline.store.urls import MIRROR_SCHEMES, TEXT_SCHEMES, expected_url


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket/a/b", None),
        ("s3://bucket/a?region=eu-west-1&endpoint_override=localhost:9000&scheme=http", None),
        ("file:///mnt/mirror", None),
        ("gs://bucket", None),
        ("s3://user:secret@bucket/a", "without user, password"),
        ("s3://user@bucket/a", "without user, password"),
        ("s3://bucket/a?secret_key=abc", "without user, password"),
        ("https://host/a?X-Amz-Signature=abc", "of the form"),
        ("s3://bucket/a?anonymous=true", "no other options"),
        ("s3://bucket/a#b", "without #"),
        ("s3:///a", "of the form"),
        ("/mnt/mirror", "of the form"),
        ("http://[", "a URL"),
    ],
)
def test_urls_of_mirrors(text: str, expected: str | None) -> None:
    got = expected_url(text, MIRROR_SCHEMES)
    assert got is None if expected is None else got is not None and expected in got


def test_urls_of_texts() -> None:
    assert expected_url("https://host/records/1/files/a.gz?download=1", TEXT_SCHEMES) is None
    assert expected_url("s3://bucket/a.gz", TEXT_SCHEMES) is None
