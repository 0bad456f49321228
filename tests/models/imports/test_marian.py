"""Comparison of imported networks with transformers' results."""

import json
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch

import fewstep
from fewstep.config.options import OutputLimits, Shortlist
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.decoder import NativeDecoder
from fewstep.system.networks import read_network
from models.bundle.directory import load_system
from models.bundle.marian import export_marian
from models.imports.files import ForeignModelError
from models.imports.foreign import write_foreign
from models.imports.marian import read_marian
from stages.import_network import FILES
from tests.models.imports.marian_networks import LIMIT, LINES, PREFIX, expectations, spm, write_marian
from tests.stages.test_dag_analysis import make_system


def files_of(directory):
    return {name: directory / name for name in FILES if (directory / name).is_file()}


def read(directory, **options):
    return read_marian(files_of(directory), name="random", digests={}, **options)


def convert(directory, output, **options):
    write_foreign(read(directory, **options), output, name="marian", source_language="en", target_language="de")
    return output


def search(strategy, **options):
    limits = OutputLimits(max_tokens=LIMIT - 1, max_extra_tokens=100, allow_unknown=True)
    return StepwiseSearch(strategy=strategy, output_limits=limits, beam_size=4, **options)


def old_names(directory, side):
    """Return the pieces of Marian's ids."""
    own = directory / "target_vocab.json"
    path = own if side == "target" and own.is_file() else directory / "vocab.json"
    return sorted(ids := json.loads(path.read_text()), key=ids.__getitem__)


def check(directory, output, expected):
    """Compare ids, logits and outputs of an imported network with those of transformers, by the names of pieces."""
    foreign = read(directory)
    system, native = load_system(convert(directory, output)), fewstep.load(output)
    old = {side: old_names(directory, side) for side in ("source", "target")}
    new_source = [native.source_pieces.id_to_piece(token) for token in range(foreign.sizes.source)]
    new_target = [native.target_pieces.id_to_piece(token) for token in range(foreign.sizes.target)]
    encoded = native.encode(LINES)
    expected_pieces = [[old["source"][token] for token in row] for row in expected["ids"]]
    assert [[new_source[token] for token in row] for row in encoded] == expected_pieces

    lengths, network = torch.tensor([len(row) + 1 for row in encoded]), system.decoder.model
    padded = torch.zeros(len(encoded), int(lengths.max()), dtype=torch.int64)
    for row, ids in enumerate(encoded):
        padded[row, : len(ids) + 1] = torch.tensor([*ids, 2])
    flat = torch.tensor([[new_target.index(old["target"][token]) for token in PREFIX] + [2]] * len(LINES))
    with torch.no_grad():
        logits = network.logits(network.hidden(flat, network.encode(padded, lengths)))
    columns = [new_target.index(name) for name in old["target"][:-1]]
    assert torch.allclose(logits[..., columns], torch.tensor(expected["logits"])[..., :-1], atol=1e-4)
    assert bool((logits[..., [0, 1, 4, 5, 6]] == -torch.inf).all())

    for name, engine, decoder in product(("greedy", "beam"), ("torch", "auto"), (system, native)):
        if (engine, decoder) == ("torch", native):
            continue
        for found, row in zip(decoder.decode(encoded, search(name, engine=engine)), expected[name], strict=True):
            wanted = [old["target"][token] for token in row]
            ended = "</s>" in wanted
            wanted = wanted[: wanted.index("</s>")] if ended else wanted
            own = [new_target[token] for token in found[0].ids]
            assert own[: len(wanted)] == wanted
            assert not ended or len(own) == len(wanted)


# ---- imported Marian networks against transformers' own logits, greedy outputs and beam search


transformers = pytest.importorskip("transformers")

