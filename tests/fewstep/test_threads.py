"""How the threads of a process wait, and how many there are."""

import os
import subprocess
import sys

import pytest

from fewstep.threads import PASSIVE, default_threads, max_threads, wait_passively, without_defaults

USERS = {"PATH": "/bin", "OMP_NUM_THREADS": "3"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found = dict(USERS)
    monkeypatch.setattr(os, "environ", found)
    return found


def test_threads_wait_passively_unless_the_user_chooses(environment: dict[str, str]) -> None:
    wait_passively()
    assert environment.items() >= {**USERS, **PASSIVE}.items()
    wait_passively()  # a process that inherits the default does not take it for the user's choice
    left = without_defaults(environment)
    assert left == {name: value for name, value in environment.items() if name not in PASSIVE}
    assert left.items() >= USERS.items()


@pytest.mark.parametrize("policy", ["active", "passive"])
def test_the_users_policy_stays(environment: dict[str, str], policy: str) -> None:
    environment["OMP_WAIT_POLICY"] = policy
    wait_passively()
    assert without_defaults(environment) == environment
    assert environment["OMP_WAIT_POLICY"] == policy
    assert environment.keys() - PASSIVE.keys() >= USERS.keys()
    assert "FEWSTEP_WAIT_POLICY" not in environment


@pytest.mark.parametrize(("stated", "limit"), [("3", 3), ("1", 1), ("0", 1), ("", None), ("2,1", None), ("many", None)])
def test_the_users_limit_of_threads_is_a_number(environment: dict[str, str], stated: str, limit: int | None) -> None:
    environment["OMP_NUM_THREADS"] = stated
    assert max_threads() == limit
    available = len(os.sched_getaffinity(0))
    assert default_threads() == min(available, limit or available)


def test_the_program_chooses_before_torch_is_loaded() -> None:
    """OpenMP reads its variables once, when torch is loaded."""
    program = (
        "import sys, os; from pipeline.__main__ import main; assert 'torch' not in sys.modules; "
        "main(['--version']); assert 'torch' not in sys.modules; print(os.environ['OMP_WAIT_POLICY'])"
    )
    environment = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "passive"
