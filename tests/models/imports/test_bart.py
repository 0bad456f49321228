"""Small random BART networks with vocabularies of byte-level BPE, written as directories by transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import fewstep
from fewstep.config.options import OutputLimits
from fewstep.config.search import SystemParts
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.pieces import BytePieces
from fewstep.system.format import BundleError
from fewstep.vocabulary import clean
from models.bundle.directory import load_system
from models.bundle.export import export_ctranslate2
from models.imports.bart import read_bart
from models.imports.files import ForeignModelError
from models.imports.foreign import write_foreign
from stages.import_network import FILES

TEXT = [
    "The small house stands near the old river, and it's cold.",
    "A dog runs in the green garden; we'll see 12 dogs.",
    "Two old men drink cold water in 1999.",
]
LINES = ["The old dog drinks cold water.", "A small house", "Two men don't stand near the river in 2024!", "Zürich — ça va?"]
PREFIX = list(range(5, 11))
"""Target tokens, by the ids of BART, whose logits are compared."""
LIMIT = 24
"""Longest output in tokens, with the start token and BOS."""


def write_vocabulary(directory: Path, *, mask: bool = True) -> dict[str, int]:
    """Write `vocab.json` and `merges.txt`, and return the ids. Without `mask` that piece has an id behind the rows."""
    from tokenizers import ByteLevelBPETokenizer

    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(TEXT * 4, vocab_size=320, min_frequency=1, show_progress=False)
    trained.save_model(str(directory))
    own = json.loads((directory / "vocab.json").read_text(encoding="utf-8"))
    names = ["<s>", "<pad>", "</s>", "<unk>", *sorted(own, key=own.__getitem__), "<mask>"]
    ids = {name: number for number, name in enumerate(names)}
    (directory / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    return ids if mask else {name: number for name, number in ids.items() if name != "<mask>"}


def write_bart(directory: Path, *, seed: int = 0, mask: bool = True, end_bias: float = 9.0, **options: Any) -> Any:
    """Write a random network into `directory`, and return it. `end_bias` is added to the logit of EOS, so that outputs end."""
    from transformers import BartConfig, BartForConditionalGeneration

    directory.mkdir(parents=True, exist_ok=True)
    rows = len(write_vocabulary(directory, mask=mask))
    settings = {
        "vocab_size": rows,
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
        "max_position_embeddings": 64,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        **options,
    }
    torch.manual_seed(seed)
    model = BartForConditionalGeneration(BartConfig(**settings)).eval()
    _shake(model, end_bias, rows if mask else 0)
    model.save_pretrained(directory)
    path = directory / "generation_config.json"
    generation = {"num_beams": 4, "max_length": LIMIT, "length_penalty": 2.0, "min_length": 5, "forced_bos_token_id": 0}
    path.write_text(json.dumps(json.loads(path.read_text()) | generation))
    (directory / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n\n# A random network\n")
    return model


@torch.no_grad()
def _shake(model: Any, end_bias: float, mask_rows: int) -> None:
    """Give the network sharp outputs that end, without the reserved pieces that this project never writes."""
    for name, weight in model.named_parameters():
        if "layer_norm" in name or "layernorm" in name:
            weight.add_(torch.randn_like(weight) * 0.3)
        else:
            weight.copy_(torch.randn_like(weight) * (0.5 if "embed" in name or "shared" in name else 0.35))
    bias = torch.randn_like(model.final_logits_bias) * 0.5
    bias[0, 2] += end_bias
    bias[0, [0, 1]] = -1e9
    if mask_rows:
        bias[0, mask_rows - 1] = -1e9
    model.final_logits_bias.copy_(bias)


@torch.no_grad()
def expectations(model: Any, ids: list[list[int]], length_penalty: float = 1.0) -> dict[str, Any]:
    """Return what transformers computes for sources with `<s>` and `</s>`: logits after a prefix, and outputs with their scores."""
    longest = max(map(len, ids))
    padded = torch.tensor([[*row, *[1] * (longest - len(row))] for row in ids])
    mask = (padded != 1).long()
    logits = model(input_ids=padded, attention_mask=mask, decoder_input_ids=torch.tensor([[2, 0, *PREFIX]] * len(ids))).logits
    rules = {"max_length": LIMIT, "min_new_tokens": 2, "do_sample": False, "forced_bos_token_id": 0, "forced_eos_token_id": None}
    given = {"input_ids": padded, "attention_mask": mask, "return_dict_in_generate": True, **rules}
    greedy = model.generate(**given, num_beams=1)
    beam = model.generate(
        **given,
        num_beams=4,
        num_return_sequences=4,
        early_stopping=True,
        length_penalty=length_penalty,
        output_scores=True,
    )
    rows = [_text(row) for row in beam.sequences.tolist()]
    scores = beam.sequences_scores.tolist()
    return {
        "logits": logits[:, 1:],
        "greedy": [_text(row) for row in greedy.sequences.tolist()],
        "beam": [list(zip(rows[4 * i : 4 * i + 4], scores[4 * i : 4 * i + 4], strict=True)) for i in range(len(ids))],
    }


def _text(row: list[int]) -> list[int]:
    """Return the tokens of an output after the start token and BOS, before EOS."""
    assert row[:2] == [2, 0]
    tokens = row[2:]
    return tokens[: tokens.index(2)] if 2 in tokens else [token for token in tokens if token != 1]


# ---- imported BART networks against transformers' own ids, logits, greedy outputs and beam search


transformers = pytest.importorskip("transformers")

VARIANTS = {
    "bart": {},
    "scaled": {"scale_embedding": True},
    "relu": {"activation_function": "relu"},
    "no row for the mask": {"mask": False},
}


def read(directory):
    files = {name: directory / name for name in FILES if (directory / name).is_file()}
    return read_bart(files, name="random", digests={})


def convert(directory, output):
    write_foreign(read(directory), output, name="bart", source_language="en", target_language="en")
    return load_system(output)


def search(strategy, **options):
    limits = OutputLimits(max_tokens=LIMIT - 2, max_extra_tokens=100, allow_unknown=True)
    return StepwiseSearch(strategy=strategy, output_limits=limits, beam_size=4, **options)


def names_of(directory):
    """Return the pieces of BART's ids."""
    ids = json.loads((directory / "vocab.json").read_text(encoding="utf-8"))
    return sorted(ids, key=ids.__getitem__)


