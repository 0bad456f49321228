"""Translation of a stream, one line for each line, and the systems of runs that translate and serve."""

import bz2
import gzip
import json
import logging
import lzma
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep import streams
from fewstep.config.options import NucleusSampling, Shortlist
from fewstep.config.problems import Problem
from fewstep.config.search import SystemParts
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.serve.systems import SystemLocation
from fewstep.translation import SourceTooLongError, Translation
from pipeline.__main__ import main
from pipeline.commands import serve, translate
from pipeline.errors import ArtifactError, ConfigError, DataError
from pipeline.run.run_directory import Run
from stages.errors import StageError
from tests.pipeline.run_specs import plan_entry, run_spec
from tests.processes import FAST_SECONDS
from tests.translating import translated

ROOT = Path(__file__).resolve().parents[3]


class Shouter:
    """A translator that capitalises lines and records the batches."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, list[str]]] = []
        self.searches: list[Any] = []

    def translate(self, lines: Sequence[str], search: Any = None, *, first_line: int = 1, **_: Any) -> list[str]:
        self.searches.append(search)
        return self.upper(lines, first_line)

    def wider_searches(self, search: Any) -> Iterator[Any]:
        return iter(())

    def hypotheses(self, lines: Sequence[str], *_: Any, **__: Any) -> list[list[Translation]]:
        return [[Translation(line.upper(), 0.0, 1, {})] for line in lines]

    def upper(self, lines: Sequence[str], first_line: int) -> list[str]:
        self.calls.append((first_line, list(lines)))
        return [line.upper() for line in lines]

    def problems(self, search: StepwiseSearch) -> Iterator[Problem]:
        """It has no n-gram model."""
        return search.problems(StepwiseConfig(order="semi-autoregressive"), SystemParts(ngram=False))


def piped(data: bytes, batch: int = 64) -> tuple[bytes, Shouter]:
    """Return the output for a file that holds `data`."""
    system = Shouter()
    inner, outer = os.pipe()
    back, out = os.pipe()
    feeder = threading.Thread(target=lambda: (streams.write_all(outer, data), os.close(outer)))
    received: list[bytes] = []
    drain = threading.Thread(target=lambda: received.extend(iter(lambda: os.read(back, 65536), b"")))
    feeder.start(), drain.start()
    streams.stream(system.upper, inner, out, batch=batch)
    os.close(out)
    feeder.join(), drain.join()
    os.close(inner), os.close(back)
    return b"".join(received), system


@given(lines=st.lists(st.text("aé\u2028 \t\r", max_size=8), max_size=40), batch=st.integers(1, 7), ended=st.booleans())
def test_one_line_out_for_each_line_in_in_order(lines: list[str], batch: int, ended: bool) -> None:
    data = "\n".join(lines).encode() + (b"\n" if ended and lines else b"")
    expected = data.decode().split("\n")[: -1 if data.endswith(b"\n") or not data else None]
    out, system = piped(data, batch)
    seen = [line for _, part in system.calls for line in part]
    assert seen == expected
    assert out.decode().count("\n") == len(expected)
    assert [line.upper() for line in expected] == out.decode().split("\n")[:-1]
    starts = [first for first, _ in system.calls]
    assert starts == [1 + sum(len(part) for _, part in system.calls[:i]) for i in range(len(starts))]
    assert all(1 <= len(part) <= batch for _, part in system.calls)


def test_blank_lines_stay_blank() -> None:
    assert piped(b"a\n\n  \nb")[0] == b"A\n\n  \nB\n"


def test_bad_bytes_are_replaced_with_a_warning_that_names_the_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fewstep"):
        out, _ = piped("schön\n".encode() + b"b\xffd\nfine\n", batch=1)
    assert out.decode() == "SCHÖN\nB\ufffdD\nFINE\n"
    assert [record.getMessage() for record in caplog.records] == ["line 2: not UTF-8 at byte 2; the invalid bytes are replaced"]


def refused(data: bytes, **options: Any) -> tuple[str, bytes]:
    """Return the message of the error for an input, and the output before it."""
    system = Shouter()
    inner, outer = os.pipe()
    back, out = os.pipe()
    streams.write_all(outer, data)
    os.close(outer)
    with pytest.raises(streams.StreamError) as found:
        streams.stream(system.upper, inner, out, **options)
    os.close(out)
    output = os.read(back, 1 << 16)
    os.close(inner), os.close(back)
    return str(found.value), output


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "gb18030", "shift_jis", "euc_kr", "cp1251"])
def test_text_in_another_encoding_is_refused_after_the_lines_before_it(encoding: str) -> None:
    texts = {"gb18030": "我是学生。", "shift_jis": "名前はまだ無い。", "euc_kr": "저는 학생입니다.", "cp1251": "Это Москва."}
    text = texts.get(encoding, "Fünf Mädchen")
    message, output = refused(b"plain\n" + f"{text}\nplain\n".encode(encoding))
    assert message.startswith("input, line 2: expected UTF-8, got the byte 0x")
    assert output == b"PLAIN\n"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (gzip.compress(b"a\nb\n", mtime=0), "a gzip file; decompress it first"),
        (bz2.compress(b"a\nb\n"), "a bzip2 file; decompress it first"),
        (lzma.compress(b"a\nb\n"), "an xz file; decompress it first"),
        (b"\x28\xb5\x2f\xfd\x04\x58", "a zstd file; decompress it first"),
        ("a\nb\n".encode("utf-16"), "UTF-16; convert it first"),
        ("ein Hund\n".encode("utf-16-le"), "UTF-16 or UTF-32; convert it first"),
        ("ein Hund\n".encode("utf-16-be"), "UTF-16 or UTF-32; convert it first"),
        ("ein Hund\n".encode("utf-32"), "UTF-32; convert it first"),
        ("名前\n".encode("iso2022_jp"), "ISO-2022; convert it first"),
    ],
    ids=["gzip", "bzip2", "xz", "zstd", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "iso-2022"],
)  # fmt: skip
def test_packed_and_wide_text_is_refused(data: bytes, kind: str) -> None:
    message, output = refused(data)
    assert message.startswith("input: expected ")
    assert kind in message
    assert output == b""


def test_a_line_that_is_refused_for_its_length_ends_the_stream_after_those_before_it() -> None:
    def translate(lines: list[str], first: int) -> list[str]:
        for number, line in enumerate(lines, first):
            if len(line) > 3:
                raise SourceTooLongError(number, line, 3, len(line))
        return [line.upper() for line in lines]

    inner, outer = os.pipe()
    back, out = os.pipe()
    os.write(outer, b"a\nb\nlong\nc\n")
    os.close(outer)
    with pytest.raises(streams.StreamError, match=r"^input, line 3: expected sentences of at most 3 tokens, got 4 \('long'\)"):
        streams.stream(translate, inner, out)
    assert os.read(back, 100) == b"A\nB\n"
    for descriptor in (inner, back, out):
        os.close(descriptor)


def test_an_answer_comes_before_the_next_question() -> None:
    """The writer waits for each answer before it continues, as at a terminal."""
    question, ask = os.pipe()
    hear, answer = os.pipe()
    system = Shouter()
    worker = threading.Thread(target=streams.stream, args=(system.upper, question, answer), daemon=True)
    worker.start()
    for line in (b"one\n", b"two\nthree\n"):
        os.write(ask, line)
        heard = b""
        while heard.count(b"\n") < line.count(b"\n"):
            assert select.select([hear], [], [], FAST_SECONDS)[0], f"no answer to {line!r}"
            heard += os.read(hear, 100)
        assert heard == line.upper()
    os.write(ask, b"no end of li")
    os.close(ask)
    assert os.read(hear, 100) == b"NO END OF LI\n"
    worker.join(FAST_SECONDS)
    assert not worker.is_alive()
    for descriptor in (question, hear, answer):
        os.close(descriptor)


def test_lines_that_are_ready_are_translated_together() -> None:
    """Lines that arrive while the system is busy form the next batch."""
    inner, outer = os.pipe()

    class Slow(Shouter):
        def upper(self, lines: Sequence[str], first_line: int) -> list[str]:
            if first_line == 1:
                os.write(outer, b"b\n" * 10)
                os.close(outer)
                time.sleep(0.5)
            return super().upper(lines, first_line)

    system = Slow()
    os.write(outer, b"a\n")
    with Path(os.devnull).open("wb") as sink:
        streams.stream(system.upper, inner, sink.fileno(), batch=8)
    os.close(inner)
    assert [len(lines) for _, lines in system.calls] == [1, 8, 2]


def test_nobody_reads_the_output() -> None:
    back, out = os.pipe()
    inner, outer = os.pipe()
    os.close(back)
    os.write(outer, b"a\n")
    with pytest.raises(BrokenPipeError):
        streams.stream(Shouter().upper, inner, out)
    for descriptor in (out, inner, outer):
        os.close(descriptor)


def test_the_command_ends_quietly_while_its_input_stays_open(tmp_path: Path) -> None:
    """Input that may still arrive does not keep the program from ending."""
    code = (
        "import sys; from pipeline.commands import translate; from pipeline.__main__ import main\n"
        "class Echo:\n    def translate(self, lines, search=None, **_): return lines\n"
        "translate._loaded = lambda directory, device, verify: Echo()\n"
        f"sys.exit(main(['translate', {str(tmp_path)!r}]))"
    )
    (tmp_path / "system.json").write_text("{}")
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, bufsize=0, **pipes) as process:
        process.stdin.write(b"one\n")
        assert process.stdout.readline() == b"one\n"
        process.stdout.close()
        process.stdin.write(b"two\n")
        assert process.wait() == 0
        assert process.stderr.read() == b""


@pytest.fixture
def shouter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shouter]:
    system = Shouter()
    monkeypatch.setattr(translate, "_loaded", lambda directory, device, verify: system)
    return system


def test_files_and_searches(tmp_path: Path, shouter: Shouter) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text("a\nb\n")
    output.write_text("something longer than the translation")
    searches = {
        None: None,
        "greedy": StepwiseSearch(),
        "beam": StepwiseSearch(strategy="beam"),
        "beam-beam_size7": StepwiseSearch(strategy="beam", beam_size=7),
        "greedy-deduplicate": StepwiseSearch(deduplicate=True),
        "sample-temperature0.5-deduplicate": StepwiseSearch(
            strategy="sample", sampling=NucleusSampling(temperature=0.5), deduplicate=True
        ),
        "fast": StepwiseSearch(shortlist=Shortlist(tokens=9)),
        "{beam: {beam_size: 3, length_penalty: 0}}": StepwiseSearch(strategy="beam", beam_size=3, length_penalty=0.0),
    }
    described = {"family": "stepwise", "searches": {"fast": asdict(searches["fast"]), "best": {"strategy": "beam"}}}  # type: ignore[arg-type]
    (tmp_path / "system.json").write_text(json.dumps(described))
    for text, expected in searches.items():
        translated(tmp_path, source, output, text)
        assert output.read_text() == "A\nB\n"
        assert shouter.searches[-1] == expected
    unknown = r"--search bean5: expected 'greedy', 'beam' or 'sample', got 'bean5'; .*searches of this system: fast, best"
    with pytest.raises(ConfigError, match=unknown):
        translated(tmp_path, source, output, "bean5")
    with pytest.raises(ConfigError, match=r"expected one of the keys .*beam_threshold.*, got 'prune'"):
        translated(tmp_path, source, output, "{beam: {prune: 3}}")
    weighted = "greedy-ngram_weight0.3"
    with pytest.raises(ConfigError, match=f"^--search {weighted}: ngram_weight: expected 0 for a system without an n-gram model"):
        translated(tmp_path, source, output, weighted)
    with pytest.raises(DataError, match=r"none: expected a file that can be read, got: No such file or directory"):
        translated(tmp_path, tmp_path / "none", output)


def test_what_cannot_begin_leaves_the_output_as_it_was(tmp_path: Path) -> None:
    source, output, broken = tmp_path / "in", tmp_path / "out", tmp_path / "broken"
    broken.mkdir()
    (broken / "system.json").write_text("{")
    source.write_text("a\n")
    for target in (output, tmp_path / "new"):
        for search, device, error in (("bean5", "cpu", ConfigError), (None, "cudaa", DataError), (None, "cpu", ArtifactError)):
            output.write_text("precious\n")
            with pytest.raises(error):
                translated(broken, source, target, search, device=device)
    assert output.read_text() == "precious\n"
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("shouter")
def test_a_text_is_not_translated_into_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "in"
    source.write_text("a\n")
    (tmp_path / "link").symlink_to(source)
    same = "expected an output other than the input, got the same file; write to a new file"
    for output in (source, tmp_path / "link", tmp_path / "." / "in"):
        with pytest.raises(DataError, match=f"{output}: {same}"):
            translated(tmp_path, source, output)
    with source.open("r+") as both:
        monkeypatch.setattr(streams, "STDIN", both.fileno())
        monkeypatch.setattr(streams, "STDOUT", both.fileno())
        for given, output, named in ((None, source, source), (None, None, "standard output"), (source, None, "standard output")):
            with pytest.raises(DataError, match=f"{named}: {same}"):
                translated(tmp_path, given, output)
    assert source.read_text() == "a\n"


def test_a_terminal_may_be_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shouter: Shouter) -> None:
    """An output such as `/dev/null` holds no content that could be overwritten."""
    with Path(os.devnull).open("r+b", buffering=0) as both:
        monkeypatch.setattr(streams, "STDIN", both.fileno())
        monkeypatch.setattr(streams, "STDOUT", both.fileno())
        translated(tmp_path)
    assert shouter.calls == []


def test_a_broken_system_is_an_artifact_error(tmp_path: Path) -> None:
    (tmp_path / "system.json").write_text("{")
    with pytest.raises(ArtifactError, match="system"):
        translated(tmp_path)


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"--device: expected cpu, or a GPU of this machine such as cuda:0, got 'cudaa' \("):
        translated(tmp_path, device="cudaa")


def test_where_a_system_is_found(tmp_path: Path) -> None:
    store = tmp_path / "store"
    pinned = tmp_path / "pinned"
    for directory in (store / "system/11", store / "system/22.partial", pinned):
        directory.mkdir(parents=True)
        (directory / "system.json").write_text("{}")
    (store / "system/11/manifest.json").write_text("{}")
    systems = {"made": {}, "begun": {}, "teacher-as-it-is": {"use": "teacher"}}
    plan = [plan_entry(f"system:{n}", fingerprint=f) for n, f in (("made", "11"), ("begun", "22"))]
    run = Run(store / "runs/demo-1")
    run.create(run_spec(*plan, config={"systems": systems, "teacher": {"from": str(pinned)}}, store=str(store)))

    assert translate.system_directory(Path("store"), str(pinned), None) == pinned
    for name in ("latest", "demo-1", str(run.path)):
        assert translate.system_directory(store, name, "made") == store / "system/11"
    assert translate.system_directory(store, "latest", "teacher-as-it-is") == pinned
    with pytest.raises(DataError, match=r"expected RUN and one of its systems \(made, begun, teacher-as-it-is\), got no system"):
        translate.system_directory(store, "latest", None)
    with pytest.raises(DataError, match=r"expected the directory of a system \(with system.json\), or RUN SYSTEM, got another"):
        translate.system_directory(store, str(store), None)
    with pytest.raises(DataError, match="got mad"):
        translate.system_directory(store, "latest", "mad")
    with pytest.raises(DataError, match="the system begun is not finished"):
        translate.system_directory(store, "latest", "begun")
    with pytest.raises(DataError, match="nowhere: expected a run"):
        translate.system_directory(store, "nowhere", "made")


def test_a_system_pinned_in_a_store_is_found_in_its_copy(tmp_path: Path) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    pinned = store / "system/11"
    pinned.mkdir(parents=True)
    (pinned / "system.json").write_text("{}")
    config = {"systems": {"teacher": {"use": "teacher"}}, "teacher": {"from": str(pinned)}}
    Run(store / "runs/demo-1").create(run_spec(config=config, store=str(store)))
    shutil.copytree(store, copy, symlinks=True)
    assert translate.system_directory(copy, "latest", "teacher") == copy / "system/11"
    assert translate.system_directory(store, "latest", "teacher") == pinned


@pytest.mark.parametrize(
    ("error", "raised"),
    [(ValueError("entry 3 is damaged"), ArtifactError), (OSError("threads: the system started 2"), StageError)],
)
def test_errors_while_translating_are_explained(
    tmp_path: Path, shouter: Shouter, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(translate, "stream", fail)
    (tmp_path / "in").write_text("a\n")
    with pytest.raises(raised, match=str(error)):
        translated(tmp_path, tmp_path / "in", tmp_path / "out")


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """A store with a run of two systems, of which one is pinned, and a run that has not finished."""
    served, pinned = tmp_path / "store", tmp_path / "pinned"
    for directory in (served / "system/11", pinned):
        directory.mkdir(parents=True)
        (directory / "system.json").write_text("{}")
    (served / "system/11/manifest.json").write_text("{}")
    systems = {"made": {}, "teacher": {"use": "teacher"}}
    config = {"systems": systems, "teacher": {"from": str(pinned)}}
    Run(served / "runs/demo-1").create(run_spec(plan_entry("system:made", fingerprint="11"), config=config, store=str(served)))
    return served


def test_a_run_stands_for_its_systems(served: Path) -> None:
    made, pinned = served / "system/11", served.parent / "pinned"
    for name in ("latest", "demo-1", str(served / "runs/demo-1")):
        assert list(serve.located(served, name)) == [SystemLocation(made, "made"), SystemLocation(pinned, "teacher")]
        assert list(serve.located(served, f"{name}:teacher")) == [SystemLocation(pinned, "teacher")]
    assert list(serve.located(served, str(pinned))) == [SystemLocation(pinned)]
    assert list(serve.located(served, f"mine={pinned}")) == [SystemLocation(pinned, "mine")]


def test_unknown_runs_and_systems_are_refused(served: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"demo-2: expected a run of .*; the directory of a system has a file system\.json"):
        list(serve.located(served, "demo-2"))
    with pytest.raises(DataError, match=r"expected RUN and one of its systems \(made, teacher\), got mad"):
        list(serve.located(served, "demo-1:mad"))
    with pytest.raises(DataError, match="expected a run"):
        list(serve.located(served, f"mine={tmp_path}"))


def test_options_reach_the_server(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def start(places: list[SystemLocation], values: dict[str, Any]) -> int:
        given.append((places, values))
        return 2

    monkeypatch.setattr(serve, "serve_locations", start)
    arguments = ["serve", "demo-1:made", f"b={served.parent / 'pinned'}", "--port", "0", "--ray", "--store", str(served)]
    assert main(arguments) == 2
    ((places, values),) = given
    assert places == [SystemLocation(served / "system/11", "made"), SystemLocation(served.parent / "pinned", "b")]
    assert set(values) == {option.name for option in serve.OPTIONS}
    assert (values["port"], values["ray"], values["max_batch"], values["token_file"]) == (0, True, 32, None)
    assert main([*arguments, "--port", "many"]) == 2
    assert len(given) == 1


def test_documents_are_translated_by_the_pipeline_as_by_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shouter = Shouter()
    shouter.source_language, shouter.target_language, shouter.task = "en", "fr", "translation"  # type: ignore[attr-defined]
    shouter.chosen_search = lambda search: StepwiseSearch()  # type: ignore[attr-defined]
    monkeypatch.setattr(translate, "_loaded", lambda *_: shouter)
    source, output = tmp_path / "a.md", tmp_path / "b.md"
    source.write_text("# Title\n\nOne. Two.\n")
    translated(tmp_path, source, output, format="md")
    assert output.read_text() == "# TITLE\n\nONE. TWO.\n"
    source.write_bytes(b"\xe9")
    with pytest.raises(DataError, match=r"a\.md, line 1: expected UTF-8"):
        translated(tmp_path, source, output, format="md")
