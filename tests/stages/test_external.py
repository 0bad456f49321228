"""Teachers from elsewhere: programs that work, write too few lines, die and hang, and models of CTranslate2."""

import json
import sys
from pathlib import Path

import pytest

import fewstep
from fewstep.config.options import OutputLimits
from fewstep.families.stepwise.config import StepwiseSearch
from stages.artifacts import ExternalFile, Text
from stages.errors import DataError, TransientError
from stages.external import CTranslate2Options, ExternalConfig, ExternalInputs
from stages.external.ctranslate2_model import CTranslate2Lines, source_suffix
from stages.external.process import Translator
from stages.external.run import run
from tests.models.imports.marian_networks import LIMIT, LINES, write_marian
from tests.models.imports.test_marian import convert
from tests.processes import FAST_SECONDS, running, until
from tests.stages.steps import context_in, rows_of, write_text

UPPER = "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line.decode().upper().encode()); sys.stdout.flush()"


def translate(code, lines, timeout=FAST_SECONDS, **options):
    settings = {"files": (), "environment": (), **options}
    return list(Translator([sys.executable, "-c", code], timeout_seconds=timeout, **settings).translate(lines))


def test_lines_are_translated_in_order_whatever_the_program_buffers():
    lines = [f"línea {number}\u2028x" for number in range(3000)]
    assert translate(UPPER, lines) == [line.upper() for line in lines]
    late = "import sys; lines = sys.stdin.buffer.readlines(); sys.stdout.buffer.writelines(lines)"
    assert translate(late, lines) == lines


def test_wrong_numbers_of_lines_are_errors_of_the_user():
    fewer = "import sys; sys.stderr.write('lost one\\n'); [print(line, end='') for line in list(sys.stdin)[1:]]"
    with pytest.raises(DataError, match=r"expected 3 lines, got 2 \(exit 0\); stderr ends: lost one"):
        translate(fewer, ["a", "b", "c"])
    with pytest.raises(DataError, match=r"expected 2 lines, got 3 \(more lines\)"):
        translate("import sys; [print(1) for _ in range(9)]; sys.stdin.read()", ["a", "b"])
    with pytest.raises(DataError, match="line 1: expected UTF-8"):
        translate("import sys; sys.stdin.read(); sys.stdout.buffer.write(b'\\xff\\n')", ["a"])


def test_programs_that_fail_are_tried_again():
    with pytest.raises(TransientError, match=r"got 1 \(exit 3\); stderr ends: out of luck"):
        translate("import sys; print(1, flush=True); sys.exit(sys.stderr.write('out of luck\\n') and 3)", ["a", "b"])
    with pytest.raises(TransientError, match="signal 9"):
        translate("import os; os.kill(os.getpid(), 9)", ["a" * 100] * 10_000)
    with pytest.raises(DataError, match="expected a program"):
        list(Translator(["/no/such/program"], files=(), environment=(), timeout_seconds=1).translate(["a"]))


def test_a_progress_bar_without_newlines_is_cut_in_messages():
    bar = "import sys; [sys.stderr.write(f'{n} of 100000\\r') for n in range(100_000)]; sys.exit(1)"
    with pytest.raises(TransientError, match=r"99999 of 100000$") as caught:
        translate(bar, ["a"])
    assert len(str(caught.value)) < 12_000


def test_a_program_that_hangs_is_killed_with_its_children(tmp_path):
    marker = tmp_path / "child"
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen(['sleep', '600']); open({str(marker)!r}, 'w').write(str(child.pid))\n"
        "print('x', flush=True); time.sleep(600)"
    )
    with pytest.raises(TransientError, match=r"got 1 \(no line for 5 s\)"):
        translate(code, ["a", "b"], timeout=5.0)
    child = int(marker.read_text())
    until(lambda: not running(child))


