"""Why a step is in the store or has to be made: which parameter, input or version differs from the nearest earlier artifact."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.plan.code_digest import code_digest
from pipeline.plan.fingerprint import artifacts, canonical
from pipeline.plan.step import Plan, Step
from pipeline.run.attempt import input_fingerprints
from pipeline.run.mirror_sync import reached
from pipeline.run.records import read_json
from pipeline.store.artifacts import SCHEMA, Store
from stages.artifacts import MANIFEST

ABSENT = object()
"""Stands for what a config does not have."""
NOTHING = (ABSENT, None)
TOLD = 8
"""Differences that a line of `plan` tells of: what takes much in, as the report does, may differ in hundreds."""


@dataclass(frozen=True)
class Explanation:
    """One line of `plan`."""

    step: Step
    verdict: Literal["HIT", "FETCH", "MISS"]
    reason: str


def explain(plan: Plan, store: Store, mirrored: Collection[str] = ()) -> list[Explanation]:
    """For each step HIT, FETCH (`mirrored` holds its name) or MISS with the reason.

    Raises ArtifactError when a finished artifact was altered.
    """
    names = {step.fingerprint: step.name for step in plan.steps}
    wanted = {s.name for s in reached(plan, lambda s: s.name in mirrored or store.manifest(s.directory) is not None)}
    lines: list[Explanation] = []
    missing: set[str] = set()
    for step in plan.steps:
        manifest = store.manifest(step.directory)
        if manifest is None and step.name in mirrored:
            lines.append(Explanation(step, "FETCH", "in the mirror"))
        elif manifest is None:
            missing.add(step.name)
            idle = "" if step.name in wanted else "; not made: nothing that is to be made needs it"
            lines.append(Explanation(step, "MISS", _why(step, store, names, missing) + idle))
        else:
            changed = manifest.code_digest != code_digest(step.stage.module)
            lines.append(Explanation(step, "HIT", "code changed since" if changed else ""))
    return lines


def _why(step: Step, store: Store, names: dict[str, str], missing: set[str]) -> str:
    partial = store.partial(step.directory).is_dir()
    begun = "; begun, continues" if partial else ""
    found = nearest(step, store)
    if found is None:
        return f"no earlier {step.stage.name} in the store{begun}"
    return (_told(_differences(step, found, names, missing)) or f"no artifact of {step.name} is in the store") + begun


def _told(differences: list[str]) -> str:
    more = len(differences) - TOLD
    return "; ".join(differences[:TOLD]) + (f"; and {more} more" if more > 0 else "")


def nearest(step: Step, store: Store) -> dict[str, Any] | None:
    """The manifest of the same stage that is most like `step`: one of its name wins, then the fewest differences, then the latest.

    One that cannot be read, or that another version of fewstep wrote, is passed over.
    """
    read = [read_json(path) for path in (store.root / step.stage.name).glob(f"*/{MANIFEST}")]
    manifests = [manifest for manifest in read if manifest.get("schema") == SCHEMA]
    return min(
        manifests, key=lambda m: (m["step"] != step.name, len(_differences(step, m, {}, set())), -m["finished"]), default=None
    )


def _differences(step: Step, manifest: dict[str, Any], names: dict[str, str], missing: set[str]) -> list[str]:
    found = []
    if manifest["version"] != step.stage.version:
        found.append(f"version {manifest['version']} -> {step.stage.version}")
    found += _changes(manifest["config"], canonical(step.config, keep_defaults=True), canonical(step.config))
    old, new = manifest["inputs"], input_fingerprints(step.inputs)
    of_name = {name: artifact.fingerprint for name, artifact in artifacts(step.inputs)}
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            maker = names.get(of_name.get(key, ""), "")
            how = "is new" if key not in old else "is gone" if key not in new else "differs"
            found.append(f"input {key} {how}" + (f" ({maker}{' is a MISS' if maker in missing else ''})" if maker else ""))
    return found


def _changes(before: Any, now: Any, stated: Any, name: str = "") -> Iterator[str]:
    """Keys that were changed. A part that stands on one side alone is named and not spelled out; an option that there was none of
    then, and that is not `stated` now, changes nothing."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            said = stated.get(key, ABSENT) if isinstance(stated, dict) else ABSENT
            if key in before or said is not ABSENT:
                yield from _changes(before.get(key, ABSENT), now.get(key, ABSENT), said, f"{name}.{key}".lstrip("."))
    elif before in NOTHING and isinstance(now, dict):
        yield f"{name} is new"
    elif now in NOTHING and isinstance(before, dict):
        yield f"{name} is gone"
    elif before != now:
        yield f"{name}: {_shown(before)} -> {_shown(now)}"


def _shown(value: Any) -> str:
    return "absent" if value is ABSENT else json.dumps(value, ensure_ascii=False)
