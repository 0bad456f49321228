"""Sizes and checksums: they agree with zlib, sizes are checked first, and every bit of a description is covered."""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import shutil
import stat
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sentencepiece import SentencePieceTrainer

import fewstep
from fewstep.config.network import NetworkConfig, Sizes
from fewstep.config.options import OutputLimits
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.system import integrity
from fewstep.system.description import read_description
from fewstep.system.format import BundleError, write_json
from fewstep.system.integrity import BLOCK, check_parts, measure, seal
from fewstep.vocabulary import RESERVED, clean
from models.bundle.directory import load_model, load_system, save_model, write_system, write_with_searches
from models.bundle.likelihood import score
from models.bundle.weights import save_weights
from models.family import family_named
from models.stepwise.model import build
from models.training.batch import collate
from tests.stages.test_dag_analysis import make_system as made_graphs

CONFIG = StepwiseConfig(encoder_layers=1, decoder_layers=1, width=16, feed_forward=16, heads=2, max_positions=12)
WORDS = ["ein", "zwei", "drei", "blau", "grün", "hund", "katze", "läuft", "springt", "schnell"]
LINES = ["ein hund läuft", "", "zwei katze springt schnell blau", "   ", "drei", "grün hund", "ein hund läuft"]


@pytest.fixture(scope="session")
def pieces(tmp_path_factory):
    draw = random.Random(1)
    path = tmp_path_factory.mktemp("pieces") / "joint"
    SentencePieceTrainer.train(
        sentence_iterator=iter(" ".join(draw.choices(WORDS, k=6)) for _ in range(200)),
        model_prefix=str(path),
        vocab_size=37,
        normalization_rule_name="identity",
        num_threads=1,
        minloglevel=2,
        **{f"{name}_id": index for index, name in enumerate(("pad", "bos", "eos", "unk"))},
        **{f"{name}_piece": RESERVED[index] for index, name in enumerate(("pad", "bos", "eos", "unk"))},
        control_symbols=list(RESERVED[4:]),
    )
    return path.with_suffix(".model")


SEARCHES = {
    "best": StepwiseSearch(strategy="beam", beam_size=3, n_best=2, output_limits=OutputLimits(max_extra_tokens=4)),
    "greedy": StepwiseSearch(),
}


def network(sizes=Sizes(37, 37, True)):
    torch.manual_seed(0)
    model = build(CONFIG, sizes)
    with torch.no_grad():
        model.target_embedding.weight.mul_(4)
    return model


@pytest.fixture
def directory(tmp_path, pieces):
    return make_system(tmp_path, pieces)


def make_system(tmp_path, pieces, **more):
    save_model(tmp_path / "trained", "stepwise", CONFIG, Sizes(37, 37, True), network().state_dict())
    write_system(
        tmp_path / "system",
        family="stepwise",
        network=CONFIG,
        sizes=Sizes(37, 37, True),
        weights=tmp_path / "trained" / "model.safetensors",
        source_vocabulary=pieces,
        target_vocabulary=pieces,
        name="small",
        source_language="en",
        target_language="de",
        searches=SEARCHES,
        **more,
    )
    return tmp_path / "system"


def edit(path, **changes):
    description = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in {**description, **changes}.items() if value is not None}))


