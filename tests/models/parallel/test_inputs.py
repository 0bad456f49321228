"""Inputs of empty slots, and their number."""

import dataclasses

import pytest
import torch

from models.parallel.inputs import copied, mixture, slot_inputs
from models.parallel.lengths import fits, length_candidates, upsampled
from tests.models.parallel.networks import SMALL

UNIFORM = dataclasses.replace(SMALL, slot_input="uniform")
SOFT = dataclasses.replace(SMALL, slot_input="soft")
CTC = dataclasses.replace(SMALL, objective="ctc")


@pytest.mark.parametrize(
    ("source", "target", "tokens"),
    [
        (5, 8, [0, 1, 1, 2, 2, 3, 3, 4]),
        (6, 3, [0, 2, 5]),
        (4, 3, [0, 2, 3]),
        (3, 7, [0, 0, 1, 1, 1, 2, 2]),
        (5, 1, [0]),
        (1, 3, [0, 0, 0]),
    ],
)
def test_slots_copy_the_token_at_the_same_relative_position(source, target, tokens):
    found = copied(UNIFORM, torch.tensor([source]), torch.tensor([target]), torch.arange(target))
    assert found.tolist() == [tokens]


def test_a_mixture_is_centred_on_the_relative_position():
    found = mixture(SOFT, torch.tensor([3]), torch.tensor([2]), torch.arange(2), 3)[0]
    near = torch.tensor([0.841099, 0.158863, 0.000038])
    torch.testing.assert_close(found, torch.stack((near, near.flip(0))), rtol=0, atol=1e-6)


def test_a_mixture_at_a_low_temperature_is_the_nearest_token():
    config = dataclasses.replace(SOFT, copy_temperature=0.001)
    found = mixture(config, torch.tensor([3]), torch.tensor([9]), torch.arange(9), 3)[0]
    assert found.argmax(1).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    torch.testing.assert_close(found.amax(1), torch.ones(9))


def test_mixtures_do_not_depend_on_padding():
    for config in (SOFT, dataclasses.replace(CTC, slot_input="gaussian")):
        alone = mixture(config, torch.tensor([3]), torch.tensor([6]), torch.arange(6), 3)
        padded = mixture(config, torch.tensor([3, 5]), torch.tensor([6, 9]), torch.arange(9), 5)[:1, :6]
        torch.testing.assert_close(padded[..., :3], alone)
        assert not padded[..., 3:].any()


@pytest.mark.parametrize(
    ("factor", "source", "tokens"),
    [(2.0, 3, [0, 0, 1, 1, 2, 2]), (3.0, 2, [0, 0, 0, 1, 1, 1]), (1.5, 3, [0, 0, 1, 2, 2]), (2.2, 5, None)],
)
def test_upsampling_repeats_source_tokens(factor, source, tokens):
    config = dataclasses.replace(CTC, upsampling=factor)
    slots = int(upsampled(config, torch.tensor([source]))[0])
    found = copied(config, torch.tensor([source]), torch.tensor([slots]), torch.arange(slots))[0].tolist()
    assert (slots, found) == ((len(tokens), tokens) if tokens else (11, [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4]))


def test_upsampling_by_a_gaussian_weighs_the_nearest_token_most():
    config = dataclasses.replace(CTC, slot_input="gaussian", upsampling=2.0)
    assert mixture(config, torch.tensor([3]), torch.tensor([6]), torch.arange(6), 3)[0].argmax(1).tolist()[1::2] == [0, 1, 2]


def test_embeddings_are_copied_and_not_positions():
    embedded = torch.randn(2, 4, 16)
    found = slot_inputs(UNIFORM, embedded, torch.tensor([4, 2]), torch.tensor([2, 3]), 3)
    assert torch.equal(found[0, :2], embedded[0, [0, 3]])
    assert torch.equal(found[1], embedded[1, [0, 0, 1]])


def test_length_candidates_are_distinct_and_within_the_table():
    logits = torch.full((1, 256), -9.0)
    logits[0, [128, 129, 0, 255]] = torch.tensor([3.0, 4.0, 2.0, 1.0])
    lengths, distinct = length_candidates(SMALL, logits, torch.tensor([5]), 4)
    assert lengths.tolist() == [[6, 5, 1, 40]]
    lengths, distinct = length_candidates(SMALL, logits, torch.tensor([2]), 6, "around")
    assert lengths[distinct].tolist() == [3, 2, 4, 1, 5]
    masked = dataclasses.replace(SMALL, objective="cmlm")
    assert length_candidates(masked, logits, torch.tensor([1]), 3, "around")[0].tolist() == [[2, 2, 3]]


def test_pairs_without_enough_slots_are_left_out():
    assert fits(CTC, 3, 8)
    assert not fits(CTC, 3, 9)
    assert fits(SMALL, 3, 39)
    assert not fits(SMALL, 3, 40)
    assert not fits(CTC, 40, 3)
