"""Mutated configs end in a plan or in an error that explains itself: no traceback, no hang, no signal, and no unbounded memory."""

from __future__ import annotations

import copy
import os
import random
import re
import resource
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.__main__ import main
from pipeline.store import downloads
from stages.errors import StageError

HOSTILE: tuple[Any, ...] = (
    None, True, "", 0, -1, 1, 2**31, 2**63, 10**30, 10**400, -(10**20), 1e300, -1e300, 1e-300, float("nan"), float("inf"),
    [], {}, [[]], [None], {"": {}}, {"a": {"b": {}}}, "x" * 300, "x" * 5000, "\0", "\ud800", "\u202e", "a/b", "../..", "/dev/zero",
    "/dev/null", "/proc/self/mem", "none", "teacher", "{}", "*a", "<<", "base", "yes", "1e9", "0x10", "ß" * 200, "\n", "-", "~",
)  # fmt: skip
"""Values that take the place of others."""
TOKENS = (
    "\t", ":", "- ", "{", "}", "[", "]", "&a ", "*a", "!!python/none ", "!!int ", "|", ">", "#", "'", '"', "\\", "?", "%",
    "\x00", "é", "\x85",
)  # fmt: skip
"""Pieces that are put into a text."""


def mutated(text: str, others: list[str], chance: random.Random) -> tuple[bytes, list[str]]:
    """Return a config that differs from `text` in one to three places, and overrides."""
    data, overrides = text.encode(), []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        kind = chance.random()
        if kind < 0.65:
            data = _with_changed_value(data, others, chance)
        elif kind < 0.85:
            data = _with_changed_text(data, chance)
        elif kind < 0.92:
            data = data[: chance.randrange(len(data) + 1)] + chance.choice(others).encode()[chance.randrange(200) :]
        else:
            overrides.append(
                f"{chance.choice(KEYS)}={yaml.safe_dump(_hostile(chance), default_flow_style=True, width=10**6).strip()}"
            )
    return data, [override for override in overrides if "\0" not in override and override.isprintable()]


KEYS = (
    "systems", "systems.autoregressive", "defaults.training.updates", "corpus.train", "name", "benchmark", "defaults.search",
    "a.b.c",
)  # fmt: skip


def _hostile(chance: random.Random) -> Any:
    return copy.deepcopy(chance.choice(HOSTILE))


def _changed(value: Any, chance: random.Random) -> Any:
    """Return a value that differs: for a number often one that may be valid, else any."""
    if isinstance(value, int | float) and chance.random() < 0.7:
        return chance.choice(
            (not value, value + 1, value - 1, value * 10, value * 1000, value / 3, -value, float(value), str(value))
        )
    return _hostile(chance)


def _with_changed_value(data: bytes, others: list[str], chance: random.Random) -> bytes:
    """Replace, remove, add or copy a value of the parsed config; the data itself where it does not parse."""
    try:
        root, other = yaml.safe_load(data), yaml.safe_load(chance.choice(others))
    except (yaml.YAMLError, ValueError, OverflowError, UnicodeDecodeError, RecursionError):
        return data
    places = list(_places(root))
    if not places:
        return data
    holder, key = chance.choice(places)
    action = chance.random()
    if action < 0.5:
        holder[key] = _changed(holder[key], chance)
    elif action < 0.65:
        del holder[key]
    elif action < 0.85:
        source, name = chance.choice(list(_places(other)))
        holder[key] = copy.deepcopy(source[name])
    elif isinstance(holder, dict):
        holder[str(_hostile(chance))] = holder[key]
    return yaml.safe_dump(root, allow_unicode=False, sort_keys=False).encode("utf-8", "surrogatepass")