def padded(rows):
    lengths = torch.tensor([len(row) + 1 for row in rows])
    table = torch.zeros(len(rows), int(lengths.max()), dtype=torch.int64)
    for number, row in enumerate(rows):
        table[number, : len(row) + 1] = torch.tensor([*row, 2])
    return table, lengths


@pytest.mark.parametrize("variant", VARIANTS)
def test_ids_logits_and_searches_are_those_of_transformers(variant, tmp_path):
    model = write_bart(tmp_path / "bart", seed=3, **VARIANTS[variant])
    system, old = convert(tmp_path / "bart", tmp_path / "system"), names_of(tmp_path / "bart")
    tokenizer = transformers.BartTokenizer.from_pretrained(tmp_path / "bart")
    theirs = [tokenizer(line)["input_ids"] for line in LINES]
    encoded = system.encode(LINES)
    names = system.target_pieces.id_to_piece(list(range(len(system.target_pieces))))
    assert [["<s>", *(names[token] for token in row), "</s>"] for row in encoded] == [
        [old[token] for token in row] for row in theirs
    ]

    network, new = system.decoder.model, [names.index(name) for name in old[: model.config.vocab_size]]
    flat = torch.tensor([[new[token] for token in PREFIX] + [2]] * len(LINES))
    for penalty in (1.0, 2.0):
        expected = expectations(model, theirs, penalty)
        with torch.no_grad():
            logits = network.logits(network.hidden(flat, network.encode(*padded(encoded))))
        kept = [token for token in range(model.config.vocab_size) if old[token] != "<pad>"]
        torch.testing.assert_close(logits[..., [new[token] for token in kept]], expected["logits"][..., kept], atol=1e-4, rtol=1e-4)
        assert bool((logits[..., [0, 5, 6]] == -torch.inf).all())

        greedy = [ranked[0].ids for ranked in system.decode(encoded, search("greedy"))]
        assert greedy == [[new[token] for token in row] for row in expected["greedy"]]
        beams = system.decode(encoded, search("beam", length_penalty=penalty, n_best=4))
        for ranked, wanted in zip(beams, expected["beam"], strict=True):
            assert [one.ids for one in ranked] == [[new[token] for token in row] for row, _ in wanted]
            assert [one.score for one in ranked] == pytest.approx([score for _, score in wanted], abs=1e-4)
    assert {len(row) for row in greedy} - {LIMIT - 2}, "expected an output that ends"


