"""Imported Marian networks against transformers' own logits, greedy outputs and beam search."""

import json
import shutil

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
from models.imports.foreign import ForeignModelError, write_foreign
from models.imports.marian import read_marian
from stages.import_network import FILES
from tests.models.imports.marian_networks import LIMIT, spm, write_marian

transformers = pytest.importorskip("transformers")

LINES = ["the old dog drinks cold water", "a small house", "two men stand near the green river in the old garden", "zebra"]
VARIANTS = {
    "opus-mt": {},
    "start": {"start": True},
    "unscaled": {"start": True, "scale_embedding": False},
    "gelu": {"activation_function": "gelu"},
    "two vocabularies": {"shared": False},
    "unmapped pieces": {"without": ("▁the", "e")},
}


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


def reference_ids(directory, lines):
    """Return the ids of transformers' tokeniser with EOS, padded, and their mask."""
    tokens = transformers.MarianTokenizer.from_pretrained(directory)(lines, return_tensors="pt", padding=True)
    return tokens["input_ids"], tokens["attention_mask"]


def names(ids, order):
    return [order[token] for token in ids]


@pytest.mark.parametrize("variant", VARIANTS)
def test_ids_logits_and_searches_are_those_of_transformers(variant, tmp_path):
    model = write_marian(tmp_path / "marian", seed=3, **VARIANTS[variant])
    foreign = read(tmp_path / "marian")
    system = load_system(convert(tmp_path / "marian", tmp_path / "system"))
    native = fewstep.load(tmp_path / "system")

    ids, mask = reference_ids(tmp_path / "marian", LINES)
    old_source = json.loads((tmp_path / "marian/vocab.json").read_text())
    target_file = "target_vocab.json" if VARIANTS[variant].get("shared") is False else "vocab.json"
    old_target = {id_: name for name, id_ in json.loads((tmp_path / "marian" / target_file).read_text()).items()}
    new_source = [native.source_pieces.id_to_piece(token) for token in range(foreign.sizes.source)]
    new_target = [native.target_pieces.id_to_piece(token) for token in range(foreign.sizes.target)]
    encoded = native.encode(LINES)
    for row, length, own in zip(ids.tolist(), mask.sum(1).tolist(), encoded, strict=True):
        assert [old_source[new_source[token]] for token in own] == row[: length - 1]

    with torch.no_grad():
        outputs = {
            name: model.generate(
                input_ids=ids,
                attention_mask=mask,
                num_beams=beams,
                early_stopping=beams > 1,
                length_penalty=1.0,
                max_length=LIMIT,
                min_new_tokens=1,
                do_sample=False,
                forced_eos_token_id=None,
            )
            for name, beams in (("greedy", 1), ("beam", 4))
        }
        start = model.config.decoder_start_token_id
        prefixes = torch.tensor([[start, *range(2, 9)]] * len(ids))
        logits = model(input_ids=ids, attention_mask=mask, decoder_input_ids=prefixes).logits
    network = system.decoder.model
    lengths = torch.tensor([len(own) + 1 for own in encoded])
    padded = torch.zeros(len(encoded), int(lengths.max()), dtype=torch.int64)
    for row, own in enumerate(encoded):
        padded[row, : len(own)], padded[row, len(own)] = torch.tensor(own), 2
    order = {name: id_ for id_, name in enumerate(new_target)}
    flat = torch.tensor([[order[old_target[token]] for token in range(2, 9)] + [2]] * len(ids))
    with torch.no_grad():
        states = network.hidden(flat, network.encode(padded, lengths))
        own = network.logits(states)
    columns = [new_target.index(old_target[old]) for old in range(len(old_target) - 1)]
    assert torch.allclose(own[..., columns], logits[..., : len(columns)], atol=1e-4)
    assert bool((own[..., [0, 1, 4, 5, 6]] == -torch.inf).all())

    for name, found in outputs.items():
        expected = [row[1:] for row in found.tolist()]
        for decoder in (system, native):
            for own_output, row in zip(
                decoder.decode(encoded, search(name, engine="torch" if decoder is system else "auto")), expected, strict=True
            ):
                wanted = names(row, old_target)
                ended = "</s>" in wanted
                wanted = wanted[: wanted.index("</s>")] if ended else wanted
                assert names(own_output[0].ids, new_target)[: len(wanted)] == wanted
                assert not ended or len(own_output[0].ids) == len(wanted)


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
