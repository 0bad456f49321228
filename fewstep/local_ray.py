"""Ray clusters: whether one answers, and those of this machine, which only this machine can reach."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from contextlib import suppress
from pathlib import Path

ANSWER_SECONDS = 5.0
"""Time that a head may take for an answer."""
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The first bytes of a client of HTTP/2: a fixed text, and a frame of settings without any."""
SETTINGS = {
    # On macOS and Windows this is Ray's default, against which its clusters of several machines need the variable. It makes all
    # servers of a local cluster listen on the loopback interface alone, where Ray's own options always choose another address.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
"""Ray's environment variables for a cluster of this machine. Ray reads them when it is imported."""


SOCKET = "/ray/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store.1"
MAX_SOCKET_BYTES = 107
"""The name of one of Ray's sockets in its folder, and the longest that Linux takes (unix(7))."""

log = logging.getLogger("fewstep")


def stay_on_loopback(address: str = "") -> str:
    """Return the address for `ray.init`: that of the cluster at `address` or RAY_ADDRESS, otherwise that of a local cluster.

    Call it before Ray is imported: the servers of the local cluster then listen on the loopback interface alone. The user's
    environment takes precedence.
    """
    if found := address or os.environ.get("RAY_ADDRESS", ""):
        return found
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    _make_token()
    return "local"


def use_short_folder() -> None:
    """Let a local cluster use /tmp if the names of its sockets were too long in TMPDIR, as SLURM gives it. RAY_TMPDIR takes
    precedence.

    A run does so. A server, which lives on, is refused instead: its user chooses the folder.
    """
    if "RAY_TMPDIR" not in os.environ and len(os.fsencode(os.environ.get("TMPDIR", "") + SOCKET)) > MAX_SOCKET_BYTES:
        os.environ["RAY_TMPDIR"] = "/tmp"
        log.warning(
            "Ray works in /tmp, because the names of its sockets would be too long in TMPDIR; RAY_TMPDIR names another folder"
        )


def _make_token() -> None:
    """Create the token of this user's local clusters unless there is one, or another source of it.

    Ray creates it too. Of two processes that start their first clusters at once, one would then replace the token that the other
    has read, and the processes of one cluster would refuse each other.
    """
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token" or os.environ.get("RAY_AUTH_TOKEN"):
        return
    path = Path.home() / ".ray" / "auth_token"
    if os.environ.get("RAY_AUTH_TOKEN_PATH") or path.exists():
        return
    with suppress(OSError):  # Ray tries again, and reports a folder that cannot be written
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f"{path.name}.{os.getpid()}")
        made.touch(mode=0o600)
        made.write_text(secrets.token_hex(32))
        try:
            os.link(made, path)  # unless another process has just done so
        finally:
            made.unlink()


def check_answers(address: str) -> None:
    """Raise OSError if no process answers at `[ray://]host:port`. Ray itself would try for minutes.

    An accepted connection proves nothing, since the kernel accepts it for a stopped process too. Ray's servers speak gRPC, and
    answer the preface of HTTP/2 (RFC 9113, section 3.4) with bytes. A server with TLS ends the connection.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        with socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(HTTP2_PREFACE)
            with suppress(ConnectionResetError):
                connection.recv(1)