def test_a_trained_network_comes_back_bit_for_bit(tmp_path):
    for joint in (True, False):
        model = network(Sizes(37, 37, joint))
        save_model(tmp_path / str(joint), "stepwise", CONFIG, Sizes(37, 37, joint), model.state_dict())
        loaded = load_model(tmp_path / str(joint))
        assert not loaded.training
        assert loaded.config == CONFIG
        assert loaded.state_dict().keys() == model.state_dict().keys()
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in loaded.state_dict().items())
    assert "source_embedding.weight" not in load_file(tmp_path / "True" / "model.safetensors")
    save_model(tmp_path / "again", "stepwise", CONFIG, Sizes(37, 37, True), network().state_dict())
    for name in ("model.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "True" / name).read_bytes()


def test_weights_of_another_order_are_refused_though_they_fit(tmp_path):
    for order in ("autoregressive", "interleaved"):
        config = replace(CONFIG, order=order)
        torch.manual_seed(0)
        save_model(tmp_path / order, "stepwise", config, Sizes(37, 37, True), build(config, Sizes(37, 37, True)).state_dict())
    weights = tmp_path / "autoregressive" / "model.safetensors"
    (tmp_path / "interleaved" / "model.safetensors").replace(weights)
    with pytest.raises(BundleError, match=r"model.safetensors: .*order: trained as 'interleaved', described as 'autoregressive'"):
        load_model(tmp_path / "autoregressive", verify=False)
    save_file(load_file(weights), weights)
    loaded = load_model(tmp_path / "autoregressive", verify=False)
    assert loaded.order.step_size == 1, "weights that do not tell are taken as described"


def test_a_system_translates_as_its_network_and_vocabulary_do(directory):
    system = load_system(directory)
    assert (system.name, system.family, system.source_language, system.target_language) == ("small", "stepwise", "en", "de")
    assert system.search == SEARCHES["best"]
    assert system.searches == SEARCHES
    sources = system.encode(["ein hund läuft"])
    assert system.source_pieces.decode(sources[0]) == "ein hund läuft"
    for search in (None, StepwiseSearch(output_limits=OutputLimits(max_extra_tokens=4))):
        (ranked,) = system.decoder.decode(system.decoder.prepare(sources), search or system.search)
        expected = [(system.target_pieces.decode(hypothesis.ids), hypothesis.score) for hypothesis in ranked]
        found = system.hypotheses(["ein hund läuft"], (search or system.search).n_best, search)
        assert [[(one.text, one.score) for one in ranked] for ranked in found] == [expected]
        assert system.translate(["ein hund läuft"], search) == [expected[0][0]]


def test_each_line_is_translated_as_if_alone_and_blank_ones_are_blank(directory, monkeypatch):
    system = load_system(directory)
    together = system.translate(LINES)
    assert together == [system.translate([line])[0] for line in LINES]
    assert [index for index, text in enumerate(together) if text == ""] == [1, 3]
    assert len(set(together)) > 3
    monkeypatch.setattr("fewstep.system.system.BATCH_TOKENS", 1)
    assert system.translate(LINES) == together
    assert system.translate([]) == []


def test_batches_keep_to_the_budget(directory, monkeypatch):
    system = load_system(directory)
    monkeypatch.setattr("fewstep.system.system.BATCH_TOKENS", 20)
    seen = []
    prepare = system.decoder.prepare
    monkeypatch.setattr(type(system.decoder), "prepare", lambda self, sources, *_: seen.append(sources) or prepare(sources))
    draw = random.Random(0)
    sources = [[7] * draw.randrange(0, 11) for _ in range(30)]
    found = system.decode(sources)
    assert sorted(len(source) for batch in seen for source in batch) == sorted(len(source) for source in sources if source)
    assert all(len(batch) * (max(map(len, batch)) + 1) <= 20 for batch in seen)
    assert all((len(source) == 0) == (ranked[0].steps == 0) for source, ranked in zip(sources, found, strict=True))


def test_a_system_cuts_its_sources_as_they_were_cut_in_its_training(tmp_path, pieces, caplog):
    whole = load_system(make_system(tmp_path / "whole", pieces))
    short = load_system(make_system(tmp_path / "short", pieces, task="summarization", max_source_tokens=3))
    assert json.loads((tmp_path / "short" / "system" / "system.json").read_text())["task"] == "summarization"
    lines = ["ein hund läuft schnell", "drei", "zwei katze springt schnell blau", "ein hund läuft " * 20]
    ids = whole.encode(lines[:3])
    assert [len(source) > 3 for source in ids] == [True, False, True]
    with caplog.at_level(logging.WARNING, "fewstep"):
        assert short.encode(lines[:3]) == [source[:3] for source in ids]
        assert not caplog.records, "that is no surprise"
        beginnings = [whole.source_pieces.decode(source) for source in short.encode(lines)]
        assert short.translate(lines) == whole.translate(beginnings)
    assert [record.getMessage() for record in caplog.records] == ["lines 1 to 4: cut 3 to their first 3 tokens"]
    caplog.clear()
    assert short.translate(lines, first_line=101)[:2] == [short.translate([line])[0] for line in lines[:2]]
    assert caplog.records[0].getMessage() == "lines 101 to 104: cut 3 to their first 3 tokens"
    assert "max_source_tokens" not in json.loads((tmp_path / "whole" / "system" / "system.json").read_text())


def test_a_system_never_reads_more_than_its_network_can(tmp_path, pieces):
    system = load_system(make_system(tmp_path, pieces, max_source_tokens=500))
    assert len(system.encode(["ein hund läuft " * 20])[0]) == CONFIG.max_positions - 1


def test_over_long_and_broken_lines_are_translated_with_a_warning(directory, caplog):
    system = load_system(directory)
    lines = ["ein hund", "ein hund läuft " * 20, "zwei \udce4 katze"]
    with caplog.at_level(logging.WARNING, "fewstep"):
        texts = system.translate(lines, first_line=101)
    assert texts[0] == system.translate(["ein hund"])[0]
    assert all(texts)
    assert system.encode(lines)[1] == system.source_pieces.encode("ein hund läuft " * 20)[:11]
    messages = [record.getMessage() for record in caplog.records]
    assert any(message.startswith("line 102: cut to 11 tokens") for message in messages)
    assert any(message.startswith("line 103: not valid Unicode") for message in messages)
    assert not any("line 101" in message for message in messages)


def test_lines_are_scored_each_by_itself_as_the_network_does(directory, monkeypatch):
    system = load_system(directory)
    targets = ["zwei katze", "", "drei", "blau", "ein hund springt", "grün", "zwei katze"]
    together = score(system, LINES, targets)
    for source, target, value in zip(LINES, targets, together, strict=True):
        ids = [system.source_pieces.encode(" ".join(source.split())), system.target_pieces.encode(target)]
        assert system.decoder.score(ids[:1], ids[1:]) == pytest.approx([value], abs=1e-4)
    assert together[0] == pytest.approx(together[6], abs=1e-4)
    assert len({round(value, 3) for value in together}) > 4
    monkeypatch.setattr("models.bundle.likelihood.BATCH_TOKENS", 1)
    assert score(system, LINES, targets) == pytest.approx(together, abs=1e-4)
    assert score(system, [], []) == []


def test_lines_that_cannot_be_scored_are_named(directory):
    system = load_system(directory)
    long = "ein hund läuft " * 20
    with pytest.raises(ValueError, match=r"line 8: expected a source of at most 11 tokens, got \d+"):
        score(system, ["ein", long], ["ein", "hund"], first_line=7)
    with pytest.raises(ValueError, match="line 1: expected a target of at most 11 tokens"):
        score(system, ["ein"], [long])
    with pytest.raises(ValueError, match=r"expected as many targets as sources \(2\), got 1"):
        score(system, ["ein", "zwei"], ["ein"])


@given(
    st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \t\n\u2581\u00a0\ufeff\x1c\x85\x7fe\u0301"), max_size=12)
)
def test_lines_are_cleaned_as_training_text_is(line):
    import pyarrow as pa

    from stages.shared.normalise import normalise

    assert clean(line, 1) == normalise(pa.array([line]))[0].as_py()


def test_loading_needs_no_ray_mlflow_or_pydantic(directory):
    program = (
        "import sys; from models.bundle.directory import load_system; load_system(sys.argv[1]).translate(['ein hund']);"
        "sys.exit(' '.join({'ray', 'mlflow', 'pydantic', 'pyarrow'} & sys.modules.keys()) or 0)"
    )
    subprocess.run([sys.executable, "-c", program, str(directory)], check=True)


def test_all_tensors_that_do_not_fit_are_named_at_once(directory):
    path = directory / "model.safetensors"
    state = load_file(path)
    del state["encoder.norm.weight"], state["decoder.norm.bias"]
    state["stray"] = torch.zeros(3)
    state["encoder.norm.bias"] = torch.zeros(17)
    save_file(state, path)
    with pytest.raises(BundleError) as raised:
        load_system(directory, verify=False)
    for text in (
        "missing decoder.norm.bias, encoder.norm.weight",
        "unexpected stray",
        r"encoder.norm.bias: expected shape [16], got [17]",
    ):
        assert text in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "martian"}, "family: expected one of"),
        ({"network": {"wdith": 3}}, "wdith"),
        ({"searches": {"best": {"beam": 3}}}, "beam"),
        ({"search": "fast"}, "fast"),
        ({"sizes": None}, "sizes"),
        ({"languages": None}, "expected the keys languages, got none of them"),
        ({"sizes": {"source": 38, "target": 37, "joint": True}}, r"source.spm: expected 38 pieces .* got 37"),
    ],
)
def test_a_description_that_cannot_be_used_is_explained(directory, changes, message):
    edit(directory / "system.json", **changes)
    with pytest.raises(BundleError, match=message):
        load_system(directory, verify=False)
    (directory / "system.json").write_text("{")
    with pytest.raises(BundleError, match="expected JSON"):
        load_system(directory)


