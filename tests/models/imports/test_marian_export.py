"""Export to transformers' Marian: a network that was imported and exported again computes the same."""

import json

import pytest
import torch

from models.bundle.marian import export_marian
from tests.models.imports.marian_networks import LINES, write_marian
from tests.models.imports.test_marian import convert
from tests.stages.test_dag_analysis import make_system


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
    transformers = pytest.importorskip("transformers")
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