VARIANTS = {
    "opus-mt": {},
    "start": {"start": True},
    "unscaled": {"start": True, "scale_embedding": False},
    "gelu": {"activation_function": "gelu"},
    "two vocabularies": {"shared": False},
    "unmapped pieces": {"without": ("▁the", "e")},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_ids_logits_and_searches_are_those_of_transformers(variant, tmp_path):
    model = write_marian(tmp_path / "marian", seed=3, **VARIANTS[variant])
    check(tmp_path / "marian", tmp_path / "system", expectations(model, tmp_path / "marian"))


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_every_precision_and_shortlists_add_the_bias(precision, tmp_path):
    write_marian(tmp_path / "marian", seed=5)
    foreign = read(tmp_path / "marian")
    favourite, rows = 20, foreign.sizes.target
    foreign.weights["logits_bias"][favourite] = 60.0
    write_foreign(foreign, tmp_path / "system", name="marian", source_language="en", target_language="de")
    arrays = read_network(tmp_path / "system", foreign.network, foreign.sizes)
    lexicon = fewstep.Lexicon(np.array([2, favourite, *range(7, 17)]), np.full((rows, 1), -1))
    decoder = NativeDecoder(foreign.network, [arrays], lexicon=lexicon, precision=precision)
    for shortlist in (None, Shortlist(tokens=12, links=0)):
        options = search("greedy", precision=precision, shortlist=shortlist)
        found = decoder.decode(decoder.prepare([[9, 10], [8]]), options)
        assert [ranked[0].ids for ranked in found] == [[favourite] * (LIMIT - 1)] * 2
        assert all(abs(ranked[0].score) < 1e-3 for ranked in found)


def test_segmentation_and_text_do_not_change(tmp_path):
    lines = [" ".join(words.split()[::-1]) for words in LINES] + ["Ünknown — text", ">>deu<< no token here"]
    for kind in ("unigram", "bpe"):
        write_marian(tmp_path / kind, languages=(">>deu<<", ">>nld<<"))
        (tmp_path / kind / "source.spm").write_bytes(spm("source", kind))
        ids = {
            name: number for number, name in enumerate(dict.fromkeys([*json.loads((tmp_path / kind / "vocab.json").read_text())]))
        }
        assert ids
        before = sentencepiece.SentencePieceProcessor(model_proto=spm("source", kind))
        foreign = read(tmp_path / kind, target_token=">>deu<<")
        after = sentencepiece.SentencePieceProcessor(model_proto=foreign.pieces["source"])
        for line in lines:
            assert after.encode(line, out_type=str) == before.encode(line, out_type=str)
            assert after.decode(after.encode(line)) == before.decode(before.encode(line))


def test_language_token_is_put_in_front_of_sources(tmp_path):
    write_marian(tmp_path / "marian", languages=(">>deu<<", ">>nld<<"))
    system = fewstep.load(convert(tmp_path / "marian", tmp_path / "system", target_token=">>nld<<"))
    plain = fewstep.load(convert(tmp_path / "marian", tmp_path / "other", target_token=">>deu<<"))
    ids, other = system.encode(["a dog", ""]), plain.encode(["a dog", ""])
    assert system.source_pieces.id_to_piece(ids[0][0]) == ">>nld<<"
    assert (ids[0][1:], ids[1]) == (other[0][1:], [])
    with pytest.raises(ForeignModelError, match="expected one of >>deu<<, >>nld<<, got >>ger<<"):
        read(tmp_path / "marian", target_token=">>ger<<")
    with pytest.raises(ForeignModelError, match="expected one of >>deu<<, >>nld<<, got none"):
        read(tmp_path / "marian")


def test_description_holds_the_origin_and_the_search_of_the_directory(tmp_path):
    write_marian(tmp_path / "marian", num_beams=6, length_penalty=1.5)
    system = fewstep.load(convert(tmp_path / "marian", tmp_path / "system"))
    assert (system.search.beam_size, system.search.output_limits.max_tokens) == (6, LIMIT - 1)
    described = json.loads((tmp_path / "system/system.json").read_text())
    assert described["format"] == 5
    assert described["origin"]["licence"] == "apache-2.0"


def change(directory, **values):
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | values))