def write_members(tmp_path, pieces, count=2):
    members = []
    for number in range(2, 2 + count):
        torch.manual_seed(number)
        save_model(tmp_path / str(number), "stepwise", CONFIG, Sizes(37, 37, True), build(CONFIG, Sizes(37, 37, True)).state_dict())
        members.append(tmp_path / str(number) / "model.safetensors")
    return make_system(tmp_path, pieces, members=members)


def test_networks_that_write_together_are_one_system(tmp_path, pieces):
    directory = write_members(tmp_path, pieces)
    assert [part for part in read_description(directory)["parts"] if "members" in part] == [
        "members/2/codes.safetensors",
        "members/2/model.safetensors",
        "members/3/codes.safetensors",
        "members/3/model.safetensors",
    ]
    system = load_system(directory)
    assert len(system.decoder.model.members) == 3
    lines = LINES
    alone = load_system(make_system(tmp_path / "alone", pieces))
    assert system.decode(system.encode(lines)) != alone.decode(alone.encode(lines))


@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
def test_a_damaged_member_is_named(tmp_path, pieces, damage):
    member = write_members(tmp_path, pieces) / "members" / "3" / "model.safetensors"
    if damage == "missing":
        member.unlink()
    elif damage == "cut":
        member.write_bytes(member.read_bytes()[:1000])
    else:
        save_file({"embedding": torch.zeros(2)}, member)
    with pytest.raises(BundleError, match=r"members/3/model.safetensors: .*(missing|damaged|do not fit)"):
        load_system(member.parents[2], verify=False)


