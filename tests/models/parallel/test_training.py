"""Small trainings on a language that can be learnt: each source is reversed, and every token becomes another one."""

import random

import pytest
import torch

from fewstep.config.network import Sizes
from fewstep.families.parallel.config import ParallelConfig, ParallelSearch
from models.parallel.decode import ParallelDecoder
from models.parallel.loss import loss
from models.parallel.model import build
from tests.models.parallel.networks import OBJECTIVES, batch_of
from tests.shared import rest_exhaustive

pytestmark = pytest.mark.slow
UPDATES = 400


def pairs(count: int, seed: int) -> list[tuple[list[int], list[int]]]:
    draw = random.Random(seed)
    sources = [[draw.randrange(7, 17) for _ in range(draw.randint(2, 6))] for _ in range(count)]
    return [(source, [token + 10 for token in reversed(source)]) for source in sources]


@pytest.mark.parametrize("objective", rest_exhaustive(OBJECTIVES, ["ctc"]))
def test_a_language_is_learnt(objective):
    torch.manual_seed(1)
    config = ParallelConfig(
        objective=objective,
        width=64,
        feed_forward=128,
        heads=4,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        max_positions=16,
        glancing_updates=UPDATES,
    )
    model = build(config, Sizes(27, 27, True)).train()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, UPDATES)
    costs = []
    for update in range(1, UPDATES + 1):
        torch.manual_seed(update)
        result = loss(model, batch_of(pairs(64, update), range(64 * update, 64 * update + 64)), update, 0.0)
        optimizer.zero_grad()
        (result.total / result.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        costs.append(result.total.item() / int(result.count))
    assert sum(costs[-10:]) < 0.3 * sum(costs[:10])
    unseen = pairs(50, 0)
    decoder = ParallelDecoder(model)
    found = decoder.decode(decoder.prepare([source for source, _ in unseen]), ParallelSearch.for_network(config))
    right = sum(one[0].ids == target for one, (_, target) in zip(found, unseen, strict=True))
    assert right >= 45
