"""Imported networks of fairseq against an independent forward pass, greedy and beam search."""

import sys
import types

import pytest
import torch

import fewstep
from models.bundle.directory import load_system
from models.imports.fairseq import Dictionary, FairseqSide, read_fairseq
from models.imports.files import ForeignModelError
from models.imports.foreign import write_foreign
from tests.models.imports.fairseq_reference import LEARNED, PRE, SHARED, Reference
from tests.models.imports.marian_checks import search
from tests.models.imports.marian_networks import LIMIT, LINES

VARIANTS = {
    "post-norm, one table": (21, 3.0, SHARED),
    "pre-norm, two vocabularies": (10, 3.0, PRE),
    "learned positions": (27, 5.0, LEARNED | SHARED),
    "pre-norm, learned, gelu, unscaled": (5, 3.0, PRE | LEARNED | {"activation_fn": "gelu", "no_scale_embedding": True}),
}
"""Seeds and logits of EOS with which all outputs end, and options."""


def read(directory, **dictionaries):
    def side(name, language):
        listed = (directory / f"dict.{language}.txt").read_text().splitlines()
        symbols = dictionaries.get(name, [line.rpartition(" ")[0] for line in listed])
        return FairseqSide(directory / f"{name}.model", Dictionary(f"dict.{language}.txt", symbols))

    return read_fairseq(directory / "model.pt", side("source", "en"), side("target", "de"), name="random", digests={})


def check(reference, foreign, output):
    write_foreign(foreign, output, name="fairseq", source_language="en", target_language="de")
    system, native = load_system(output), fewstep.load(output)
    new = [native.target_pieces.id_to_piece(token) for token in range(foreign.sizes.target)]
    old, network = reference.rows["target"], system.decoder.model
    encoded, sources = native.encode(LINES), [reference.encoded(line) for line in LINES]
    names = [[native.source_pieces.id_to_piece(token) for token in row] for row in encoded]
    assert names == [[reference.rows["source"][token] for token in row] for row in sources]
    prefix = list(range(4, 12))
    columns, own_prefix = [new.index(name) for name in old], [new.index(old[token]) for token in prefix]
    for row, source in zip(encoded, sources, strict=True):
        with torch.no_grad():
            memory = network.encode(torch.tensor([[*row, 2]]), torch.tensor([len(row) + 1]))
            logits = network.logits(network.hidden(torch.tensor([[*own_prefix, 2]]), memory))[0]
        assert torch.allclose(logits[:, columns], reference.logits(source, prefix), atol=1e-4)
        assert bool((logits[:, [4, 5, 6]] == -torch.inf).all())
    for strategy, size in (("greedy", 1), ("beam", 4)):
        wanted = [[new.index(old[token]) for token in reference.search(source, size, LIMIT - 1)] for source in sources]
        for engine, decoder in (("torch", system), ("auto", system), ("auto", native)):
            found = decoder.decode(encoded, search(strategy, engine=engine))
            assert [ranked[0].ids for ranked in found] == wanted


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_searches_are_those_of_fairseq(variant, tmp_path):
    seed, end, options = VARIANTS[variant]
    reference = Reference(seed=seed, end=end, **options)
    reference.write(tmp_path / "fairseq")
    check(reference, read(tmp_path / "fairseq"), tmp_path / "system")


def old_names(tensors):
    """Return tensors as versions before 0.6 stored them."""
    old = {name: tensor for name, tensor in tensors.items() if "_proj." not in name or "out" in name}
    old.pop("decoder.output_projection.weight")
    for name, tensor in tensors.items():
        if ".q_proj." in name:
            parts = [tensors[name.replace("q_proj", f"{letter}_proj")] for letter in "kv"]
            old[name.replace("q_proj.", "in_proj_")] = torch.cat([tensor, *parts])
    numbers = {"self_attn_layer_norm": 0, "encoder_attn_layer_norm": 1, "final_layer_norm": 2}
    renamed = {}
    for name, tensor in old.items():
        found = next((norm for norm in numbers if f".{norm}." in name), "")
        number = 1 if found == "final_layer_norm" and name.startswith("encoder") else numbers.get(found)
        renamed[name.replace(found, f"layer_norms.{number}") if found else name] = tensor
    return renamed


def test_old_checkpoints_have_other_names_and_objects_of_fairseq(tmp_path, monkeypatch):
    meters = types.ModuleType("fairseq.meters")
    meters.AverageMeter = type("AverageMeter", (), {"__module__": "fairseq.meters"})
    meter = meters.AverageMeter()
    meter.sum = 3.0
    reference = Reference(seed=21, end=3.0, **SHARED)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "fairseq", types.ModuleType("fairseq"))
        patched.setitem(sys.modules, "fairseq.meters", meters)
        reference.write(
            tmp_path / "old", legacy=True, tensors=old_names(reference.tensors), extra_state={"train_meters": {"loss": meter}}
        )
    reference.write(tmp_path / "new")
    old, new = read(tmp_path / "old"), read(tmp_path / "new")
    assert old.weights.keys() == new.weights.keys()
    assert all(torch.equal(old.weights[name], weight) for name, weight in new.weights.items())
    check(reference, old, tmp_path / "system")