def test_a_system_with_other_searches_shares_files(directory, tmp_path, monkeypatch):
    other = tmp_path / "other"
    for attempt in range(2):  # the second one finds the links of the first
        write_with_searches(other, directory, {"greedy": StepwiseSearch(), "best": SEARCHES["best"]})
        assert (directory / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes(), attempt
    parts = read_description(directory)["parts"]
    assert read_description(other)["parts"] == parts
    assert all((other / part).samefile(directory / part) for part in parts)
    whole, found = load_system(directory), load_system(other)
    assert (found.default_search, set(found.searches)) == ("greedy", {"greedy", "best"})
    assert found.hypotheses(LINES, None, "best") == whole.hypotheses(LINES, None, "best")

    def refused(*_):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr("pathlib.Path.hardlink_to", refused)
    write_with_searches(tmp_path / "copy", directory, SEARCHES)
    assert not any((tmp_path / "copy" / part).samefile(directory / part) for part in parts)
    expected = whole.hypotheses(LINES)
    shutil.rmtree(directory)
    assert found.hypotheses(LINES, None, "best") == load_system(tmp_path / "copy").hypotheses(LINES) == expected
    assert load_system(other).hypotheses(LINES, None, "best") == expected


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_weights_have_the_mode_that_the_user_chose(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        save_weights(tmp_path / "w.safetensors", {"a": torch.zeros(2)})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "w.safetensors").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("size", [0, 1, BLOCK, 2 * BLOCK + 17])
def test_the_checksum_is_that_of_zlib(tmp_path: Path, size: int) -> None:
    content = bytes(range(251)) * (size // 251 + 1)
    (tmp_path / "part").write_bytes(content[:size])
    assert measure(tmp_path / "part") == {"bytes": size, "crc32": format(zlib.crc32(content[:size]), "08x")}


def test_a_single_bit_of_a_description_counts(tmp_path: Path) -> None:
    directory = made_graphs(tmp_path).path
    path = directory / "system.json"
    intact, content = read_description(directory), path.read_bytes()
    silent = []
    for bit in random.Random(0).sample(range(8 * len(content)), 400):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            if read_description(directory) != intact:
                silent.append(bit)
        except BundleError:
            pass
    assert not silent


def test_a_description_may_be_laid_out_otherwise(tmp_path: Path) -> None:
    directory = made_graphs(tmp_path).path
    description = read_description(directory)
    (directory / "system.json").write_text(json.dumps(dict(reversed(description.items())), indent=4, ensure_ascii=True))
    assert read_description(directory) == description
    write_json(directory / "system.json", {**description, "name": "other"})
    with pytest.raises(BundleError, match=r"system.json: expected content of sha256 [0-9a-f]{64}, got [0-9a-f]{64}; .*damaged"):
        read_description(directory)
    write_json(directory / "system.json", seal({**description, "name": "other"}))
    assert read_description(directory)["name"] == "other"


def test_all_sizes_come_before_the_first_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        (tmp_path / name).write_text("part")
    description = {"parts": {name: measure(tmp_path / name) for name in "ab"}}
    check_parts(tmp_path, description)
    os.truncate(tmp_path / "b", 3)
    monkeypatch.setattr(integrity, "measure", lambda path: pytest.fail("read a file"))
    with pytest.raises(BundleError, match=r"b: expected 4 bytes, got 3 bytes"):
        check_parts(tmp_path, description)


def test_a_disk_that_cannot_be_read_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("part")
    description = {"parts": {"a": measure(tmp_path / "a")}}

    def broken(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(integrity, "measure", broken)
    with pytest.raises(BundleError, match=r"a: expected a readable file, got: Input/output error"):
        check_parts(tmp_path, description)


GRAPHS = DagConfig(**{name: getattr(CONFIG, name) for name in vars(NetworkConfig())}, max_vertices=40, graph_factor=3)


@pytest.mark.parametrize(
    ("family", "config", "search"),
    [("stepwise", CONFIG, StepwiseSearch()), ("dag", GRAPHS, DagSearch(strategy="lookahead"))],
    ids=["stepwise", "dag"],
)
def test_torch_decodes_networks_with_an_output_table_of_their_own(tmp_path, pieces, family, config, search):
    """With the embeddings in its table such a network writes what the tied one writes."""
    sizes, found, states = Sizes(37, 37, True), {}, torch.ones(1, 1, 16)
    own = replace(config, tied_output=False)
    tied, untied = (family_named(family).functions.build(one, sizes) for one in (config, own))
    untied.load_state_dict({**tied.state_dict(), "output.weight": tied.target_embedding.weight})
    for name, model, described in (("tied", tied, config), ("untied", untied, own)):
        save_model(tmp_path / name, family, described, sizes, model.state_dict())
        write_system(
            tmp_path / f"{name}-system",
            family=family,
            network=described,
            sizes=sizes,
            weights=tmp_path / name / "model.safetensors",
            source_vocabulary=pieces,
            target_vocabulary=pieces,
            name=name,
            source_language="en",
            target_language="de",
            searches={"only": search},
        )
        found[name] = load_system(tmp_path / f"{name}-system").translate(LINES)
    assert found["tied"] == found["untied"]
    with pytest.raises(BundleError, match=r"expected a network that native code decodes, got one .*without tied_output"):
        fewstep.load(tmp_path / "untied-system")
    assert torch.equal(untied.logits(states), tied.logits(states))
    batch, functions = collate(range(1), [[7, 8]], [[9, 10]]), family_named(family).functions
    losses = [functions.loss(model.eval(), batch, 0, 0.0).total for model in (tied, untied)]
    assert torch.equal(*losses)
    losses[1].backward()
    assert untied.output.weight.grad.abs().sum() > 0
    with torch.no_grad():
        untied.output.weight.neg_()
    assert torch.equal(untied.logits(states), -tied.logits(states))