def _places(value: Any) -> Any:
    """Yield each map or list below `value` with each of its keys."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield value, key
        yield from _places(inner)


def _with_changed_text(data: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(data) + 1)
    end = min(len(data), start + chance.choice((0, 1, 1, 4, 40)))
    action = chance.random()
    if action < 0.3:
        return data[:start] + bytes([chance.randrange(256)]) + data[end:]
    if action < 0.6:
        return data[:start] + chance.choice(TOKENS).encode() + data[end:]
    if action < 0.8:
        return data[:start] + data[start:end] * 2 + data[end:]
    return data[:start] + data[end:]


ROOT = Path(__file__).resolve().parents[3]
NAMES = (
    "demo.yaml", "quickstart.yaml", "summarization.yaml", "sweeps/orders.yaml", "sweeps/candidates.yaml",
    "multi30k/aggressive.yaml", "multi30k/lattice.yaml", "papers/aspec-ja-en-double-token.yaml",
)  # fmt: skip

SECONDS = 60
"""Time in which each command has to end."""
MEMORY_MIB = 512
"""Memory by which the process may grow."""


def offline(url: str, path: Path) -> dict[str, Any]:
    raise StageError(f"{url}: could not be downloaded: no network")


def too_long(number: int, frame: object) -> None:
    raise RuntimeError(f"no end after {SECONDS} seconds")


def texts_with_data(folder: Path) -> dict[str, str]:
    """Return the shipped configs, after writing them and short files in place of the text that they name into a folder."""
    shutil.copytree(ROOT / "configs", folder / "configs")
    for config in (folder / "configs").rglob("*.yaml"):
        for name in re.findall(r"\bdata/[\w./-]+\.\w\w\b", config.read_text()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("a b c\nd e\n")
    return {name: (folder / "configs" / name).read_text() for name in NAMES}


def outcome(code: int, error: str) -> str:
    """Return `planned`, `refused`, `offline`, or what must not happen: `traceback` or `failed`."""
    if "Traceback" in error or (code != 0 and not error.strip()):
        return "traceback"
    return "offline" if "no network" in error else {0: "planned", 2: "refused"}.get(code, "failed")


def test_the_configs_are_planned_before_they_are_mutated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in texts_with_data(tmp_path):
        assert main(["plan", f"configs/{name}", "--set", f"store.path={tmp_path / 'store'}"]) == 0, name


@pytest.mark.slow
def test_mutated_configs_are_planned_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`FEWSTEP_MUTATIONS` is the number of configs, and `FEWSTEP_MUTATIONS_SEED` the first seed."""
    count, first = int(os.environ.get("FEWSTEP_MUTATIONS", "100")), int(os.environ.get("FEWSTEP_MUTATIONS_SEED", "0"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(downloads, "copy_from_url", offline)
    signal.signal(signal.SIGALRM, too_long)
    texts, outcomes, failures = texts_with_data(tmp_path), Counter[str](), list[str]()
    started, memory = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in range(first, first + count):
        chance = random.Random(seed)
        name = chance.choice(NAMES)
        data, overrides = mutated(texts[name], list(texts.values()), chance)
        config = tmp_path / "configs" / name
        config.with_name("mutated.yaml").write_bytes(data)
        options = [*overrides, f"store.path={tmp_path / 'store'}", "store.mirror=''"]
        signal.alarm(SECONDS)
        code = main(["plan", str(config.with_name("mutated.yaml")), *(part for one in options for part in ("--set", one))])
        signal.alarm(0)
        error = capsys.readouterr().err
        outcomes[found := outcome(code, error)] += 1
        if found in ("traceback", "failed"):
            failures.append(f"seed {seed}: exit code {code}: {error[-1500:]}")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) >> 10
    with capsys.disabled():
        print(f"\n{count} configs from seed {first}: {dict(outcomes)}, {time.monotonic() - started:.0f} s, {grown} MiB")
    assert not failures, f"{len(failures)} of {count}\n" + "\n".join(failures)
    assert grown < MEMORY_MIB
    assert min(outcomes["planned"], outcomes["refused"]) > count // 10