def test_sizes_that_a_checkpoint_does_not_state_are_those_of_its_architecture(tmp_path):
    reference = Reference(**SHARED)
    del reference.options["decoder_attention_heads"], reference.options["encoder_attention_heads"]
    reference.write(tmp_path)
    assert read(tmp_path).network.heads == 4  # transformer_iwslt_de_en
    reference.options["arch"] = "transformer_of_this_group"
    reference.write(tmp_path)
    with pytest.raises(ForeignModelError, match=r"model\.pt: encoder_attention_heads: expected a positive number, got none"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"arch": "fconv_wmt_en_de"}, "arch: expected transformer or one of its sizes, got fconv_wmt_en_de"),
        ({"arch": "transformer_lm_gpt"}, "arch: expected transformer"),
        ({"layernorm_embedding": True}, "layernorm_embedding: expected false or none"),
        ({"adaptive_softmax_cutoff": "100,200"}, "adaptive_softmax_cutoff: expected false"),
        ({"decoder_learned_pos": True}, "decoder_learned_pos: expected none, as in the encoder, got True"),
        ({"decoder_output_dim": 8}, "decoder_output_dim: expected decoder_embed_dim, 16, got 8"),
        ({"activation_fn": "tanh"}, "activation_fn: expected one of relu, gelu, swish, got tanh"),
        ({"encoder_attention_heads": 3, "decoder_attention_heads": 3}, "heads: expected a divisor of width 16, got 3"),
        ({"encoder_layers": "2"}, "encoder_layers: expected a positive number, got 2"),
        ({"decoder_layers": 1}, "expected no such tensor"),
        (
            {"encoder_ffn_embed_dim": 32, "decoder_ffn_embed_dim": 32},
            r"fc1\.weight: expected \[32, 16\] by model\.pt, got \[24, 16\]",
        ),
        (PRE, r"encoder\.layer_norm\.weight: expected a tensor \[16\]"),
    ],
)
def test_other_networks_are_refused(options, match, tmp_path):
    reference = Reference(**SHARED)
    reference.options = reference.options | options
    reference.write(tmp_path)
    with pytest.raises(ForeignModelError, match=match):
        read(tmp_path)


def test_dictionaries_and_tables_must_fit(tmp_path):
    reference = Reference(**SHARED)
    reference.write(tmp_path)
    symbols = reference.symbols["target"]
    with pytest.raises(ForeignModelError, match=rf"dict\.de\.txt: expected {len(symbols)} symbols for .* rows, got 3"):
        read(tmp_path, target=symbols[:3])
    with pytest.raises(ForeignModelError, match="share_all_embeddings: expected equal dictionaries"):
        read(tmp_path, target=symbols[::-1])
    changed = {**reference.tensors, "decoder.output_projection.weight": reference.tensors["decoder.embed_tokens.weight"] + 1}
    reference.write(tmp_path, tensors=changed)
    with pytest.raises(ForeignModelError, match=r"output_projection\.weight: expected equal to decoder\.embed_tokens\.weight"):
        read(tmp_path)
    old = {**Reference(**SHARED, **PRE).tensors, "encoder.version": torch.tensor([1.0])}
    Reference(**SHARED, **PRE).write(tmp_path, tensors=old)
    with pytest.raises(ForeignModelError, match=r"encoder\.version: expected at least 3"):
        read(tmp_path)


class Payload:
    """An object whose pickle calls a function when it is loaded."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


@pytest.mark.parametrize("legacy", [False, True])
def test_code_in_a_checkpoint_is_refused(legacy, tmp_path):
    Reference(**SHARED).write(tmp_path, legacy=legacy, extra_state={"meter": Payload(tmp_path / "ran")})
    with pytest.raises(ForeignModelError, match=r"model\.pt: refused global .*open; only tensors and settings are read"):
        read(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_other_files_are_refused(tmp_path):
    Reference(**SHARED).write(tmp_path)
    torch.save({"weights": torch.zeros(1)}, tmp_path / "model.pt")
    with pytest.raises(
        ForeignModelError, match=r"model\.pt: expected a checkpoint of fairseq, with a key 'model', got the keys weights"
    ):
        read(tmp_path)
    (tmp_path / "model.pt").write_bytes(b"nothing")
    with pytest.raises(ForeignModelError, match=r"model\.pt: "):
        read(tmp_path)
