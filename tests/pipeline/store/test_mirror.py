"""Tests of the mirror, which holds complete artifacts after any interruption. A folder on a disk replaces object storage."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import durable
from pipeline.config.schema import Cluster, RunConfig, StoreConfig, Tracking
from pipeline.plan.estimate import estimate
from pipeline.plan.explain import nearest
from pipeline.plan.step import Builder, Plan
from pipeline.run import execute, transfers
from pipeline.run.origins import provenance
from pipeline.run.transfers import Uploads, fetchable, mirrored
from pipeline.store import mirror, object_storage, streams
from pipeline.store.artifacts import Store
from pipeline.store.attempts import partial_directories, partial_directory
from pipeline.store.manifest import isa_levels, manifest_values
from pipeline.store.mirror import Mirror
from pipeline.store.object_storage import Folder, _Disk
from stages.context import StepContext
from stages.errors import ArtifactError, StageError, TransientError
from stages.stage import Stage
from stages.workers import Resources
from tests.pipeline.run.toys import Toy, ToyConfig, ToyInputs

CALLS: list[str] = []


def toy(inputs: ToyInputs, config: ToyConfig, context: StepContext) -> None:
    CALLS.append(config.text)
    before = "".join((artifact.path / "deep/text").read_text() for artifact in inputs.before)
    (context.directory / "deep").mkdir(exist_ok=True)
    context.write_text(context.directory / "deep/text", before + config.text)
    context.write_text(context.directory / "other", "x" * 100)
    context.metrics(1, {"loss": 1.0})


def training(inputs: ToyInputs, config: ToyConfig, context: StepContext) -> None:
    """Count to 3, one update in each attempt, and save checkpoints as a training does.

    The candidate comes first, and the checkpoint is renamed once it is complete, because the mirror may read it meanwhile.
    """
    folder = context.directory / "checkpoints"
    done = max((int(path.name) for path in folder.glob("[0-9]*")), default=0)
    CALLS.append(f"{config.text} from {done}")
    (folder / "candidates").mkdir(parents=True, exist_ok=True)
    (folder / "candidates" / f"{done + 1}.safetensors").write_text(f"weights {done + 1}")
    temporary = folder / "checkpoint.tmp"
    temporary.mkdir()
    (temporary / "state.json").write_text(f"{done + 1}")
    temporary.rename(folder / str(done + 1))
    if done + 1 < 3:
        raise TransientError("not yet")
    context.write_text(context.directory / "model", "".join(path.read_text() for path in sorted((folder / "candidates").iterdir())))


STAGE = Stage("toy", 1, toy, Toy)
PRODUCT = Stage("product", 1, toy, Toy, product=True)
TRAINING = Stage("training", 1, training, Toy, trains=True, distributes=True)


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    CALLS.clear()
    monkeypatch.setattr(streams, "PAUSE_SECONDS", 0.01)


def chain(store: Store) -> Plan:
    builder = Builder(store.root)
    a = builder.add(STAGE, "a", ToyInputs(), ToyConfig("a"))
    b = builder.add(STAGE, "b", ToyInputs((a,)), ToyConfig("b"))
    builder.add(PRODUCT, "c", ToyInputs((b,)), ToyConfig("c"))
    return builder.plan()


def trained(store: Store) -> Plan:
    builder = Builder(store.root)
    builder.add(TRAINING, "t", ToyInputs(), ToyConfig("t"))
    return builder.plan()


def go(plan: Plan, store: Store, url: str, retries: int = 0) -> execute.RunReport:
    config = RunConfig(
        store=StoreConfig(path=store.root, mirror=url), cluster=Cluster(retries=retries), tracking=Tracking(enabled=False)
    )
    return execute.run(config, plan, store, config_file="toy.yaml", in_process=True)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/mirror"


def at(tmp_path: Path, name: str) -> Store:
    return Store(tmp_path / name)


def files(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def test_a_second_machine_fetches_only_needed_artifacts_and_executes_nothing(tmp_path: Path, url: str) -> None:
    one, two = at(tmp_path, "one"), at(tmp_path, "two")
    assert len(go(chain(one), one, url).executed) == 3
    CALLS.clear()
    again = go(chain(two), two, url)
    assert (CALLS, again.executed, again.fetched) == ([], (), ("product:c",))
    (made,), (fetched,) = ([s.directory for s in chain(store).steps if s.stage is PRODUCT] for store in (one, two))
    assert files(made) == files(fetched)  # records and all
    assert not list(two.root.glob("toy/*"))
    shutil.rmtree(two.root)
    (tmp_path / "mirror/product").rename(tmp_path / "mirror/lost")
    assert go(chain(two), two, url).executed == ("product:c",)
    assert CALLS == ["c"]
    assert (fetched / "deep/text").read_text() == "abc"


def test_an_incomplete_upload_is_not_an_artifact(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every prefix of the uploads of an artifact is tested. The next run completes it."""
    one = at(tmp_path, "one")
    go(chain(one), one, "")
    step = chain(one).steps[0]
    real, left = _Disk.write, [0]

    def fails(self: _Disk, name: str, blocks: Iterator[bytes]) -> None:
        if left[0] == 0:
            raise OSError("the network went away")
        left[0] -= 1
        real(self, name, blocks)

    monkeypatch.setattr(mirror, "CONNECTIONS", 1)
    for number in range(5):  # deep/text, other, metrics, manifest, index; then the manifest that counts
        left[0] = number
        monkeypatch.setattr(_Disk, "write", fails)
        with pytest.raises(StageError, match="could not be reached: the network went away"):
            Mirror(url, one).push(step.directory)
        two = at(tmp_path, f"two{number}")
        assert not Mirror(url, two).pull(chain(two).steps[0].directory)
    monkeypatch.setattr(_Disk, "write", real)
    assert Mirror(url, one).push(step.directory)
    assert not Mirror(url, one).push(step.directory)
    two = at(tmp_path, "two")
    assert Mirror(url, two).pull(chain(two).steps[0].directory)
    assert files(chain(two).steps[0].directory) == files(step.directory)


