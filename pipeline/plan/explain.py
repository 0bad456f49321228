"""The reasons why steps have to be executed: differences in config, inputs and version from the most similar earlier artifact."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.plan.code_digest import code_digest
from pipeline.plan.fingerprint import artifacts, canonical, input_fingerprints
from pipeline.plan.freshness import changed_inputs, survey
from pipeline.plan.step import Plan, Step
from pipeline.store.artifacts import Store
from pipeline.store.attempts import partial_directories
from pipeline.store.files import read_json
from pipeline.store.manifest import SCHEMA, values_problem, with_defaults
from stages.artifacts import MANIFEST

ABSENT = object()
"""The value of a key that a config does not have."""
EMPTY = (ABSENT, None)
MAX_DIFFERENCES = 8
"""Differences that a line of `plan` lists. Steps with many inputs, such as the report, may differ in hundreds."""


@dataclass(frozen=True)
class Explanation:
    """A line of the command `plan`."""

    step: Step
    verdict: Literal["HIT", "FETCH", "MISS"]
    reason: str


def explain(plan: Plan, store: Store, mirrored: Collection[str] = ()) -> list[Explanation]:
    """Return HIT, FETCH (its name is in `mirrored`) or MISS with the reason for each step.

    Raises ArtifactError if a finished artifact was altered.
    """
    names = {step.fingerprint: step.name for step in plan.steps}
    states = survey(plan, store)
    present = {name for name, state in states.items() if state == "hit" or (state == "missing" and name in mirrored)}
    needed = {step.name for step in plan.needed(lambda step: step.name in present)}
    lines: list[Explanation] = []
    missing: set[str] = set()
    for step in plan.steps:
        manifest = store.manifest(step.directory)
        if manifest is None and step.name in mirrored:
            lines.append(Explanation(step, "FETCH", "in the mirror"))
        elif manifest is None:
            missing.add(step.name)
            idle = "" if step.name in needed else "; not executed: no step that will be executed needs it"
            lines.append(Explanation(step, "MISS", _why(step, store, names, missing) + idle))
        elif states[step.name] == "stale":
            missing.add(step.name)
            names_of = ", ".join(changed_inputs(step, manifest, store))
            lines.append(Explanation(step, "MISS", f"other content since it was made: input {names_of}"))
        elif states[step.name] == "undecided":
            lines.append(Explanation(step, "MISS", "it is kept if the steps before it have the same content again"))
        else:
            changed = manifest.code_digest != code_digest(step.stage.module)
            lines.append(Explanation(step, "HIT", "code changed since" if changed else ""))
    return lines


def _why(step: Step, store: Store, names: dict[str, str], missing: set[str]) -> str:
    begun = "; begun, continues" if partial_directories(step.directory) else ""
    found = nearest(step, store)
    if found is None:
        return f"no earlier {step.stage.name} in the store{begun}"
    return (_shortened(_differences(step, found, names, missing)) or f"no artifact of {step.name} is in the store") + begun


def _shortened(differences: list[str]) -> str:
    more = len(differences) - MAX_DIFFERENCES
    return "; ".join(differences[:MAX_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")


def nearest(step: Step, store: Store) -> dict[str, Any] | None:
    """Return the manifest of the same stage that is most similar to `step`, or None.

    A manifest of the same step name comes first, then the one with the fewest differences, then the latest. Manifests that cannot
    be read, or have another schema or shape, are skipped.
    """
    found = [(path.parent.name, with_defaults(read_json(path))) for path in (store.root / step.stage.name).glob(f"*/{MANIFEST}")]
    of_this_schema = [one for name, one in found if (one.get("schema"), one.get("fingerprint")) == (SCHEMA, name.partition(".")[0])]
    manifests = [manifest for manifest in of_this_schema if values_problem(manifest) is None]
    return min(
        manifests, key=lambda m: (m["step"] != step.name, len(_differences(step, m, {}, set())), -m["finished"]), default=None
    )


def _differences(step: Step, manifest: dict[str, Any], names: dict[str, str], missing: set[str]) -> list[str]:
    found = []
    if manifest["version"] != step.stage.version:
        found.append(f"version {manifest['version']} -> {step.stage.version}")
    found += _changes(manifest["config"], canonical(step.config, keep_defaults=True), canonical(step.config))
    old = manifest["inputs"]
    new = input_fingerprints(step.inputs)
    of_name = {name: artifact.fingerprint for name, artifact in artifacts(step.inputs)}
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            maker = names.get(of_name.get(key, ""), "")
            found.append(f"input {key} {_difference(key, old, new)}" + _of_maker(maker, missing))
    return found


def _difference(key: str, old: Mapping[str, str], new: Mapping[str, str]) -> str:
    if key not in old:
        return "is new"
    return "differs" if key in new else "was removed"


def _of_maker(maker: str, missing: Collection[str]) -> str:
    if not maker:
        return ""
    return f" ({maker} is a MISS)" if maker in missing else f" ({maker})"


def _changes(before: Any, now: Any, stated: Any, name: str = "") -> Iterator[str]:
    """Yield the changed keys. A section that only one side has is named without its content.

    A key that only `now` has is a change if its value is `stated`, that is, not a default.
    """
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            value = stated.get(key, ABSENT) if isinstance(stated, dict) else ABSENT
            if key in before or value is not ABSENT:
                yield from _changes(before.get(key, ABSENT), now.get(key, ABSENT), value, f"{name}.{key}".lstrip("."))
    elif before in EMPTY and isinstance(now, dict):
        yield f"{name} is new"
    elif now in EMPTY and isinstance(before, dict):
        yield f"{name} was removed"
    elif before != now:
        yield f"{name}: {_shown(before)} -> {_shown(now)}"


def _shown(value: Any) -> str:
    return "absent" if value is ABSENT else json.dumps(value, ensure_ascii=False)
