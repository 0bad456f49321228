"""Ray clusters of this machine, which only this machine can reach."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

SETTINGS = {
    # On macOS and Windows this is Ray's default, against which its clusters of several machines need the variable. It makes all
    # servers of a local cluster listen on the loopback interface alone, where Ray's own options always choose another address.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
"""Ray's environment variables for a cluster of this machine. Ray reads them when it is imported."""


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