def test_an_interrupted_download_leaves_no_artifact(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = at(tmp_path, "one"), at(tmp_path, "two")
    go(chain(one), one, url)
    directory = chain(two).steps[0].directory

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "adopt", killed)
    with pytest.raises(KeyboardInterrupt):
        Mirror(url, two).pull(directory)
    assert not directory.exists()
    assert not list(directory.parent.iterdir())


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "index", "names"])
def test_a_damaged_artifact_in_the_mirror_is_refused(tmp_path: Path, url: str, damage: str) -> None:
    one, two = at(tmp_path, "one"), at(tmp_path, "two")
    go(chain(one), one, url)
    directory = chain(two).steps[0].directory
    place = tmp_path / "mirror/toy" / directory.name
    (file,), (index,) = place.glob("*/other"), place.glob("*.index.json")
    if damage == "flip":
        file.write_text("x" * 99 + "y")
    elif damage == "cut":
        file.write_text("x" * 50)
    elif damage == "remove":
        file.unlink()
    elif damage == "index":
        index.write_text("{")
    else:
        index.write_text(index.read_text().replace('"records/', '"../../../escaped-'))
    with pytest.raises(ArtifactError, match=f"remove {url}/toy/{directory.name} and repeat"):
        Mirror(url, two).pull(directory)
    assert not directory.exists()
    assert not list(tmp_path.rglob("*escaped*"))


MUTANTS: tuple[Any, ...] = (None, True, 3, -1, 1 << 80, "", "text", "../../x", "\ud800", [], [None], {}, {"bytes": "3"})


