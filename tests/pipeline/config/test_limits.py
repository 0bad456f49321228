"""Configs, and files that they name, that would exhaust memory, time or the stack are refused with their place."""

import glob
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.__main__ import main
from pipeline.config.files.limits import MAX_BASES, MAX_BYTES
from pipeline.config.load import load_config
from pipeline.config.texts import Walk, matching
from pipeline.errors import ConfigError, DataError
from tests.pipeline.config.config_text import load, wrong
from tests.pipeline.run_specs import ROOT
from tests.stages.corpus.test_hostile_parquet import nested
from tests.stages.shared.test_hostile_archives import sparse_tar

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 3000))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LAUGHS, "expected at most 50,000 values, aliases written out"),
        (CHAIN, "expected at most 64 levels of nesting, aliases written out"),
        ("name: " + "[" * 5000, "more than 64 levels of nesting"),
        ("\n".join(" " * n + "a:" for n in range(1000)), "more than 64 levels of nesting"),
        ('name: "\\U00110000"', "expected YAML"),
        ('store: {path: "a\\0b"}', "expected no control character and no lone surrogate, got '\\x00' at character 2"),
        ('store: {path: "\\ud800"}', "got '\\ud800' at character 1"), ('"a\\0b": 1', "expected no control character"),
        (f"store: {{path: {'x' * 5000}}}", "store.path: expected at most 4096 characters, got 5,000"),
        ("store: {path: 's3://k:hunter2@b/x'}", "artifacts store.mirror copies to object storage, got a URL of s3"),
        (f"name: {'x' * 300}", "c.yaml:1: name: expected at most 64 characters"),
        ("systems:" + "".join(f"\n  s{n}: {{}}" for n in range(1001)), "systems: expected at most 1,000 systems, got 1,001"),
        (f"systems: {{{'x' * 300}: {{}}}}", "expected at most 64 characters"), ("base: " + "x" * 300, "base: expected a file"),
    ],
)  # fmt: skip
def test_oversized_configs_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    problems = wrong(tmp_path, text)
    assert any(problem in line for line in problems)
    assert all(len(line) < 7000 for line in problems)


def test_large_files_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_text("#" * (MAX_BYTES + 1))
    os.mkfifo(tmp_path / "pipe")
    for path, problem in (
        (tmp_path / "large.yaml", "at most 1,048,576 bytes"),
        (tmp_path / "pipe", "pipe or device"),
        (Path("/dev/zero"), "pipe or device"),
        (tmp_path, "directory"),
    ):
        with pytest.raises(ConfigError, match=problem):
            load_config(path)


def test_a_file_that_makes_readers_wait_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "c.yaml")
    regular = os.stat(__file__)
    monkeypatch.setattr(Path, "stat", lambda path, **options: regular)
    with pytest.raises(ConfigError):
        load_config(tmp_path / "c.yaml")


def test_long_chains_of_bases_and_keys_are_refused(tmp_path: Path) -> None:
    for number in range(MAX_BASES + 1):
        (tmp_path / f"b{number}.yaml").write_text(f"base: b{number + 1}.yaml\n")
    (tmp_path / f"b{MAX_BASES + 1}.yaml").write_text("name: last\n")
    assert any(f"at most {MAX_BASES} files" in line for line in wrong(tmp_path, "base: b1.yaml"))
    assert load(tmp_path, "base: b3.yaml").name == "last"
    assert any("key of at most 64 parts" in line for line in wrong(tmp_path, "", ".".join("a" * 5000) + "=1"))


def test_a_store_that_cannot_be_used_is_refused_by_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for path in ("/proc/store", "/dev/null/store", str(tmp_path / ("x" * 300)), str(tmp_path / "loop")):
        for command in ("plan", "run"):
            assert main([command, "configs/demo.yaml", "--set", f"store.path={path}"]) == 2
            error = capsys.readouterr().err
            assert error.startswith("store.path: expected a directory")
            assert "Traceback" not in error