def test_the_program_sees_its_files_and_named_variables_alone(tmp_path, monkeypatch):
    (tmp_path / "table.txt").write_text("content")
    monkeypatch.setenv("SECRET", "hidden")
    monkeypatch.setenv("MODEL_HOME", "/models")
    shown = "open('table.txt').read(), os.environ.get('SECRET'), os.environ['MODEL_HOME'], os.environ['LANG']"
    code = f"import os, sys; sys.stdin.read(); print({shown})"
    assert translate(code, ["a"], files=[tmp_path / "table.txt"], environment=("MODEL_HOME",)) == ["content None /models C.UTF-8"]


def text_of(directory, lines=("one", "two", "", "three", "four", "fünf")):
    return write_text(directory, [(line, "x") for line in lines], 2)


def rows(directory):
    return [tuple(row.values()) for row in rows_of(directory)]


def test_complete_shards_are_kept_and_only_missing_ones_are_translated(tmp_path):
    text = text_of(tmp_path / "text")
    context = context_in(tmp_path / "external.partial")
    log, fail = tmp_path / "log", tmp_path / "fail"
    code = (
        "import os, sys\n"
        f"for line in sys.stdin:\n    open({str(log)!r}, 'a').write(line)\n"
        f"    if line.strip() == 'four' and not os.path.exists({str(fail)!r}): open({str(fail)!r}, 'w'); sys.exit(1)\n"
        "    print(line.strip().upper(), flush=True)"
    )
    config = ExternalConfig(command=(sys.executable, "-c", code), version="1")
    with pytest.raises(TransientError, match="exit 1"):
        run(ExternalInputs(text, ()), config, context)
    run(ExternalInputs(text, ()), config, context)
    assert rows(context.directory) == [
        (0, "one", "ONE"), (1, "two", "TWO"), (3, "three", "THREE"), (4, "four", "FOUR"), (5, "fünf", "FÜNF"),
    ]  # fmt: skip
    assert log.read_text().split() == ["one", "two", "three", "four", "four", "fünf"]
    assert '"empty": 1' in (context.directory / "distill.json").read_text()


def test_outputs_are_normalised_as_training_text_is(tmp_path):
    text, context = text_of(tmp_path / "text", ("one", "two", "three")), context_in(tmp_path / "external.partial")
    outputs = "ein\u2581 satz \r\n\u200a\r\nfu\u0308nf\r\n".encode()
    code = f"import sys; sys.stdin.read(); sys.stdout.buffer.write({outputs!r})"
    run(ExternalInputs(text, ()), ExternalConfig(command=(sys.executable, "-c", code), version="1"), context)
    assert rows(context.directory) == [(0, "one", "ein satz"), (2, "three", "fünf")]


def test_files_and_version_enter_the_fingerprint_and_limits_do_not():
    from pipeline.plan.fingerprint import canonical

    config = ExternalConfig(command=("a",), version="1", timeout_seconds=3.0, shards_per_process=2)
    assert canonical(config) == canonical(ExternalConfig(command=("a",), version="1"))
    assert canonical(config) != canonical(ExternalConfig(command=("a",), version="2"))
    inputs = [ExternalInputs(Text(Path("x"), "f"), (ExternalFile(Path("y"), digest),)) for digest in ("1", "2")]
    assert canonical(inputs[0]) != canonical(inputs[1])


def files_of(model: Path, pieces: Path) -> dict[str, ExternalFile]:
    paths = {path.name: path for path in model.iterdir()}
    paths |= {f"{side}_pieces": pieces / f"{side}.spm" for side in ("source", "target")}
    return {name: ExternalFile(path, name) for name, path in paths.items()}


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    """Return a folder with a Marian network, its CTranslate2 model by CTranslate2's converter, and its imported system."""
    pytest.importorskip("ctranslate2")
    pytest.importorskip("transformers")
    from ctranslate2.converters import TransformersConverter

    folder = tmp_path_factory.mktemp("marian")
    write_marian(folder / "marian", seed=5)
    TransformersConverter(str(folder / "marian")).convert(str(folder / "model"))
    convert(folder / "marian", folder / "system")
    return folder


