"""Benchmarks of decoding: their arithmetic, their rivals' files, settings and environment, and a run on tiny networks."""

import ast
import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.decoding import base_size
from benchmarks.decoding.base_entries import chosen, entries
from benchmarks.decoding.networks import VOCABULARY, network, sentences
from benchmarks.decoding.profile import by_part
from benchmarks.decoding.random_systems import SHORTLIST, lexicon
from benchmarks.decoding.roofline import Network, least_seconds, sentence_bytes, stepwise
from benchmarks.rivals import ctranslate2_settings, like_for_like, marian
from benchmarks.rivals.ctranslate2_settings import OWN, Model, Setting, Trial, fastest, of_threads, settings_of_one_thread
from benchmarks.rivals.entries import PRECISIONS, Transformers
from fewstep.vocabulary import EOS, RESERVED
from stages.benchmark.rivals import process
from stages.benchmark.rivals.process import Process, users_environment

# ---- the table at Transformer-base size: its arithmetic, its rivals' files, and a run of the program on tiny networks


TINY = Network(width=128, feed_forward=256, source=9, vocabulary=8000, shortlist=628)


def test_bytes_are_those_of_the_network() -> None:
    model = network("tiny", (4, 1))
    weights = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and "embedding" not in name)
    *layers, _ = stepwise(TINY, (4, 1), tokens=8, step=1)
    assert sum(phase.weights for phase in layers) == weights


def test_a_batch_shares_weights_and_a_step_of_two_tokens_halves_passes() -> None:
    one, two = (stepwise(TINY, (4, 4), tokens=8, step=step) for step in (1, 2))
    assert [phase.passes for phase in one] == [1, 1, 8, 8]
    assert [phase.passes for phase in two] == [1, 1, 4, 4]
    shared = sum(phase.passes * phase.weights for phase in one)
    assert sentence_bytes(one, 1) - sentence_bytes(one, 8) == pytest.approx(shared * 7 / 8)


def test_the_least_time_takes_the_slower_limit_of_each_phase() -> None:
    phases = stepwise(TINY, (4, 4), tokens=8, step=1)
    by_bytes, by_products = least_seconds(phases, 1, 1e9, 1e30), least_seconds(phases, 1, 1e30, 1e9)
    both = least_seconds(phases, 1, 1e9, 1e9)
    assert by_bytes == pytest.approx(sentence_bytes(phases, 1) / 1e9)
    assert max(by_bytes, by_products) < both < by_bytes + by_products


def test_marian_hold_each_tokens_links(tmp_path: Path) -> None:
    links = np.arange(60).reshape(20, 3) % 20
    folder = marian.write(tmp_path, layers=(1, 1), width=8, feed_forward=16, heads=2, vocabulary=20, links=links, common=4)
    data = (folder / "shortlist.bin").read_bytes()
    magic, _, common, best, count, total = struct.unpack_from("<6Q", data)
    assert (magic, common, best, count, total) == (marian.SHORTLIST_MAGIC, 4, 3, 21, 60)
    offsets = struct.unpack_from(f"<{count}Q", data, 48)
    tokens = struct.unpack_from(f"<{total}I", data, 48 + 8 * count)
    assert [list(tokens[offsets[at] : offsets[at + 1]]) for at in range(20)] == links.tolist()
    assert str(folder / "model.npz") in marian.configuration(folder, 100, 10)


def test_parts_of_a_profile_sum_to_one() -> None:
    functions = {"native fewstep::packed_gemm::multiply": 0.4, "native fewstep::Attention::attend": 0.1}
    shares = by_part({"libpython3.11.so eval": 0.2, **functions, "x y": 0.1})
    assert shares == pytest.approx({"Python": 0.25, "8-bit products": 0.5, "attention": 0.125, "other": 0.125})


def test_unknown_entries_are_refused() -> None:
    with pytest.raises(ValueError, match=r"--only: expected parts of names.*autoregressive 4-4"):
        chosen(entries("tiny", 8, (1,)), ["gpu"])


@pytest.mark.slow  # it measures the machine first
def test_the_program_writes_both_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ctranslate2")
    times, limits = tmp_path / "times.json", tmp_path / "limits.json"
    monkeypatch.setattr(base_size, "trials", lambda *_: [Trial((4, 4), True, 1, Setting(), 1.0)])
    options = ["--size", "tiny", "--batches", "1", "--threads", "1", "--tokens", "6", "--rounds", "1", "--quick", "--only", "ctc"]
    monkeypatch.setattr(sys, "argv", ["base_size", *options, "--json", str(times), "--roofline", str(limits)])
    base_size.main()
    names = [[row[0] for row in json.loads(path.read_text())["rows"]] for path in (times, limits)]
    assert names == [["CTranslate2 4-4, map", "autoregressive 4-4", "ctc 4-4"], ["ctc 4-4"]]


# ---- other engines run as their users run them: in processes of their own, with an untouched environment and documented settings