def mutated(value: Any) -> Iterator[Any]:
    """Yield a value without each of its parts in turn, and with each of them replaced by others."""
    yield from MUTANTS
    for key in value if isinstance(value, dict) and "python" not in value else ():  # the environment is not read
        yield {name: item for name, item in value.items() if name != key}
        for item in mutated(value[key]):
            yield {**value, key: item}


def read_record(mirror: Mirror, directory: Path, partial: Path, record: str) -> None:
    if record == "checkpoints":
        mirror.pull_checkpoints(directory, partial)
        mirror.push_checkpoints(directory, partial)
    else:
        mirror.pull(directory)


def problem_of(use: Callable[[], None]) -> str:
    try:
        use()
    except ArtifactError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("record", ["manifest", "index", "checkpoints"])
def test_mutated_records_are_refused_by_name_or_harmless(
    tmp_path: Path, url: str, record: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sync", "sync_all"):  # of some thousand files, which are handled by a thread each
        monkeypatch.setattr(durable.RealDisk, name, lambda *arguments: None)
    monkeypatch.setattr(durable.RealDisk, "each", lambda disk, function, items, at_once: list(map(function, items)))
    one, two = at(tmp_path, "one"), at(tmp_path, "two")
    if record == "checkpoints":
        go(trained(one), one, url)
        directory = trained(two).steps[0].directory
        place = tmp_path / f"mirror/training/{directory.name}.partial"
        partial = one.root / "training" / f"{directory.name}.partial-x" / "checkpoints/1"
        partial.mkdir(parents=True)
        (partial / "state.json").write_text("1")
        Mirror(url, one).push_checkpoints(trained(one).steps[0].directory, partial.parents[1])
        path = place / "index.json"
    else:
        go(chain(one), one, url)
        directory = chain(two).steps[0].directory
        place = tmp_path / "mirror/toy" / directory.name
        path = place / "manifest.json" if record == "manifest" else next(place.glob("*.index.json"))
    whole, refused = path.read_text(), 0
    for number, value in enumerate(mutated(json.loads(whole))):
        path.write_text(json.dumps(value))
        mirror, partial = Mirror(url, two), two.root / "training" / f"{directory.name}.partial-{number}"
        if problem := problem_of(lambda: read_record(mirror, directory, partial, record)):  # noqa: B023
            refused += 1
            assert place.name in problem
        shutil.rmtree(two.root, ignore_errors=True)
    assert refused > 20
    assert not list(tmp_path.rglob("*x/state.json"))


@pytest.mark.parametrize("name", ["manifest.json", "index.json"])
def test_a_record_of_a_mirror_without_an_end_is_refused_by_name(
    tmp_path: Path, url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = at(tmp_path, "one"), at(tmp_path, "two")
    go(chain(one), one, url)
    directory = chain(two).steps[0].directory
    (path,) = (tmp_path / "mirror/toy" / directory.name).glob(f"*{name}")
    monkeypatch.setattr(object_storage, "MAX_READ_BYTES", 4096)
    path.write_text(path.read_text() + " " * 4096)
    with pytest.raises(ArtifactError, match=rf"{name}: expected at most 4,096 bytes, got more; the copy in the mirror is damaged"):
        Mirror(url, two).pull(directory)


def test_mutated_manifests_of_other_artifacts_do_no_harm(tmp_path: Path) -> None:
    """Plans, estimates, licences and MLflow read the manifests of artifacts that nobody has compared with their files."""
    store = at(tmp_path, "one")
    go(chain(store), store, "")
    plan = chain(store)
    directory = plan.steps[0].directory
    manifest = json.loads((directory / "manifest.json").read_text())
    other = directory.rename(directory.with_name("0" * 32))
    read = 0
    values = [{**manifest, "fingerprint": other.name}, *mutated({**manifest, "fingerprint": other.name})]
    for value in values:
        (other / "manifest.json").write_text(json.dumps(value))
        assert len(estimate(plan, store, {"toy": Resources(workers=2)})) == 3
        read += nearest(plan.steps[0], store) == value
        provenance(other)
        environment = manifest_values(other).get("environment", {})
        assert all(isinstance(level, str) for level in isa_levels({**environment, "isa": value}))
    assert 0 < read < len(values) - 50


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("inputs", {"a": 5}),
        ("records", [None]),
        ("origin", [{"name": []}]),
        ("contents", {"a": {}}),
        ("replaces", [1]),
        ("seconds", float("nan")),
        ("finished", 10**400),
        ("version", True),
        ("step", "\ud800"),
    ],
)
def test_a_manifest_has_values_of_its_types(tmp_path: Path, key: str, value: Any) -> None:
    store = at(tmp_path, "one")
    go(chain(store), store, "")
    directory = chain(store).steps[0].directory
    manifest = json.loads((directory / "manifest.json").read_text())
    (directory / "manifest.json").write_text(json.dumps({**manifest, key: value}))
    with pytest.raises(ArtifactError, match=f"{key}: expected "):
        store.manifest(directory)


