"""Whether artifacts are still those of their inputs, which `run --force` may have recomputed with other content.

A fingerprint names the inputs of a step by their own fingerprints, not by their bytes. A manifest therefore also states the content
of each input artifact that was read. An artifact is stale if an input that is in the store has other content now.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from pipeline.plan.fingerprint import artifacts
from pipeline.plan.step import Plan, Step
from pipeline.store.artifacts import Store
from pipeline.store.manifest import Manifest

State = Literal["hit", "missing", "forced", "stale", "undecided"]
"""`stale`: an input has other content now. `undecided`: a step before it is forced or stale, on whose new content it depends."""
AGAIN: tuple[State, ...] = ("forced", "stale", "undecided")


def input_manifests(step: Step, store: Store) -> dict[str, Manifest]:
    """Return the manifests of the input artifacts that are finished, by dotted name. Raises ArtifactError for an altered one."""
    found = {name: store.manifest(artifact.path) for name, artifact in artifacts(step.inputs)}
    return {name: manifest for name, manifest in found.items() if manifest is not None}


def contents(step: Step, store: Store) -> dict[str, str]:
    """Return what a manifest of the step states about the content of its input artifacts.

    For a stage that reads records, an input that was recomputed has new content in any case. Raises ArtifactError.
    """
    found = input_manifests(step, store)
    by_attempt = {name for name, manifest in found.items() if step.stage.reads_records and manifest.replaces}
    return {name: manifest.attempt if name in by_attempt else manifest.content for name, manifest in found.items()}


def changed_inputs(step: Step, manifest: Manifest, store: Store) -> list[str]:
    """Return the names of the inputs whose content differs from what an artifact was made from. Raises ArtifactError."""
    now = contents(step, store)
    return [name for name, content in manifest.contents.items() if now.get(name, content) != content]


def survey(plan: Plan, store: Store, forced: Collection[str] = ()) -> dict[str, State]:
    """Return the state of each step in a store. Raises ArtifactError for an altered artifact."""
    states: dict[str, State] = {}
    for step in plan.steps:
        manifest = store.manifest(step.directory)
        if manifest is None:
            states[step.name] = "missing"
        elif step.name in forced:
            states[step.name] = "forced"
        elif changed_inputs(step, manifest, store):
            states[step.name] = "stale"
        else:
            states[step.name] = "undecided" if any(states.get(need) in AGAIN for need in step.needs) else "hit"
    return states
