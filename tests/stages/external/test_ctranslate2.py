"""Models of CTranslate2 as teachers, against the networks that they were converted from."""

import json
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

import fewstep
from fewstep.config.options import OutputLimits
from fewstep.families.stepwise.config import StepwiseSearch
from stages.artifacts import ExternalFile, Text
from stages.context import StepContext, json_text
from stages.errors import DataError
from stages.external import CTranslate2Options, ExternalConfig, ExternalInputs
from stages.external.ctranslate2_model import CTranslate2Lines, source_suffix
from stages.external.run import run
from stages.shared.shards import read_shards, shard_path, write_shard
from stages.workers import LocalWorkers, Resources
from tests.models.imports.marian_checks import convert
from tests.models.imports.marian_networks import LIMIT, LINES, write_marian

if find_spec("ctranslate2") is None:
    pytest.skip("CTranslate2 is not installed (pip install ctranslate2)", allow_module_level=True)


def context_of(directory: Path) -> StepContext:
    directory.mkdir(parents=True, exist_ok=True)
    return StepContext(
        directory=directory,
        attempt="a",
        resources=Resources(),
        shard_cache=directory / "cache",
        workers=LocalWorkers(),
    )


def text_of(directory: Path, lines: list[str]) -> Text:
    context = context_of(directory)
    for index, start in enumerate(range(0, len(lines), 2)):
        part = lines[start : start + 2]
        ids = pa.array(range(start, start + len(part)), pa.int64())
        write_shard(shard_path(directory, index), pa.table({"id": ids, "source": part, "target": part}), context)
    described = {"rows": len(lines), "shards": (len(lines) + 1) // 2, "shard_rows": 2}
    (directory / "text.json").write_text(json_text(described))
    return Text(directory, "0" * 32)


def files_of(model: Path, pieces: Path) -> dict[str, ExternalFile]:
    paths = {path.name: path for path in model.iterdir()}
    paths |= {f"{side}_pieces": pieces / f"{side}.spm" for side in ("source", "target")}
    return {name: ExternalFile(path, name) for name, path in paths.items()}


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    """Return a folder with a Marian network, its CTranslate2 model by CTranslate2's converter, and its imported system."""
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
    inputs = ExternalInputs(text_of(tmp_path / "text", LINES), (), files_of(marian / "model", marian / "marian"))
    context = context_of(tmp_path / "external.partial")
    run(inputs, ExternalConfig(ctranslate2=options), context)
    found = [line for table in read_shards(context.directory) for line in table["target"].to_pylist()]
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
