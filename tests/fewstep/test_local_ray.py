"""The token of local Ray clusters, which processes that start at the same time share."""

import os
import stat
from pathlib import Path

import pytest

from fewstep.local_ray import stay_on_loopback, use_short_folder
from fewstep.serve.settings import ServeError


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of the token of a new user."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / ".ray/auth_token"


def test_a_local_cluster_has_a_token_that_only_its_user_reads(token: Path) -> None:
    assert stay_on_loopback() == "local"
    assert len(token.read_text()) == 64
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert list(token.parent.iterdir()) == [token]


def test_a_token_that_another_process_has_just_made_is_kept(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stay_on_loopback()
    made = token.read_text()
    monkeypatch.setattr(Path, "exists", lambda path: False)  # it was made after the look
    stay_on_loopback()
    assert token.read_text() == made
    assert list(token.parent.iterdir()) == [token]


@pytest.mark.parametrize(
    ("name", "value"),
    [("RAY_AUTH_MODE", "disabled"), ("RAY_AUTH_TOKEN", "a"), ("RAY_AUTH_TOKEN_PATH", "/x"), ("RAY_ADDRESS", "h:1")],
)
def test_another_source_needs_no_token(token: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    stay_on_loopback()
    assert not token.exists()


def test_a_folder_that_cannot_be_written_is_left_to_ray(token: Path) -> None:
    token.parent.write_text("a file")
    assert stay_on_loopback() == "local"


def test_a_cluster_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port where nothing listens, and a folder for temporary files whose name is too long for the sockets of Ray."""
    on_ray = pytest.importorskip("fewstep.serve.on_ray", exc_type=ImportError)
    with pytest.raises(ServeError, match=r"--ray: expected a cluster that answers at 127.0.0.1:1, got: .*; check RAY_ADDRESS"):
        on_ray._connect("127.0.0.1:1", local=False)

    def fail(**_: object) -> None:
        raise OSError("AF_UNIX path length cannot exceed 107 bytes")

    monkeypatch.setattr(on_ray.ray, "init", fail)
    with pytest.raises(ServeError, match=r"expected Ray to start on this machine, got: AF_UNIX .*length of TMPDIR"):
        on_ray._connect("local", local=True)


def test_ray_works_elsewhere_if_its_sockets_had_too_long_names(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    for folder, chosen in (("/tmp", None), ("/tmp/" + "x" * 60, "/tmp")):
        monkeypatch.setenv("TMPDIR", folder)
        stay_on_loopback()
        assert os.environ.get("RAY_TMPDIR") is None, "a server is refused"
        use_short_folder()
        assert os.environ.get("RAY_TMPDIR") == chosen
    monkeypatch.setenv("RAY_TMPDIR", "/scratch")
    use_short_folder()
    assert os.environ["RAY_TMPDIR"] == "/scratch"
