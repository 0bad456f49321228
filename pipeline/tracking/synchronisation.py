"""One pass that brings a tracker up to date with a run: what a run's events, artifacts and records become there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.run.history import Run, RunState, StepState
from pipeline.run.records import (
    driver_gone,
    metric_files,
    pictures_of,
    points_after,
    read_json,
    scores_of,
    step_directory,
    timings_of,
)
from pipeline.tracking.publication import RUN, Memory, allowed_name, masked_values, run_of_origin, step_tags
from stages.artifacts import MANIFEST, RECORDS

if TYPE_CHECKING:
    from pipeline.tracking.mlflow_server import Server

POINTS_BATCH = 1000
"""Points sent at once."""
WHERE = ("cluster", "store", "tracking")
"""Sections of the config that say where a run works: they may change when it is continued, and MLflow's parameters cannot."""
STATUS = {
    "running": "RUNNING",
    "pending": "RUNNING",
    "done": "FINISHED",
    "hit": "FINISHED",
    "failed": "FAILED",
    "stopped": "KILLED",
}


@dataclass
class Remote:
    """An MLflow run of ours, as MLflow has it."""

    run_id: str
    status: str
    tags: dict[str, str] = field(default_factory=dict)
    params: set[str] = field(default_factory=set)


class Synchronisation:
    """One pass over a run directory."""

    def __init__(self, run: Run, server: Server, memory: Memory, final: bool) -> None:
        self.run, self.server, self.memory = run, server, memory
        self.spec: dict[str, Any] = run.spec
        self.state: RunState = run.state()
        self.events = run.events()
        self.times = {event["step"]: event["time"] for event in self.events if "step" in event}
        """When something was last said of each step."""
        self.over = final or self.state.status in ("done", "failed", "stopped") or driver_gone(run, self.state)

    def all(self) -> None:
        """Files come last: the place of artifacts can be away while the server is there."""
        parent = self._parent()
        for entry in self.spec["plan"]:
            self._step(entry, self.state.steps[entry["step"]], parent)
        if self.over:
            self.server.set_status(parent, self._status(self.state.status), self.state.finished)
        self._files(parent)

    def _status(self, status: str) -> str:
        wanted = STATUS[status]
        return "KILLED" if self.over and wanted == "RUNNING" else wanted

    def _remote(self, key: str, name: str, started: float | None) -> Remote:
        remote = self.server.run(key, name, started)
        self.memory.start(key, remote.run_id)
        return remote

    def _parent(self) -> Remote:
        parent = self._remote(RUN, self.spec["run_id"], self.events[0]["time"] if self.events else None)
        errors = [f"{step.step}: {step.error}" for step in self.state.steps.values() if step.status == "failed"]
        tags = {
            "fewstep.run": self.spec["run_id"],
            "fewstep.attempt": str(sum(event["event"] == "run_started" for event in self.events)),
            **({"fewstep.error": "; ".join(errors)} if errors else {}),
        }
        self.server.set_tags(parent, tags)
        self.server.add_params(parent, {key: value for key, value in self.spec["config"].items() if key not in WHERE})
        if not self.over:
            self.server.set_status(parent, "RUNNING", None)
        return parent

    def _step(self, entry: dict[str, Any], step: StepState, parent: Remote) -> None:
        if step.status in ("pending", "waiting", "skipped"):
            left = self.server.runs.get(step.step)
            if left is not None and self.over and left.status == "RUNNING":
                self.server.set_status(left, "KILLED", self.state.finished)
            return
        hit = step.status == "hit" and step.origin != self.spec["run_id"]  # our own, committed just before a crash, is no hit
        source = self._source(entry, step) if hit else None
        status = self._status(step.status)
        finished = step.finished or self.times[step.step]
        remote = self._remote(step.step, step.step, step.started or finished)
        notes = self.memory.step(step.step)
        published = [remote.run_id, parent.run_id, status, hit, source, len(step.attempts), finished]
        if notes.get("published") == published:
            return
        directory = step_directory(self.run.store, entry)
        manifest = read_json(directory / MANIFEST)
        tags = step_tags(entry, step, manifest, directory, hit=hit, source=source)
        self.server.set_tags(remote, tags | {"fewstep.run": self.spec["run_id"], "mlflow.parentRunId": parent.run_id})
        self.server.add_params(remote, manifest.get("config") or entry.get("config") or {})
        if not hit:
            self._curves(remote, notes, directory)
        if status == "FINISHED":
            self._results(remote, parent, entry["step"], directory, manifest, hit=hit)
        self.server.set_status(remote, status, finished)
        if status != "RUNNING":
            notes.update(published=published, fingerprint=entry["fingerprint"])
            self.memory.save()

    def _source(self, entry: Mapping[str, Any], step: StepState) -> str | None:
        return (
            run_of_origin(self.run.path.parent / step.origin, self.memory.here["uri"], entry["fingerprint"])
            if step.origin
            else None
        )

    def _curves(self, remote: Remote, notes: dict[str, Any], directory: Path) -> None:
        """Send what is new in the metrics files. A later attempt repeats steps of an earlier one: those are there already."""
        files: dict[str, Any] = notes.setdefault("files", {})
        for path in metric_files(directory):
            here = files.setdefault(path.name, {"position": 0, "last": {}})
            earlier = _last_steps(other for name, other in files.items() if name != path.name)
            batch: list[tuple[str, float, float, int]] = []
            for point in points_after(path, here["position"]):
                fresh = {allowed_name(n): v for n, v in point.values.items() if point.step > earlier.get(allowed_name(n), -1)}
                batch += [(name, value, point.time, point.step) for name, value in fresh.items()]
                here["last"].update({name: max(point.step, here["last"].get(name, 0)) for name in fresh})
                here["position"] = point.end
                if len(batch) >= POINTS_BATCH:
                    self._send(remote, batch)
                    batch = []
            self._send(remote, batch)

    def _send(self, remote: Remote, points: Sequence[tuple[str, float, float, int]]) -> None:
        if points:
            self.server.add_points(remote, points)
            self.memory.save()

    def _results(
        self, remote: Remote, parent: Remote, step: str, directory: Path, manifest: Mapping[str, Any], *, hit: bool
    ) -> None:
        """Final numbers of a finished step; scores also at the parent, where runs are compared, even if another run made them."""
        moment = float(manifest.get("finished") or 0.0)
        scores = {name: score for name, (score, _) in scores_of(directory).items()}
        place = step.split(":", 1)[1].replace(":", "/")
        self.server.add_points(parent, [(allowed_name(f"{place}/{name}"), value, moment, 0) for name, value in scores.items()])
        if hit:
            return
        drawn = _last_steps(self.memory.step(step)["files"].values())
        final = {"seconds": float(manifest.get("seconds") or 0.0), **scores, **timings_of(directory)}
        named = {allowed_name(name): value for name, value in final.items()}
        self.server.add_points(remote, [(name, value, moment, 0) for name, value in named.items() if name not in drawn])

    def _files(self, parent: Remote) -> None:
        """Config, plan, ledger and report at the parent; figures and tables at their steps. No corpora, no weights."""
        import yaml

        config = yaml.safe_dump(masked_values(self.spec["config"]), sort_keys=False, allow_unicode=True)
        self._put_text(parent, "config.yaml", config)
        self._put_text(parent, "plan.json", json.dumps(masked_values(self.spec["plan"]), indent=1, ensure_ascii=False) + "\n")
        for entry in self.spec["plan"]:
            step, directory = self.state.steps[entry["step"]], step_directory(self.run.store, entry)
            if step.status not in ("done", "hit"):
                continue
            if entry["step"] == "corpus:train":
                self._put_file(parent, directory / "ledger.json")
            if entry["stage"] == "report":
                self._put_file(parent, directory / RECORDS / "report.md")
                self._put_file(parent, directory / RECORDS / "report.html")
            if step.status == "done":
                for path in pictures_of(directory):
                    self._put_file(self.server.runs[entry["step"]], path, path.parent.name)

    def _put_text(self, remote: Remote, name: str, text: str) -> None:
        data = text.encode()
        stamp = hashlib.sha256(data).hexdigest()
        if not self._is_sent(remote, name, stamp, len(data)):
            self.server.artifacts.send_text(remote.run_id, name, text)
            self._sent(remote, name, stamp)

    def _put_file(self, remote: Remote, path: Path, folder: str | None = None) -> None:
        if not path.is_file():
            return
        name = f"{folder}/{path.name}" if folder else path.name
        size = path.stat().st_size
        stamp = f"{size} {path.stat().st_mtime_ns}"
        if not self._is_sent(remote, name, stamp, size):
            self.server.artifacts.send(remote.run_id, path, folder)
            self._sent(remote, name, stamp)

    def _is_sent(self, remote: Remote, name: str, stamp: str, size: int) -> bool:
        """Whether an artifact was sent and is still there: somebody may have removed it."""
        remembered = self.memory.here["artifacts"].get(f"{remote.run_id}/{name}") == stamp
        return remembered and self.server.artifacts.holds(remote.run_id, name, size)

    def _sent(self, remote: Remote, name: str, stamp: str) -> None:
        self.memory.here["artifacts"][f"{remote.run_id}/{name}"] = stamp
        self.memory.save()


def _last_steps(files: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Metric -> the last step sent of it, over notes on metrics files."""
    last: dict[str, int] = {}
    for file in files:
        for name, step in file["last"].items():
            last[name] = max(step, last.get(name, step))
    return last
