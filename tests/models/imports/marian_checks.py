"""Comparison of imported networks with transformers' results."""

import json
from itertools import product

import torch

import fewstep
from fewstep.config.options import OutputLimits
from fewstep.families.stepwise.config import StepwiseSearch
from models.bundle.directory import load_system
from models.imports.foreign import write_foreign
from models.imports.marian import read_marian
from stages.import_network import FILES
from tests.models.imports.marian_networks import LIMIT, LINES, PREFIX


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
