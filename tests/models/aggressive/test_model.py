"""The networks of drafters: what slots carry, what prefixes see, and the weights that they start from."""

import pytest
import torch

from fewstep.system.format import WEIGHTS
from fewstep.vocabulary import EOS, PAD
from models.aggressive.model import sequences
from models.bundle.weights import load_matching_weights, save_weights
from tests.models.aggressive.networks import drafter_of, head_of, verifier_of


@pytest.mark.parametrize("kind", ["separate", "shared"])
def test_a_soft_copy_depends_on_place_and_source_alone(kind):
    model = drafter_of(encoder=kind)
    source = torch.tensor([[8, 9, 10, EOS], [11, EOS, PAD, PAD]])
    lengths = torch.tensor([4, 2])
    with torch.inference_mode():
        copies = model.soft_copy(model.slot_codes(5), model.read(source, lengths))
        alone = model.soft_copy(model.slot_codes(5), model.read(source[1:, :2], lengths[1:]))
    assert torch.allclose(copies[1], alone[0], atol=1e-6)
    weights = torch.linalg.lstsq(model.read(source, lengths).embedded[1, :2].t().double(), copies[1].t().double()).solution
    assert torch.allclose(weights.sum(0), torch.ones(5, dtype=torch.float64), atol=1e-4)
    assert (weights > 0).all()


def test_a_soft_copy_does_not_depend_on_the_order_of_tokens_with_their_positions(monkeypatch):
    model = drafter_of()
    source, order = torch.tensor([[8, 9, 10, 9, EOS]]), torch.tensor([3, 0, 4, 2, 1])
    with torch.inference_mode():
        codes, read = model.slot_codes(6), model.read(source, torch.tensor([5]))
        expected, places = model.soft_copy(codes, read), model._source_codes(5)
        monkeypatch.setattr(model, "_source_codes", lambda count: places[order])
        moved = model.soft_copy(codes, read._replace(embedded=read.embedded[:, order]))
        monkeypatch.setattr(model, "_source_codes", lambda count: places)
        other = model.soft_copy(codes, read._replace(embedded=read.embedded[:, order]))
    torch.testing.assert_close(moved, expected)
    assert not torch.allclose(other, expected, atol=1e-3), "words that change places are other words"


def test_a_prefix_that_sees_only_itself_does_not_change_with_what_comes_after():
    model = drafter_of(decoder_layers=2, prefix_attention="causal")
    source = model.read(torch.tensor([[8, 9, EOS]]), torch.tensor([3]))
    tokens = torch.tensor([[9, 10, 11, 12]])
    short, long = (
        model.states(sequences(tokens, p, torch.tensor([3])), p, p + 3, source) for p in (torch.tensor([2]), torch.tensor([4]))
    )
    assert torch.allclose(short[:, :2], long[:, :2], atol=1e-6)
    both = drafter_of(decoder_layers=2)
    source = both.read(torch.tensor([[8, 9, EOS]]), torch.tensor([3]))
    one, other = (
        both.states(sequences(tokens, p, torch.tensor([3])), p, p + 3, source) for p in (torch.tensor([2]), torch.tensor([4]))
    )
    assert not torch.allclose(one[:, :2], other[:, :2], atol=1e-3)


@pytest.mark.parametrize("kind", ["separate", "shared"])
def test_a_drafter_that_starts_from_its_verifier_reads_as_it_does(kind, tmp_path):
    verifier = verifier_of()
    save_weights(tmp_path / WEIGHTS, verifier.state_dict())
    model = drafter_of(encoder=kind, seed=5)
    assert load_matching_weights(tmp_path / WEIGHTS, model) > 0
    source, lengths = torch.tensor([[8, 9, 10, EOS], [11, EOS, PAD, PAD]]), torch.tensor([4, 2])
    with torch.inference_mode():
        mine, theirs = model.encoded(source, lengths)[0], verifier.encoded(source, lengths)[0]
    assert mine.equal(theirs)
    assert model.target_embedding.weight.equal(verifier.target_embedding.weight)


@pytest.mark.parametrize("kind", ["separate", "shared"])
def test_a_drafter_copies_the_decoder_of_its_verifier_only_if_asked_to(kind, tmp_path):
    verifier = verifier_of()
    save_weights(tmp_path / WEIGHTS, verifier.state_dict())
    for copied in ("encoder", "all"):
        model, fresh = (drafter_of(encoder=kind, seed=5, copied_weights=copied) for _ in range(2))
        load_matching_weights(tmp_path / WEIGHTS, model)
        mine, drawn, theirs = (one.state_dict() for one in (model, fresh, verifier))
        matrices = [name for name in mine if name.startswith("decoder.") and name in theirs and mine[name].dim() == 2]
        assert matrices
        assert all(mine[name].equal((theirs if copied == "all" else drawn)[name]) for name in matrices)
        assert all(mine[name].equal(theirs[name]) for name in mine if name.startswith(("encoder.", "target_embedding.")))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_head_begins_as_the_last_layer_of_its_verifier(norm, tmp_path):
    verifier = verifier_of(norm=norm)
    save_weights(tmp_path / WEIGHTS, verifier.state_dict())
    model = head_of(verifier_of(norm=norm, seed=6), norm=norm)
    taken = load_matching_weights(tmp_path / WEIGHTS, model)
    assert taken == sum(
        values.numel() for name, values in model.state_dict().items() if not name.startswith(("features.", "words."))
    )
    mine, theirs = model.state_dict(), verifier.state_dict()
    assert all(mine[name].equal(theirs[name]) for name in model.shared_parameters())
    layer = model.head.layers[0].state_dict()
    assert all(values.equal(layer[name]) for name, values in verifier.decoder.layers[1].state_dict().items())
    assert all(values.equal(model.head.norm.state_dict()[name]) for name, values in verifier.decoder.norm.state_dict().items())