def test_scores_of_given_text_are_those_of_transformers(tmp_path):
    model = write_bart(tmp_path / "bart", seed=4)
    system, old = convert(tmp_path / "bart", tmp_path / "system"), names_of(tmp_path / "bart")
    new = [system.target_pieces.id_to_piece(list(range(len(system.target_pieces)))).index(name) for name in old]
    source, target = [10, 40, 33, 12], [50, 7, 91]
    decoder_inputs = torch.tensor([[2, 0, *target]])
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[0, *source, 2]]), decoder_input_ids=decoder_inputs).logits[0, 1:]
    wanted = logits.log_softmax(-1).gather(1, torch.tensor([*target, 2])[:, None]).sum()
    found = system.decoder.score([[new[token] for token in source]] * 2, [[new[token] for token in target], [9] * 8])
    assert found[0] == pytest.approx(float(wanted), abs=1e-3)


def test_a_network_without_its_language_modelling_head_is_read(tmp_path):
    model = write_bart(tmp_path / "bart", seed=5)
    whole = read(tmp_path / "bart").weights
    model.model.save_pretrained(tmp_path / "bart")
    config = json.loads((tmp_path / "bart/config.json").read_text())
    (tmp_path / "bart/config.json").write_text(json.dumps(config | {"architectures": ["BartModel"]}))
    found = read(tmp_path / "bart").weights
    bias = found.pop("logits_bias")
    assert bias[bias.isfinite()].unique().tolist() == [0.0]
    assert found.keys() | {"logits_bias"} == whole.keys()
    assert all(torch.equal(weight, whole[name]) for name, weight in found.items())


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """BART's tokeniser and ours of one vocabulary, with the pieces of its ids."""
    directory = tmp_path_factory.mktemp("vocabulary")
    write_bart(directory)
    foreign = read(directory)
    ours = BytePieces(foreign.pieces["source"], foreign.merges.decode())
    return transformers.BartTokenizer.from_pretrained(directory), ours, names_of(directory)


@given(st.text(alphabet=st.sampled_from("aeinorst THD'lsve12,.!?—üçß漢😀<>_-"), max_size=40))
def test_text_is_segmented_as_by_transformers_and_comes_back(vocabulary, line):
    theirs, ours, old = vocabulary
    line = clean(line, 1)
    assume(not any(name in line for name in theirs.all_special_tokens))  # their names are text here: the next test
    ids = ours.encode(line)
    assert [ours.id_to_piece(token) for token in ids] == [
        old[token] for token in theirs(line, add_special_tokens=False)["input_ids"]
    ]
    assert ours.decode(ids) == line
    assert all(token >= 7 for token in ids)
    assert ours.encode([line, "a"]) == [ids, ours.encode("a")]


def test_names_of_reserved_pieces_in_text_are_text(vocabulary):
    _, ours, _ = vocabulary
    assert min(ours.encode("<s> </s> <mask> <pad> <unk>")) >= 7
    assert ours.decode([1, *ours.encode("a dog"), 2, 0, 3]) == "a dog"


def test_the_search_of_the_directory_counts_the_start_token_and_bos(tmp_path):
    write_bart(tmp_path / "bart")
    system = convert(tmp_path / "bart", tmp_path / "system")
    chosen = system.search
    assert (chosen.beam_size, chosen.length_penalty) == (4, 2.0)
    assert (chosen.output_limits.max_tokens, chosen.output_limits.min_tokens) == (LIMIT - 2, 3)
    described = json.loads((tmp_path / "system/system.json").read_text())
    assert (described["format"], described["origin"]["kind"], described["origin"]["licence"]) == (5, "bart", "apache-2.0")
    assert "merges.txt" in described["parts"]
    assert (system.max_source_tokens, system.max_target_tokens) == (62, 62)
    longest = system.translate(["dog " * 200])
    assert len(longest) == 1