@pytest.mark.parametrize("penalty", [1.5, 0.0])
def test_the_length_penalty_is_that_of_the_directory(tmp_path, penalty):
    write_marian(tmp_path / "marian")
    change(tmp_path / "marian", length_penalty=penalty)
    assert read(tmp_path / "marian").search.length_penalty == penalty


def test_other_architectures_and_damaged_directories_are_refused(tmp_path):
    write_marian(tmp_path / "marian")

    def refused(match, spoil):
        directory = tmp_path / "spoilt"
        shutil.copytree(tmp_path / "marian", directory)
        spoil(directory)
        with pytest.raises(ForeignModelError, match=match):
            read(directory)
        shutil.rmtree(directory)

    refused("model_type: expected marian, got t5", lambda path: change(path, model_type="t5"))
    refused("encoder_ffn_dim|fc1.weight: expected", lambda path: change(path, encoder_ffn_dim=48, decoder_ffn_dim=48))
    refused("expected a file vocab.json", lambda path: (path / "vocab.json").unlink())
    refused("expected a file source.spm", lambda path: (path / "source.spm").unlink())
    refused("expected a file model.safetensors or pytorch_model.bin", lambda path: (path / "model.safetensors").unlink())
    refused("normalize_embedding: expected false", lambda path: change(path, normalize_embedding=True))
    refused("vocab.json: expected .* symbols", lambda path: change(path, vocab_size=90))
    refused("source.spm: expected a SentencePiece model", lambda path: (path / "source.spm").write_bytes(b"\xff\xff nothing"))
    refused("expected no such tensor", lambda path: change(path, decoder_layers=1))
    refused("model.safetensors: expected weights", lambda path: (path / "model.safetensors").write_bytes(b"{}"))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("encoder_layers", "2", "a whole number from 1"),
        ("d_model", 16.0, "a whole number from 1"),
        ("vocab_size", 10**12, "a whole number from 1"),
        ("max_position_embeddings", 10**12, "a whole number from 2"),
        ("dropout", 2, "a probability below 1"),
        ("decoder_start_token_id", 1000, "an id below"),
        ("decoder_start_token_id", None, "a whole number from 0"),
        ("num_beams", "4", "a whole number from 0"),
        ("max_length", [], "a whole number from 0"),
        ("length_penalty", -1.0, "a number of at least 0"),
        ("length_penalty", "long", "a finite number"),
    ],
)
def test_values_of_other_types_or_sizes_are_refused(key, value, expected, tmp_path):
    write_marian(tmp_path)
    change(tmp_path, **{key: value})
    generation = json.loads((tmp_path / "generation_config.json").read_text())
    (tmp_path / "generation_config.json").write_text(json.dumps({k: v for k, v in generation.items() if k != key}))
    with pytest.raises(ForeignModelError, match=f"config.json: {key}: expected {expected}"):
        read(tmp_path)


def test_ids_that_are_no_numbers_are_refused(tmp_path):
    write_marian(tmp_path)
    ids = json.loads((tmp_path / "vocab.json").read_text())
    (tmp_path / "vocab.json").write_text(json.dumps({piece: str(number) for piece, number in ids.items()}))
    with pytest.raises(ForeignModelError, match=r"vocab\.json: expected .* symbols .* \(no numbers\)"):
        read(tmp_path)