ROOT = Path(__file__).resolve().parents[2]
ECHO = "import json, os\nwhile input(): print(json.dumps(dict(os.environ)), flush=True)"
OURS = {
    "benchmarks/decoding/levels.py": "two builds of this project's extension, found by PYTHONPATH",
    "benchmarks/gpu/data_parallel.py": "workers of this project's training, and gloo's connection between them",
}
"""Programs that set variables of processes of this project."""


def written_environments(path: Path) -> list[int]:
    """Return the lines that change `os.environ`, or give a process an environment other than `environment(...)`."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        text = ast.unparse(node)
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("os.putenv", "os.unsetenv") or (
                called.startswith("os.environ.") and not called.endswith(("get", "items"))
            ):
                found.append(node.lineno)
            found += [
                node.lineno
                for word in node.keywords
                if word.arg == "env" and not ast.unparse(word.value).startswith("environment(")
            ]
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
            targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
            found += [node.lineno for target in targets if ast.unparse(target).startswith("os.environ")]
        elif isinstance(node, ast.Name) and text == "environ":
            found.append(node.lineno)
    return found


def test_no_program_changes_the_environment_of_a_rival() -> None:
    paths = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "stages/benchmark/rivals").glob("*.py")]
    found = {str(path.relative_to(ROOT)): written_environments(path) for path in paths}
    assert {name: lines for name, lines in found.items() if lines and name not in OURS} == {}
    rivals = ("ctranslate2", "bergamot", "transformers", "lmplz", "kenlm", "mlflow")
    for name in filter(found.get, OURS):
        assert not any(rival in (ROOT / name).read_text(encoding="utf-8") for rival in rivals)


@pytest.mark.parametrize(
    "program",
    [
        "os.environ['CT2_USE_MKL'] = '1'",
        "os.environ.setdefault('CT2_USE_MKL', '1')",
        "os.environ |= {}",
        "del os.environ['A']",
        "os.putenv('A', '1')",
        "subprocess.Popen(command, env={**os.environ, 'OMP_NUM_THREADS': '1'})",
        "from os import environ\nenviron['A'] = '1'",
    ],
)
def test_changes_of_the_environment_are_found(program: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(program, encoding="utf-8")
    assert written_environments(path)


def test_a_process_has_the_environment_that_the_user_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("CT2_USE_MKL", "1")
    rival = Process([sys.executable, "-c", ECHO], {})
    found = rival.ask("?")
    rival.close()
    expected = dict(line.split("=", 1) for line in Path("/proc/self/environ").read_text().split("\0") if line)
    assert {name: value for name, value in found.items() if name != "LC_CTYPE"} == {
        name: value for name, value in expected.items() if name != "LC_CTYPE"
    }  # Python sets LC_CTYPE of a process without a locale
    assert found.get("OMP_NUM_THREADS") != "7"


def test_a_setting_states_documented_switches_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[dict[str, str]] = []
    monkeypatch.setattr(Model, "directories", {"int8": tmp_path, "float32": tmp_path})
    monkeypatch.setattr(subprocess, "Popen", lambda command, env, **options: given.append(env))
    one = settings_of_one_thread()
    settings = [*one, *(arranged for setting in one for arranged in of_threads(setting, 2))]
    for setting in settings:
        Model(tmp_path, "tiny", (4, 1)).process(setting)
    user = users_environment()
    assert given == [{**user, **dict(setting.switches)} for setting in settings]
    assert {name for setting in settings for name, _ in setting.switches} == process.SWITCHES
    assert [setting for setting in one if setting.switches == OWN and setting.compute_type == "int8"]
    with pytest.raises(ValueError, match=r"switches: expected those of the rival's documentation.*OMP_NUM_THREADS"):
        process.environment({"OMP_NUM_THREADS": "1"})


@pytest.mark.parametrize(("vendor", "own"), [("AMD EPYC", "oneDNN"), ("Intel(R) Xeon(R)", "MKL")])
def test_settings_cover_types_and_backends(vendor: str, own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctranslate2_settings, "cpu_model", lambda: vendor)

    def backend(setting: Setting) -> str:
        switches = {"CT2_USE_MKL": "1" if own == "MKL" else "0", "CT2_PACKED_GEMM": "1", **dict(setting.switches)}
        return "oneDNN" if switches["CT2_USE_MKL"] == "0" else f"MKL {switches['CT2_PACKED_GEMM']}"

    found = {(setting.compute_type, backend(setting)) for setting in settings_of_one_thread()}
    types = ("int8", "int8_float32", "float32")
    mkl = {(kind, f"MKL {packed}") for kind in (*types, "int16") for packed in "01"}
    assert found == {*mkl, *((kind, "oneDNN") for kind in types)}


def test_the_fastest_settings_use_at_most_the_threads_of_a_case() -> None:
    times = {Setting(): 5.0, Setting("float32"): 4.0, Setting(intra_threads=2): 3.0, Setting("int16"): None}
    trials = [Trial((4, 1), True, 1, setting, time) for setting, time in times.items()]
    assert [one.setting for one in fastest(trials, True, 1, 1)] == [Setting("float32"), Setting()]
    assert [one.setting for one in fastest(trials, True, 1, 2, 1)] == [Setting(intra_threads=2)]
    assert fastest(trials, False, 1, 2) == []


def test_hopeless_settings_are_not_tried_with_all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    times, asked = {"float32": 1.0, "int8": 5.0, "int16": 100.0}, []

    class Named:
        layers = (4, 1)

        def process(self, setting: Setting) -> "Named":
            self.kind = setting.compute_type
            return self

        def request(self, some: list[int], setting: Setting, use_map: bool, seconds: float) -> tuple[int, float]:
            return len(some), seconds

        def ask(self, request: tuple[int, float]) -> dict[str, float]:
            asked.append((self.kind, *request))
            return {"milliseconds": times[self.kind]}

        def close(self) -> None:
            """Do nothing."""

    monkeypatch.setattr(ctranslate2_settings, "settings_of_one_thread", lambda: [Setting(kind) for kind in times])
    found = ctranslate2_settings.try_settings([Named()], {1: [1], 8: [1] * 8}, [1], [True])  # type: ignore[list-item]
    assert [(one.setting.compute_type, one.batch, one.milliseconds) for one in found] == [
        ("float32", 1, 1.0),
        ("float32", 8, 1.0),
        ("int8", 1, 5.0),
        ("int8", 8, None),
        ("int16", 1, 100.0),
        ("int16", 8, None),
    ]
    assert [one[1:] for one in asked if one[0] == "int16"] == [(1, 0)], "a single call, which also prepares weights"


OF_TRANSFORMERS = {"torch", "transformers"}


def test_the_worker_needs_the_rival_alone() -> None:
    own = {"ctranslate2_worker": {"ctranslate2", "sentencepiece"}, "bergamot_worker": set(), "transformers_worker": OF_TRANSFORMERS}
    for name, allowed in own.items():
        (path,) = [path for folder in ("benchmarks", "stages") for path in (ROOT / folder).rglob(f"{name}.py")]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {module.partition(".")[0] for module in modules} - sys.stdlib_module_names <= allowed


@pytest.mark.slow
def test_transformers_writes_as_many_tokens_as_were_asked_for() -> None:
    pytest.importorskip("transformers")
    rival = Transformers(sys.executable, "tiny", 5)
    assert {turn.setting: turn.milliseconds() > 0 for turn in rival.turns("x", (1, 1), [2], [1])} == dict.fromkeys(PRECISIONS, True)


def test_the_scripts_of_the_page_need_the_rivals_alone() -> None:
    page = (ROOT / "docs/guide/benchmark.md").read_text(encoding="utf-8")
    scripts = re.findall(r"^python - [^\n]*<<'END'\n(.*?)^END$", page, re.MULTILINE | re.DOTALL)
    assert len(scripts) == 3
    for script in scripts:
        tree = ast.parse(script)
        modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert modules - sys.stdlib_module_names <= {"ctranslate2", "dag_loss", *OF_TRANSFORMERS}


def test_ctranslate2_writes_tokens_of_its_map_alone(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    model, sources = Model(tmp_path, "tiny", (1, 1)), sentences(2, 6, VOCABULARY["tiny"])
    rival = model.process(Setting())
    (with_map, whole) = (rival.ask(model.request(sources, Setting(), use_map, 0)) for use_map in (True, False))
    rival.close()
    common, linked = lexicon("tiny")
    assert linked is not None
    allowed = {
        *common[: SHORTLIST.tokens].tolist(),
        *(int(token) for source in sources for token in linked[[*source, EOS]].ravel()),
    }
    written = [{RESERVED.index(piece) if piece in RESERVED else int(piece) for piece in one} for one in with_map["output"]]
    assert all(tokens <= allowed for tokens in written)
    assert [len(one) for one in with_map["output"]] == [6, 6]
    assert with_map["output"] != whole["output"]
    assert with_map["milliseconds"] > 0


def test_ratios_are_to_the_faster_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"a": 4.0, "b": 2.0, "": 1.0}
    group = like_for_like.Group((4, 1), True)
    results = [
        {"entry": group.entry(engine), "setting": setting, "threads": 1, "batch": 1, "median": times[setting], "rounds": [1.0]}
        for engine, setting in ((like_for_like.CTRANSLATE2, "a"), (like_for_like.CTRANSLATE2, "b"), (like_for_like.OWN, ""))
    ]
    monkeypatch.setattr(
        sys, "argv", ["x", "--size", "tiny", "--batches", "1", "--threads", "1", "--json", str(tmp_path / "a.json")]
    )
    like_for_like.publish_results(
        like_for_like.arguments_of(),
        [group],
        [group.entry(name) for name in (like_for_like.CTRANSLATE2, like_for_like.OWN)],
        results,
    )
    rows = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert [row[1:] for row in rows] == [["2.00", "1.00x"], ["1.00", "2.00x"]]