def test_a_damaged_copy_in_the_mirror_fails_its_step_and_not_the_run(tmp_path: Path, url: str) -> None:
    one, two = at(tmp_path, "one"), at(tmp_path, "two")
    go(chain(one), one, url)
    builder = Builder(two.root)
    builder.add(PRODUCT, "d", ToyInputs(), ToyConfig("d"))
    plan = Plan((*chain(two).steps, *builder.plan().steps))
    (path,) = (tmp_path / "mirror/product").glob("*/manifest.json")
    path.write_text("[]")
    report = go(plan, two, url)
    assert list(report.failed) == ["product:c"]
    assert f"{url}/product/{path.parent.name}: manifest.json: expected a JSON object, got []" in str(report.failed["product:c"])
    assert report.executed == ("product:d",)


def test_an_altered_artifact_is_not_mirrored(tmp_path: Path, url: str) -> None:
    one = at(tmp_path, "one")
    go(chain(one), one, "")
    directory = chain(one).steps[0].directory
    (directory / "other").write_text("y" * 100)
    with pytest.raises(ArtifactError, match="the artifact was altered and is not mirrored"):
        Mirror(url, one).push(directory)
    assert not Mirror(url, at(tmp_path, "two")).pull(chain(at(tmp_path, "two")).steps[0].directory)