class Payload:
    """An object whose pickle calls a function when it is loaded."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


def test_pickles_are_read_as_tensors_alone(tmp_path):
    model = write_marian(tmp_path / "marian", seed=7)
    before = read(tmp_path / "marian").weights
    (tmp_path / "marian/model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "marian/pytorch_model.bin")
    after = read(tmp_path / "marian").weights
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    marker = tmp_path / "ran"
    torch.save({"model.shared.weight": Payload(marker)}, tmp_path / "marian/pytorch_model.bin")
    with pytest.raises(ForeignModelError, match=r"pytorch_model\.bin: refused global .*open"):
        read(tmp_path / "marian")
    assert not marker.exists()


def test_aliases_must_be_equal(tmp_path):
    model = write_marian(tmp_path / "marian")
    (tmp_path / "marian/model.safetensors").unlink()
    state = model.state_dict()
    state["lm_head.weight"] = state["lm_head.weight"] + torch.eye(len(state["lm_head.weight"]), 16)
    torch.save(state, tmp_path / "marian/pytorch_model.bin")
    with pytest.raises(ForeignModelError, match=r"lm_head\.weight: expected equal to model.shared.weight .*, 16 rows differ"):
        read(tmp_path / "marian")


# ---- a Marian network with the outputs that transformers computed for it, which needs no transformers


GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "marian"


def test_the_golden_network_decodes_as_in_transformers(tmp_path):
    check(GOLDEN, tmp_path / "system", json.loads((GOLDEN / "expected.json").read_text()))


def names_of(directory, side):
    own = directory / "target_vocab.json"
    path = own if side == "target" and own.is_file() else directory / "vocab.json"
    ids = json.loads(path.read_text())
    return {name: token for name, token in ids.items() if not name.startswith("unused")}


@pytest.mark.parametrize(
    "options",
    [{}, {"start": True}, {"shared": False, "activation_function": "gelu"}, {"start": True, "scale_embedding": False}],
    ids=["shared", "start", "separate", "unscaled"],
)
def test_a_network_that_was_imported_computes_the_same_when_it_is_exported(tmp_path, options):
    original = write_marian(tmp_path / "original", end_bias=4.0, **options)
    export_marian(convert(tmp_path / "original", tmp_path / "system"), tmp_path / "exported")
    again, report = transformers.MarianMTModel.from_pretrained(tmp_path / "exported", output_loading_info=True)
    again.eval()
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    assert all("embed_positions" in name or "embed_tokens" in name or "lm_head" in name for name in report["missing_keys"])
    tokens, ids = {}, {}
    for name, directory in (("old", tmp_path / "original"), ("new", tmp_path / "exported")):
        tokens[name] = transformers.MarianTokenizer.from_pretrained(directory)
        ids[name] = tokens[name](LINES, return_tensors="pt", padding=True)
    old, new = ({side: names_of(tmp_path / one, side) for side in ("source", "target")} for one in ("original", "exported"))
    inverse = {token: name for name, token in old["source"].items()}
    assert [[new["source"][inverse[token]] for token in row] for row in ids["old"]["input_ids"].tolist()] == ids["new"][
        "input_ids"
    ].tolist()
    shown = [name for name in old["target"] if name in new["target"] and name not in ("<pad>", "<unk>")]
    prefix = shown[3:9]
    found = {}
    for name, model, vocabulary in (("old", original, old), ("new", again, new)):
        start = model.config.decoder_start_token_id
        given = torch.tensor([[start, *(vocabulary["target"][piece] for piece in prefix)]] * len(LINES))
        with torch.no_grad():
            logits = model(**ids[name], decoder_input_ids=given).logits
        found[name] = logits[..., [vocabulary["target"][piece] for piece in shown]]
    assert torch.allclose(found["old"], found["new"], atol=1e-4)
    rules = {"num_beams": 4, "early_stopping": True, "max_length": 30, "do_sample": False, "forced_eos_token_id": None}
    banned = [[old["target"][name]] for name in ("<unk>", "<pad>")]
    outputs = []
    for model, given, known, options in ((original, ids["old"], old, {"bad_words_ids": banned}), (again, ids["new"], new, {})):
        names = {token: name for name, token in known["target"].items()}
        written = model.generate(**given, **options, **rules).tolist()
        outputs.append([[names.get(token, "unused") for token in row if names.get(token) != "<pad>"] for row in written])
    assert outputs[0] == outputs[1]


def test_networks_that_transformers_does_not_compute_are_refused(tmp_path):
    system = make_system(tmp_path, "stepwise").path
    with pytest.raises(ValueError, match="marian: expected norm: post, which is all that transformers computes, got pre"):
        export_marian(system, tmp_path / "out")
    (tmp_path / "graph").mkdir()
    with pytest.raises(ValueError, match="marian: expected a single autoregressive network, got dag"):
        export_marian(make_system(tmp_path / "graph").path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