def test_torch_alone_decodes_and_others_say_so(tmp_path):
    write_bart(tmp_path / "bart")
    system = convert(tmp_path / "bart", tmp_path / "system")
    assert set(system.decoder.engines) == {"torch", "ctranslate2"}
    with pytest.raises(BundleError, match="expected a network that native code decodes, got one with embedding_norm"):
        fewstep.load(tmp_path / "system")
    with pytest.raises(ValueError, match="engine: expected auto or torch for a network with embedding_norm"):
        system.translate(["a dog"], search("greedy", engine="ctranslate2"))
    with pytest.raises(ValueError, match="precision: expected float32, float16 or bfloat16 for a network with embedding_norm"):
        system.translate(["a dog"], search("greedy", precision="int8"))
    with pytest.raises(ValueError, match="CTranslate2: expected a network without embedding_norm"):
        export_ctranslate2(tmp_path / "system", tmp_path / "exported", "float32")


def test_begin_vectors_need_an_order_from_left_to_right():
    problems = [problem.path for problem in StepwiseConfig(order="interleaved", begin_vectors=True).problems()]
    assert problems == [("begin_vectors",)]
    assert not [*StepwiseConfig(begin_vectors=True, embedding_norm=True).problems()]
    assert not [*search("beam").problems(StepwiseConfig(begin_vectors=True), SystemParts())]


def test_other_architectures_and_damaged_directories_are_refused(tmp_path):
    write_bart(tmp_path / "bart")

    def change(**values):
        def spoil(path):
            for name in ("config.json", "generation_config.json"):
                found = json.loads((path / name).read_text())
                (path / name).write_text(json.dumps(found | values))

        return spoil

    def write(name, data):
        return lambda path: (path / name).write_bytes(data)

    def refused(match, spoil):
        directory = tmp_path / "spoilt"
        shutil.copytree(tmp_path / "bart", directory)
        spoil(directory)
        with pytest.raises(ForeignModelError, match=match):
            read(directory)
        shutil.rmtree(directory)

    refused("model_type: expected bart, got mbart", change(model_type="mbart"))
    refused("normalize_before: expected False, as in BART, got True", change(normalize_before=True))
    refused("normalize_embedding: expected True, as in BART, got False", change(normalize_embedding=False))
    refused("forced_bos_token_id: expected 0, the id of <s> in vocab.json, got 5", change(forced_bos_token_id=5))
    refused("decoder_start_token_id: expected 2, the id of </s>", change(decoder_start_token_id=0))
    refused("activation_function: expected one of relu, gelu", change(activation_function="tanh"))
    refused("expected a file vocab.json", lambda path: (path / "vocab.json").unlink())
    refused("expected a file merges.txt", lambda path: (path / "merges.txt").unlink())
    refused("merges.txt, line 2: expected two pieces", write("merges.txt", b"#version: 0.2\na b c\n"))
    refused("expected merges of the vocabulary's pieces, got .* others", write("merges.txt", b"#version: 0.2\nq q\n"))
    refused("vocab.json: expected .* symbols", change(vocab_size=90))
    refused("expected no such tensor", change(decoder_layers=1))
    refused("embed_positions.weight: expected", change(max_position_embeddings=32))
    refused("model.safetensors: expected weights", write("model.safetensors", b"{}"))

    def pickled(path):
        (path / "model.safetensors").unlink()
        torch.save({}, path / "pytorch_model.bin")

    refused("expected a file model.safetensors, got", pickled)


def test_a_vocabulary_needs_the_package_tokenizers(tmp_path, monkeypatch):
    write_bart(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(ForeignModelError, match=r"expected the package tokenizers, .* install it: pip install tokenizers"):
        read(tmp_path)
