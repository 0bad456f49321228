"""Ray clusters of this machine, which only this machine can reach."""

from __future__ import annotations

import os

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
    return "local"