@pytest.mark.parametrize(
    "command",
    [
        "plan {}", "run {}", "status {}", "report {}", "translate {}", "publish {}", "export {} --to out", "diff {} {}",
        "export system --to {}", "gc --store {}", "init train.en train.de --output {}", "status --store {}",
        "plan configs/demo.yaml --set store.path={}", "plan configs/demo.yaml --set corpus.train.source={}",
    ],
)  # fmt: skip
def test_names_that_no_file_can_have_are_refused(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").symlink_to(Path("configs").absolute())
    monkeypatch.chdir(tmp_path)
    for side in ("en", "de"):
        (tmp_path / f"train.{side}").write_text("a b c\n" * 500)
    for name in ("x" * 300, "/proc/self/x", "loop"):
        (tmp_path / "loop").unlink(missing_ok=True)
        (tmp_path / "loop").symlink_to("loop")
        code = main([part.format(name) for part in command.split()])
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        assert code == 2, output


def test_pipes_and_devices_are_refused_as_text_by_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_text("a b c\n" * 50)
    good = {"source": str(tmp_path / "text"), "target": str(tmp_path / "text")}
    for name in (str(tmp_path / "pipe"), "/dev/zero"):
        corpus = {"train": {**good, "source": name}, "validation": good, "test": {"a": good}}
        (tmp_path / "c.yaml").write_text(json.dumps({"corpus": corpus, "systems": {"s": {"family": "stepwise"}}}))
        assert main(["plan", str(tmp_path / "c.yaml"), "--set", f"store.path={tmp_path / 'store'}"]) == 2
        assert f"{name}: expected a readable text file, got a pipe, socket or device" in capsys.readouterr().err


def test_the_first_of_thousands_of_problems_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Similar names are looked for where they are shown, and no look goes through all others."""
    looks: list[object] = []

    def look(*values: object, n: int) -> list[str]:
        looks.append(values)
        return []

    monkeypatch.setattr("pipeline.config.errors.get_close_matches", look)
    keys = "".join(f"key{number}: 1\n" for number in range(1000))
    problems = wrong(tmp_path, keys)
    assert [line.split(":")[1] for line in problems[:20]] == [str(number) for number in range(1, 21)]
    assert problems[20:] == ["and 980 more problems"]
    assert len(looks) < 100


def test_a_pattern_does_not_walk_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.config.texts.MAX_VISITED", 100)
    for number in range(12):
        (tmp_path / f"a/{number}/b").mkdir(parents=True)
        for name in ("x.en", "y.de", ".hidden.en"):
            (tmp_path / f"a/{number}/b" / name).write_text("text")
    (tmp_path / "a/loop").symlink_to(tmp_path / "a")
    for pattern in ("a/1*/b/*.en", "a/1/**/*.en", "a/[12]/?/x.en", "a/1/**", "a/?/b/.h*", "*/3/b/y.de"):
        found = [str(Path(one)) for one in glob.glob(str(tmp_path / pattern), recursive=True) if not os.path.isdir(one)]
        assert [str(path) for path in matching(tmp_path / pattern, Walk())] == sorted(set(found))
    for pattern in ("**/*", "**/*.nothing", "*/*/*/*/*", "/**/*"):
        with pytest.raises(DataError, match=r"at most 100 files and folders, .* begin it with the folder of the files"):
            matching(tmp_path / pattern, Walk())
    assert main(["plan", "configs/demo.yaml", "--set", "corpus.train={source: '/**/*', target: '/**/*'}"]) == 2


def test_all_patterns_together_do_not_walk_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of a thousand patterns may look at fewer files than one may."""
    monkeypatch.setattr("pipeline.config.texts.MAX_VISITED_IN_ALL", 300)
    for number in range(20):
        (tmp_path / f"{number}.txt").write_text("text\n")
    few, many = ([str(tmp_path / f"{number}.*") for number in range(count)] for count in (2, 20))
    for paths, problem in ((few, ""), (many, "patterns that together lead through at most 300 files and folders")):
        text = json.dumps({"embedded": 0, "source": paths, "target": paths})
        main(["plan", "configs/demo.yaml", "--set", f"corpus.train={text}", "--set", f"store.path={tmp_path / 'store'}"])
        error = capsys.readouterr().err
        assert problem in error if problem else "patterns" not in error


@pytest.mark.parametrize("key", ["initial_weights", "verifier", "drafter_system"])
@pytest.mark.parametrize("value", ["{a: 1}", "[a]", "3", "null"])
def test_seeds_with_a_reference_of_another_type_are_refused(key: str, value: str, tmp_path: Path) -> None:
    text = f"base: {Path('configs/demo.yaml').absolute()}\nseeds: [1, 2]\nsystems: {{a: {{{key}: {value}}}, b: {{}}}}\n"
    (tmp_path / "c.yaml").write_text(text)
    assert main(["plan", str(tmp_path / "c.yaml"), "--set", f"store.path={tmp_path / 'store'}"]) in (0, 2)


MEMORY, SECONDS = 1 << 30, 20
CORPUS = "corpus: {{train: {train}, validation: {{embedded: 10}}, test: {{t: {{embedded: 10}}}}}}\nsystems: {{a: {{}}}}\n"


def planned(config: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `plan` on a config with limits."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    (folder / "c.yaml").write_text(config)
    return subprocess.run(
        [sys.executable, "-m", "pipeline", "plan", str(folder / "c.yaml"), "--set", f"store.path={folder / 'store'}"],
        cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=limit, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["nested parquet", "sparse tar", "pipe", "numbers", "keys", "nesting"])
def test_plan_ends_with_words_on_foreign_input(attack: str, tmp_path: Path) -> None:
    parquet, archive, pipe = tmp_path / "p.parquet", tmp_path / "c.tar", tmp_path / "pipe"
    nested(parquet, 20_000)
    os.mkfifo(pipe)
    if attack == "sparse tar":
        sparse_tar(archive)
        os.truncate(archive, 64 << 20)  # its digest is computed
    configs = {
        "nested parquet": CORPUS.format(train=f"{{parquet: {parquet}}}") + "vocabulary: {size: auto}\n",
        "sparse tar": CORPUS.format(train=f"{{source: {{path: {archive}, member: a}}, target: {{path: {archive}, member: b}}}}"),
        "pipe": CORPUS.format(train=f"{{source: {pipe}, target: {pipe}}}"),
        "numbers": CORPUS.format(train=f"{{embedded: {2**62}}}") + f"defaults: {{width: {2**62}, training: {{updates: -1}}}}\n",
        "keys": CORPUS.format(train="{embedded: 10}") + "".join(f"unknown_{number}: 1\n" for number in range(40_000)),
        "nesting": CORPUS.format(train="{embedded: 10}") + "a: " + "[" * 100_000,
    }
    done = planned(configs[attack], tmp_path)
    assert done.returncode in (0, 1, 2), done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 100_000
    if attack in ("pipe", "numbers", "keys", "nesting"):
        assert done.returncode == 2
        assert "expected" in done.stderr or "unknown" in done.stderr, done.stderr
