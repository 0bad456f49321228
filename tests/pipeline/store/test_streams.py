"""Tests of errors of byte streams."""

import pytest

from pipeline.store import streams


def test_errors_do_not_contain_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    assert "wJalrXUtnFEMI" not in streams.brief_reason(OSError("bad key wJalrXUtnFEMI at https://h/x?X-Amz-Credential=AKIA1"))
    assert "AKIA1" not in streams.brief_reason(OSError("bad key wJalrXUtnFEMI at https://h/x?X-Amz-Credential=AKIA1"))