@pytest.mark.parametrize(("strategy", "beam_size"), [("greedy", 1), ("beam", 4)])
def test_a_converted_network_translates_as_its_original(marian, strategy, beam_size, tmp_path):
    options = CTranslate2Options(beam_size=beam_size, max_tokens=LIMIT - 1)
    inputs = ExternalInputs(
        write_text(tmp_path / "text", [(line, line) for line in LINES], 2), (), files_of(marian / "model", marian / "marian")
    )
    context = context_in(tmp_path / "external.partial")
    run(inputs, ExternalConfig(ctranslate2=options), context)
    found = [row["target"] for row in rows_of(context.directory)]
    limits = OutputLimits(max_tokens=LIMIT - 1, max_extra_tokens=100)
    search = StepwiseSearch(strategy=strategy, beam_size=4, output_limits=limits)
    expected = fewstep.load(marian / "system").translate(LINES, search=search)
    assert len(set(expected)) > 1
    assert found == [line for line in expected if line]


def test_only_models_without_an_end_of_their_own_get_one(marian, tmp_path):
    assert source_suffix(marian / "model/config.json") == ("</s>",)
    for settings in ({"add_source_eos": True}, {"decoder_start_token": "<s>"}):
        values = json.loads((marian / "model/config.json").read_text()) | settings
        (tmp_path / "config.json").write_text(json.dumps(values))
        assert source_suffix(tmp_path / "config.json") == ()


def test_pieces_around_sources_and_outputs(marian):
    files = files_of(marian / "model", marian / "marian")
    plain = CTranslate2Lines(files, CTranslate2Options(max_tokens=9), device="cpu", threads=1)
    explicit = CTranslate2Lines(files, CTranslate2Options(max_tokens=9, source_suffix=("</s>",)), device="cpu", threads=1)
    without = CTranslate2Lines(files, CTranslate2Options(max_tokens=9, source_suffix=()), device="cpu", threads=1)
    assert list(plain.translate(LINES)) == list(explicit.translate(LINES)) != list(without.translate(LINES))
    options = CTranslate2Options(max_tokens=9, source_prefix=("▁the",), target_prefix=("▁das",))
    begun = list(CTranslate2Lines(files, options, device="cpu", threads=1).translate(["small house"]))
    pieces = ["▁the", *plain._source.encode("small house", out_type=str), "</s>"]
    limits = {"beam_size": 5, "max_decoding_length": 9, "disable_unk": True}
    both = plain._translator.translate_batch([pieces], target_prefix=[["▁das"]], **limits)
    assert begun == [plain._text(both[0].hypotheses[0][1:])]


def test_damaged_models_are_errors_of_the_user(marian, tmp_path):
    files = files_of(marian / "model", marian / "marian")
    (tmp_path / "model.bin").write_bytes(b"nothing")
    spoilt = files | {"model.bin": ExternalFile(tmp_path / "model.bin", "0")}
    with pytest.raises(DataError, match=r"teacher\.ctranslate2: .*: expected a model of CTranslate2, got"):
        CTranslate2Lines(spoilt, CTranslate2Options(), device="cpu", threads=1)
    (tmp_path / "codes").write_text("#version: 0.2\na b\n")
    with pytest.raises(DataError, match="codes: expected a SentencePiece model"):
        CTranslate2Lines(
            files | {"source_pieces": ExternalFile(tmp_path / "codes", "0")}, CTranslate2Options(), device="cpu", threads=1
        )
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(DataError, match=r"teacher\.ctranslate2: .*config\.json"):
        CTranslate2Lines(
            files | {"config.json": ExternalFile(tmp_path / "config.json", "0")}, CTranslate2Options(), device="cpu", threads=1
        )