def test_simultaneous_uploads_of_one_artifact_do_not_mix(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines find the mirror empty and upload at once. Their records differ."""
    one, two, three = (at(tmp_path, name) for name in ("one", "two", "three"))
    for store in (one, two):
        go(chain(store), store, "")
        monkeypatch.setattr(Mirror, "holds", lambda self, directory: False)
        assert Mirror(url, store).push(chain(store).steps[0].directory)
    assert Mirror(url, three).pull(chain(three).steps[0].directory)
    assert files(chain(three).steps[0].directory) == files(chain(two).steps[0].directory)


def test_a_failing_mirror_is_reported_and_does_not_end_the_run(tmp_path: Path, url: str) -> None:
    one = at(tmp_path, "one")
    (tmp_path / "mirror").write_text("a file where a folder should be")
    with pytest.raises(StageError, match="could not be reached"):
        go(chain(one), one, url)
    (tmp_path / "mirror").unlink()
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror/product").write_text("one folder alone is in the way")
    with pytest.raises(StageError, match="could not be reached"):
        go(chain(one), one, url)
    (tmp_path / "mirror/product").unlink()


def test_failed_uploads_are_repeated_by_the_next_run(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, real = at(tmp_path, "one"), Mirror.push

    def refuses(self: Mirror, directory: Path) -> bool:
        if directory.parent.name == "product":
            raise StageError("no room there")
        return real(self, directory)

    monkeypatch.setattr(Mirror, "push", refuses)
    report = go(chain(one), one, url)
    assert (report.failed, list(report.unmirrored)) == ({}, ["product:c"])
    events = [json.loads(line) for line in (report.run.path / "events.jsonl").read_text().splitlines()]
    assert [(e["step"], e["error"]) for e in events if e["event"] == "mirror_failed"] == [("product:c", "no room there")]
    assert report.run.state().status == "done"
    monkeypatch.setattr(Mirror, "push", real)
    assert go(chain(one), one, url).unmirrored == {}
    assert Mirror(url, one).holds(chain(one).steps[2].directory)


def test_the_plan_lists_artifacts_to_fetch(tmp_path: Path, url: str) -> None:
    one, two = at(tmp_path, "one"), at(tmp_path, "two")
    go(chain(one), one, url)
    assert mirrored(url, chain(two), two) == {"product:c"}
    assert mirrored("", chain(two), two) == set()
    shutil.rmtree(tmp_path / "mirror/product")
    assert [s.name for s in fetchable(chain(two), two, Mirror(url, two))] == ["toy:b"]


def test_a_training_continues_on_another_machine(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "CHECKPOINT_SECONDS", 0.01)
    for name in ("one", "two", "three"):
        store = at(tmp_path, name)
        go(trained(store), store, url)
    assert CALLS == ["t from 0", "t from 1", "t from 2"]
    (step,) = trained(at(tmp_path, "three")).steps
    assert (step.directory / "model").read_text() == "weights 1weights 2weights 3"
    assert not (tmp_path / f"mirror/training/{step.directory.name}.partial/index.json").exists()
    four = at(tmp_path, "four")
    assert go(trained(four), four, url).fetched == ("training:t",)


def test_local_checkpoints_take_precedence(tmp_path: Path, url: str) -> None:
    one, two = at(tmp_path, "one"), at(tmp_path, "two")
    for store in (one, two):
        go(trained(store), store, "")
    (first,), (second,) = trained(one).steps, trained(two).steps
    mine, theirs = (partial_directories(step.directory)[-1] for step in (first, second))
    assert Mirror(url, one).push_checkpoints(first.directory, mine)
    assert not Mirror(url, one).push_checkpoints(first.directory, mine)
    assert not Mirror(url, two).pull_checkpoints(second.directory, theirs)


def test_checkpoints_that_are_removed_during_an_upload_are_skipped(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = at(tmp_path, "one")
    go(trained(one), one, "")
    (step,) = trained(one).steps
    partial, real = partial_directories(step.directory)[-1], Folder.upload

    def dropped(self: Folder, name: str, path: Path) -> dict[str, object]:
        path.unlink(missing_ok=True)
        return real(self, name, path)

    monkeypatch.setattr(Folder, "upload", dropped)
    assert not Mirror(url, one).push_checkpoints(step.directory, partial)
    two = at(tmp_path, "two")
    directory = trained(two).steps[0].directory
    assert not Mirror(url, two).pull_checkpoints(directory, partial_directory(directory, "b"))


def test_uploads_continue_after_unexpected_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = at(tmp_path, "one")
    run = go(chain(one), one, "").run

    def broken(self: Mirror, directory: Path) -> bool:
        raise RuntimeError("what nobody thought of")

    monkeypatch.setattr(Mirror, "push", broken)
    uploads = Uploads(Mirror(f"file://{tmp_path}/mirror", one), run)
    uploads.add(chain(one).steps)
    uploads.close()
    assert {str(error) for error in uploads.failed.values()} == {"RuntimeError: what nobody thought of"}


def test_a_full_disk_during_a_fetch_names_the_path(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = at(tmp_path, "one"), at(tmp_path, "two")
    go(chain(one), one, url)

    def full(path: Path, blocks: Iterator[bytes]) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(object_storage, "write_blocks", full)
    with pytest.raises(StageError, match=r"two/toy/\w+\.\w+\.fetching/.*could not be written: No space left"):
        Mirror(url, two).pull(chain(two).steps[0].directory)
